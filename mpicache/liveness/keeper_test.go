package liveness

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// A scene is a Keeper in virtual time, over a cache that obeys unless it hangs.
type scene struct {
	*Keeper
	now     time.Duration
	silent  map[int]bool
	hangs   bool // in MPI_Init
	stays   bool // cannot be ended
	slow    bool // it meets, and is not ready
	answers bool // its ranks answer, but for silent
	said    []string
}

func newScene() *scene {
	return &scene{silent: map[int]bool{}, Keeper: NewKeeper(Options{
		Ranks: []int{0, 1}, StartWithin: time.Minute, AnswerWithin: bound,
		EndWithin: 10 * time.Second, Again: true,
	})}
}

func (s *scene) step(e Event) {
	for _, c := range s.Step(s.now, e) {
		s.said = append(s.said, fmt.Sprintf("%v %s", s.now.Round(100*time.Millisecond), told(c)))
		switch c.(type) {
		case Start:
			s.start()
		case End:
			s.answers = false
			if !s.stays {
				s.step(Ended{How: "signal 9, killed"})
			}
		}
	}
}

func told(c Command) string {
	switch c := c.(type) {
	case Say:
		return "say: " + c.Text
	case Fail:
		return "fail: " + c.Why
	}
	return strings.ToLower(
		strings.TrimSuffix(strings.TrimPrefix(fmt.Sprintf("%T", c), "liveness."), "{}"))
}

// start starts the cache, which is ready at once.
func (s *scene) start() {
	s.step(Started{})
	if s.hangs {
		return
	}
	s.step(Met{})
	s.answers = true
	if s.slow {
		return
	}
	s.step(Ready{})
	s.silent = map[int]bool{}
}

func (s *scene) pass(d time.Duration) {
	for end := s.now + d; s.now < end; {
		s.now += min(max(s.Wait(), time.Millisecond), end-s.now)
		for r := range s.opt.Ranks {
			if s.answers && !s.silent[r] {
				s.step(Answered{r})
			}
		}
		s.step(Tick{})
	}
}

func (s *scene) die(how string) {
	s.answers = false
	s.step(Ended{How: how})
}

const again = "; training reads storage until it is there again: start "

