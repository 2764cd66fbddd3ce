package systems

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"rankpool/scheduler/draw"
	"rankpool/scheduler/stager"
)

// script drives a policy through the real cache, with samples of one byte, named by letters or
// numbers. Its words are draws, `a`, and reports of a score, `a=7`. The answer has a word per draw:
// `hit`, `+` when the sample is admitted, `+c` when it displaces c, and `-` when it is not
// admitted.
type script struct {
	cache  *stager.Cache
	scores map[string]float32
}

func newScript(policy stager.Policy, capacity int64) *script {
	one := func(draw.SampleID) int64 { return 1 }
	return &script{cache: stager.NewCache(policy, capacity, one), scores: map[string]float32{}}
}

func (s *script) use(name string) stager.Use {
	score, known := s.scores[name]
	if !known {
		score = 1 // a scorer's initial one
	}
	id := 0
	for _, c := range name {
		id = id*64 + int(c)%64
	}
	return stager.Use{ID: draw.SampleID(id), Score: score, Known: known}
}

func (s *script) run(words string) string {
	names := map[draw.SampleID]string{}
	var answers []string
	for _, word := range strings.Fields(words) {
		name, score, report := strings.Cut(word, "=")
		names[s.use(name).ID] = name
		if report {
			var v float32
			if _, err := fmt.Sscan(score, &v); err != nil {
				panic(err)
			}
			s.scores[name] = v
			s.cache.Refresh(s.use(name))
			continue
		}
		out := ""
		switch s.cache.Draw(s.use(name), func(id draw.SampleID) { out += names[id] }) {
		case stager.Hit:
			answers = append(answers, "hit")
		case stager.Admitted:
			answers = append(answers, "+"+out)
		case stager.Bypassed:
			answers = append(answers, "-"+out)
		}
	}
	return strings.Join(answers, " ")
}

// TestSHADEAlgorithm1 has a case per line of the algorithm, in a cache with two places.
func TestSHADEAlgorithm1(t *testing.T) {
	for _, c := range []struct{ lines, words, want string }{
		{"7-8: a hit needs no score", "a a", "+ hit"},
		{"9-10: while there is room, unknown samples are admitted", "a b", "+ +"},
		{"5-6: the ghost cache has samples that were never cached", "a b a=2 b=3 c c=4 c", "+ + - +a"},
		{"6: a resident's score changes as soon as it is reported", "a b a=2 b=3 c=4 a=5 c", "+ + +b"},
		{"12, 22: a full cache does not admit an unknown sample, even one that would be the most " +
			"important", "a b a=0.5 b=0.5 c", "+ + -"},
		{"13: the most recent score counts", "a b a=2 b=3 c=4 c=1 c", "+ + -"},
		{"14, 17: the least important resident goes", "a b a=3 b=2 c=4 c", "+ + +b"},
		{"16: more important", "a b a=2 b=3 c=2.5 c", "+ + +a"},
		{"16: as important", "a b a=2 b=3 c=2 c", "+ + +a"},
		{"16, 19-20: less important", "a b a=2 b=3 c=1.5 c", "+ + -"},
		{
			"17-18: what was evicted comes back by its score in the ghost cache",
			"a b a=2 b=3 c=4 c a a=3.5 a", "+ + +a - +b",
		},
		{"18: the newcomer is in the queue with its score", "a b a=2 b=3 c=2.5 c d=2.6 d", "+ + +a +c"},
		{"2: equal importance is ordered by frequency", "a b a a=2 b=2 c=2 c", "+ + hit +b"},
		{"2: and then by id", "b a a=2 b=2 c=2 c", "+ + +a"},
		{"2: frequency counts from admission", "a a a=2 b b=3 c=4 c a=4 a b=5 d=4 d", "+ hit + +a +b +a"},
	} {
		if got := newScript(newAPP(PolicyConfig{}), 2).run(c.words); got != c.want {
			t.Errorf("line %s: %s gives %s, want %s", c.lines, c.words, got, c.want)
		}
	}
}

// TestSHADEVariants checks what distinguishes the policies of §6.2. The newcomer d is the least
// important, and unknown.
func TestSHADEVariants(t *testing.T) {
	const words = "a a a b c b=2 a=2 c=3 d e=2 e"
	for _, c := range []struct{ policy, want string }{
		{"app", "+ hit hit + + - +b"},
		{"pq", "+ hit hit + + +a +d"},
		{"pqlfu", "+ hit hit + + +b +d"},
		{"lfu", "+ hit hit + + +b +c"},
		{"lru", "+ hit hit + + +a +b"},
	} {
		policy, err := NewPolicy(c.policy, PolicyConfig{})
		if err != nil {
			t.Fatal(err)
		}
		if got := newScript(policy, 3).run(words); got != c.want {
			t.Errorf("%s: %s gives %s, want %s", c.policy, words, got, c.want)
		}
	}
	for _, s := range All() {
		if strings.HasPrefix(s.Name, "shade-") &&
			(s.Scorer != "batchloss" || s.Sampler != "weighted") {
			t.Errorf("%s has the scorer %s and the sampler %s", s.Name, s.Scorer, s.Sampler)
		}
	}
}