func TestKeeper(t *testing.T) {
	for name, c := range map[string]struct {
		scene func(s *scene)
		want  []string
	}{
		"a rank dies": {func(s *scene) {
			s.start()
			s.pass(time.Minute)
			s.die("exit code 1")
			s.pass(time.Minute)
		}, []string{
			"1m0s say: the cache ended (exit code 1)" + again + "2 in 200ms",
			"1m0.2s start",
		}},
		"a rank hangs": {func(s *scene) {
			s.start()
			s.pass(time.Minute)
			s.silent[1] = true
			s.pass(time.Hour)
		}, []string{
			"3m0s end",
			"3m0s say: the cache ended (rank 1 has not answered for 2m0s: its process is stopped " +
				"or hangs)" + again + "2 in 200ms",
			"3m0.2s start",
		}},
		"a rank hangs before it is ready": {func(s *scene) {
			s.start()
			s.pass(time.Minute)
			s.die("exit code 1")
			s.slow = true
			s.silent[1] = true
			s.pass(time.Second)
			s.slow = false
			s.pass(time.Hour)
		}, []string{
			"1m0s say: the cache ended (exit code 1)" + again + "2 in 200ms",
			"1m0.2s start",
			"3m1s end",
			"3m1s say: the cache ended (rank 1 has not answered for 2m0s: its process is " +
				"stopped or hangs)" + again + "3 in 400ms",
			"3m1.4s start",
		}},
		"it takes its memory for nine minutes": {func(s *scene) {
			s.slow = true
			s.start()
			s.pass(9 * time.Minute)
			s.step(Ready{})
			s.pass(time.Hour)
		}, nil},
		"a rank hangs and cannot be ended": {func(s *scene) {
			s.start()
			s.pass(time.Minute)
			s.silent[0], s.silent[1], s.stays = true, true, true
			s.pass(time.Hour)
		}, []string{
			"3m0s end",
			"3m10s forget",
			"3m10s say: the cache ended (ranks 0, 1 have not answered for 2m0s: their processes " +
				"are stopped or hang, and it cannot be ended)" + again + "2 in 200ms",
			"3m10.2s start",
		}},
		"a rank is stopped for 90 s, often": {func(s *scene) {
			s.start()
			for range 20 {
				s.silent[1] = true
				s.pass(90 * time.Second)
				s.silent[1] = false
				s.pass(5 * time.Second)
			}
		}, nil},
		"the job is suspended for an hour": {func(s *scene) {
			s.start()
			s.pass(time.Minute)
			s.now += time.Hour
			s.pass(time.Minute)
		}, nil},
		"it dies repeatedly": {func(s *scene) {
			s.start()
			for range 7 {
				s.die("exit code 1")
				s.pass(6 * time.Second)
			}
			s.pass(lifeProves)
			s.die("exit code 1")
			s.pass(time.Second)
		}, []string{
			"0s say: the cache ended (exit code 1)" + again + "2 in 200ms", "200ms start",
			"6s say: the cache ended (exit code 1)" + again + "3 in 400ms", "6.4s start",
			"12s say: the cache ended (exit code 1)" + again + "4 in 800ms", "12.8s start",
			"18s say: the cache ended (exit code 1)" + again + "5 in 1.6s", "19.6s start",
			"24s say: the cache ended (exit code 1)" + again + "6 in 3.2s", "27.2s start",
			"30s say: the cache ended (exit code 1)" + again + "7 in 5s", "35s start",
			"36s say: the cache ended (exit code 1)" + again + "8 in 5s", "41s start",
			"1m12s say: the cache ended (exit code 1)" + again + "9 in 200ms", "1m12.2s start",
		}},
		"training is over": {func(s *scene) {
			s.start()
			s.step(Over{})
			s.die("exit code 1")
			s.pass(time.Minute)
		}, nil},
		"training is over while it is down": {func(s *scene) {
			s.start()
			s.die("exit code 1")
			s.step(Over{})
			s.pass(time.Minute)
		}, []string{"0s say: the cache ended (exit code 1)" + again + "2 in 200ms"}},
		"the first start hangs": {
			func(s *scene) {
				s.hangs = true
				s.start()
				s.pass(time.Hour)
			},
			[]string{
				"1m0s end",
				"1m0s fail: its ranks have not met within 1m0s: MPI hangs in MPI_Init",
			},
		},
		"the first start hangs, and cannot be ended": {func(s *scene) {
			s.hangs, s.stays = true, true
			s.start()
			s.pass(time.Hour)
		}, []string{"1m0s end", "1m10s forget", "1m10s fail: its ranks have not met within 1m0s: " +
			"MPI hangs in MPI_Init, and it cannot be ended"}},
		"the first start fails": {func(s *scene) {
			s.hangs = true
			s.start()
			s.die("exit code 15")
			s.pass(time.Hour)
		}, []string{"0s fail: exit code 15"}},
		"a signal ends the first start": {func(s *scene) {
			s.hangs = true
			s.start()
			s.hangs = false
			s.step(Ended{How: "signal 10", Shot: true})
			s.pass(time.Minute)
		}, []string{"0s start"}},
		"the first start meets, and is never ready": {func(s *scene) {
			s.hangs = true
			s.start()
			s.step(Met{})
			s.answers = true
			s.pass(time.Hour)
		}, []string{"10m0s end", "10m0s fail: its ranks have met, but are not ready after 10m0s"}},
		"mpirun hangs without ranks": {func(s *scene) {
			s.hangs = true
			s.start()
			s.step(Ranks{false})
			s.pass(time.Hour)
		}, []string{"30s end", "30s fail: what starts its ranks hangs, and has none"}},
		"ranks end, and mpirun does not": {func(s *scene) {
			s.start()
			s.step(Ranks{true})
			s.pass(time.Second)
			s.step(Ranks{false})
			s.pass(time.Minute)
		}, []string{
			"31s end", "31s say: the cache ended (what starts its ranks hangs, and has none)" + again +
				"2 in 200ms", "31.2s start",
		}},
		"mpirun takes its time to start ranks": {func(s *scene) {
			s.hangs = true
			s.start()
			s.step(Ranks{false})
			s.pass(4 * time.Second)
			s.step(Ranks{true})
			s.pass(4 * time.Second)
			s.step(Ranks{false})
			s.pass(4 * time.Second)
			s.step(Ranks{true})
			s.step(Ready{})
			s.answers = true
			s.pass(time.Hour)
		}, nil},
		"a later start hangs": {func(s *scene) {
			s.start()
			s.hangs = true
			s.die("exit code 1")
			s.pass(70 * time.Second)
			s.hangs = false
			s.pass(time.Minute)
		}, []string{
			"0s say: the cache ended (exit code 1)" + again + "2 in 200ms", "200ms start",
			"1m0.2s end",
			"1m0.2s say: the cache ended (its ranks have not met within 1m0s: MPI hangs in " +
				"MPI_Init)" + again + "3 in 400ms", "1m0.6s start",
			"2m1s end",
			"2m1s say: the cache ended (its ranks have not met within 1m0s: MPI hangs in " +
				"MPI_Init)" + again + "4 in 800ms", "2m1.8s start",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene()
			c.scene(s)
			if got, want := strings.Join(s.said, "\n"), strings.Join(c.want, "\n"); got != want {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
		})
	}
}

// TestKeeperAlwaysGoesOn checks that after any events a cache that can be started serves in the
// end, unless its first start failed or it is over.
func TestKeeperAlwaysGoesOn(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := newScene()
		s.hangs = rapid.Bool().Draw(t, "hangs at first")
		s.start()
		for range rapid.IntRange(0, 30).Draw(t, "events") {
			switch rapid.IntRange(0, 6).Draw(t, "event") {
			case 0:
				s.hangs = rapid.Bool().Draw(t, "hangs")
			case 1:
				s.stays = rapid.Bool().Draw(t, "stays")
			case 2:
				s.silent[rapid.IntRange(0, 1).Draw(t, "who")] = true
			case 3:
				s.die("exit code 1")
			case 4:
				s.now += time.Duration(rapid.Int64Range(0, int64(10*time.Hour)).Draw(t, "stopped"))
			case 5:
				s.step(Ranks{rapid.Bool().Draw(t, "any")})
			case 6:
				s.pass(time.Duration(rapid.Int64Range(0, int64(5*time.Minute)).Draw(t, "passed")))
			}
		}
		failed := s.phase == failed
		s.hangs, s.stays = false, false
		s.step(Ranks{true})
		s.pass(15 * time.Minute)
		if failed = failed || s.phase == failedPhase; !failed && !s.Serving() {
			t.Fatalf("the cache is in phase %d in the end\n%s", s.phase, strings.Join(s.said, "\n"))
		}
	})
}

const failedPhase = failed