// TestSHADERandom checks that all residents are evicted equally often, and that the seed decides
// which.
func TestSHADERandom(t *testing.T) {
	const residents, evictions = 10, 20000
	trial := func(seed int64) []int {
		policy := newEvictRandom(PolicyConfig{Seed: seed})
		for p := range stager.Place(residents) {
			policy.Admit(p, stager.Use{})
		}
		counts := make([]int, residents)
		for range evictions {
			v, _ := policy.Victim()
			if again, ok := policy.Victim(); again != v || !ok {
				t.Fatalf("the victim is %d, and when asked again %d", v, again)
			}
			counts[v]++
			policy.Remove(v)
			policy.Admit(v, stager.Use{})
		}
		return counts
	}
	counts := trial(1)
	for p, n := range counts {
		// Six standard deviations of a binomial distribution, √(20000 · 0.1 · 0.9) = 42.
		if mean := evictions / residents; n < mean-6*42 || n > mean+6*42 {
			t.Errorf("place %d was evicted %d times of %d", p, n, evictions)
		}
	}
	if !slices.Equal(counts, trial(1)) || slices.Equal(counts, trial(2)) {
		t.Error("the seed does not decide which resident is evicted")
	}
}

// TestSHADESection421Example has the ten samples of §4.2.1 and a cache of two. As in the paper, a
// cache begins with the samples that its policy would hold: offline MIN with the best two for the
// coming draws, SHADE with the two most important ones.
func TestSHADESection421Example(t *testing.T) {
	// "Offline Belady's MIN" with the random samples 1, 3, 5, 6, 8: 40 %, two of five.
	if hits := minHits("1 3", "1 3 5 6 8"); hits != 2 {
		t.Errorf("MIN has %d hits of random samples, the paper 2", hits)
	}
	// With repetitions that the random sampler happens to give: 60 %.
	if hits := minHits("5 10", "4 5 5 1 10"); hits != 3 {
		t.Errorf("MIN has %d hits of 4, 5, 5, 1, 10, the paper 3", hits)
	}
	// PADS with 3, 5 and 2 the most important: 80 %, and no more with MIN. The first list leaves 3
	// and 5 in the cache.
	app := newScript(newAPP(PolicyConfig{}), 2)
	app.run("3=9 5=9 2=8 1=1 4=1 7=1 10=1")
	app.run("4 7 3 5 3 5 2 2 1 10")
	scores := []float32{1: 1, 2: 7, 3: 9, 4: 1, 5: 8, 6: 1, 7: 1, 8: 1, 9: 1, 10: 1}
	// one process of two
	cut := padsCut([]draw.SampleID{4, 7, 3, 5, 3, 5, 2, 2, 1, 10}, scores, 5)
	list := strings.Trim(fmt.Sprint(cut), "[]")
	if list != "3 3 5 5 2" {
		t.Errorf("PADS gives a process <%s>, the paper <3 3 5 5 2>", list)
	}
	if got := app.run(list); got != "hit hit hit hit -" {
		t.Errorf("SHADE answers %s, the paper has 4 hits", got)
	}
	if hits := minHits("3 5", list); hits != 4 {
		t.Errorf("MIN has %d hits of SHADE's samples", hits)
	}
}

// minHits returns the hits of Bélády's MIN with room for two samples. It begins with those of warm.
func minHits(warm, draws string) int {
	words := append(strings.Fields(warm), strings.Fields(draws)...)
	cache := newScript(stager.NewClairvoyant(), 2)
	hits := 0
	for i, name := range words {
		u := cache.use(name)
		u.Next = math.Inf(1)
		if next := slices.Index(words[i+1:], name); next >= 0 {
			u.Next = float64(i + 1 + next)
		}
		if cache.cache.Draw(u, func(draw.SampleID) {}) == stager.Hit {
			hits++
		}
	}
	return hits
}

// TestSHADEPolicies checks what holds for every policy, with samples of different sizes: never more
// than the capacity, a hit exactly for what was admitted and not evicted, and the same answers to
// the same calls.
func TestSHADEPolicies(t *testing.T) {
	const samples = 12
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.SampledFrom([]string{"app", "pq", "pqlfu", "random"}).Draw(t, "policy")
		sizes := rapid.SliceOfN(rapid.Int64Range(1, 4), samples, samples).Draw(t, "sizes")
		capacity := rapid.Int64Range(0, 15).Draw(t, "capacity")
		var caches [2]*stager.Cache
		for i := range caches {
			policy, err := NewPolicy(name, PolicyConfig{Seed: 3})
			if err != nil {
				t.Fatal(err)
			}
			caches[i] = stager.NewCache(policy, capacity,
				func(id draw.SampleID) int64 { return sizes[id] })
		}
		in := make([]bool, samples)
		uses := make([]stager.Use, samples)
		for i := range uses {
			uses[i] = stager.Use{ID: draw.SampleID(i), Score: 1}
		}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			u := &uses[rapid.IntRange(0, samples-1).Draw(t, "sample")]
			if rapid.Bool().Draw(t, "report") {
				u.Score, u.Known = float32(rapid.IntRange(0, 4).Draw(t, "score")), true
				caches[0].Refresh(*u)
				caches[1].Refresh(*u)
				continue
			}
			var evicted [2][]draw.SampleID
			var outcomes [2]stager.Outcome
			for i, c := range caches {
				outcomes[i] = c.Draw(*u, func(id draw.SampleID) { evicted[i] = append(evicted[i], id) })
			}
			if outcomes[0] != outcomes[1] || !slices.Equal(evicted[0], evicted[1]) {
				t.Fatalf("the same calls give %v %v and %v %v", outcomes[0], evicted[0],
					outcomes[1], evicted[1])
			}
			if (outcomes[0] == stager.Hit) != in[u.ID] {
				t.Fatalf("sample %d is in memory: %v, the outcome is %v", u.ID, in[u.ID],
					outcomes[0])
			}
			for _, id := range evicted[0] {
				in[id] = false
			}
			in[u.ID] = outcomes[0] != stager.Bypassed
			used := int64(0)
			for id, here := range in {
				if here {
					used += sizes[id]
				}
			}
			if used != caches[0].UsedBytes() || used > capacity {
				t.Fatalf("%d bytes are used of %d, the cache says %d", used, capacity,
					caches[0].UsedBytes())
			}
		}
	})
}
