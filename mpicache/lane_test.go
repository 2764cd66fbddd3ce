package mpicache

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"rankpool/mpicache/door"
	"rankpool/mpicache/message"
	"rankpool/mpicache/stats"
	"rankpool/mpicache/training"
	"rankpool/scheduler/protocol"
	"rankpool/scheduler/systems"
)

// newJob returns the trainers of another training on a crew's ranks. They have not connected yet.
func (c *crew) newJob(job string, seed int64, world, globalBatch int) *crew {
	d := &crew{
		t: c.t, cluster: c.cluster, ranks: c.ranks, batch: globalBatch / world, edit: c.edit,
		at: map[place]func(){}, told: make([][]toldReport, world),
	}
	for r := range world {
		d.trainers = append(d.trainers, &trainer{
			rank: r, world: world, job: job, seed: seed,
			training: protocol.Training{Life: uint64(1000*seed + int64(r))},
		})
	}
	return d
}

// leave ends the trainers' connections.
func (c *crew) leave() {
	for _, tr := range c.trainers {
		tr.close()
	}
}

// alone returns what a job draws on ranks of its own.
func alone(t *testing.T, job string, seed int64, world, globalBatch, epochs int) []string {
	t.Helper()
	c := newCrew(t, 1, 1, 6, nil)
	d := c.newJob(job, seed, world, globalBatch)
	d.connect()
	defer d.leave()
	if err := d.train(place{}, place{epochs, 0}); err != nil {
		t.Fatal(err)
	}
	return d.stream
}

// TestJobsDrawAsAlone runs three trainings on one cache, with other seeds, batch sizes and worlds.
// One begins in the middle of another's epoch, one ends before the others, and the ranks are
// killed meanwhile. Each draws what it draws alone.
func TestJobsDrawAsAlone(t *testing.T) {
	want := map[string][]string{
		"a": alone(t, "a", 5, 2, 12, 3), "b": alone(t, "b", 6, 1, 8, 3),
		"c": alone(t, "c", 7, 4, 24, 1),
	}
	for _, ranks := range []int{1, 2, 4} {
		for _, kill := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d ranks, kill %v", ranks, kill), func(t *testing.T) {
				unnamed := newCrew(t, ranks, 1, 6, nil)
				a := unnamed.newJob("a", 5, 2, 12)
				b := unnamed.newJob("b", 6, 1, 8)
				c := unnamed.newJob("c", 7, 4, 24)
				a.connect()
				train := func(c *crew, from, to place) {
					t.Helper()
					if err := c.train(from, to); err != nil {
						t.Fatalf("job %q: %v", c.trainers[0].job, err)
					}
				}
				a.at[place{0, 7}] = func() { // b begins in the middle of a's epoch
					b.connect()
					train(b, place{}, place{1, 0})
				}
				a.at[place{1, 3}] = func() {
					c.connect()
					train(c, place{}, place{1, 0})
					c.leave()
				}
				a.at[place{1, 9}] = func() {
					if kill {
						a.restart(unnamed, a, b)
					}
				}
				a.at[place{1, 12}] = func() { train(b, place{1, 0}, place{2, 0}) }
				train(unnamed, place{}, place{0, 9})
				train(a, place{}, place{3, 0})
				train(b, place{2, 0}, place{3, 0})
				for _, d := range []*crew{a, b, c} {
					job := d.trainers[0].job
					if !slices.Equal(d.stream, want[job]) {
						t.Errorf("job %s draws other samples beside others", job)
					}
				}
				a.leave()
				b.leave()
			})
		}
	}
}

// TestJobsShare checks that what one training has read is a hit of another's, and that each has
// counts of its own in the run log.
func TestJobsShare(t *testing.T) {
	c := newCrew(t, 2, 2, 12, func(cfg *Config) {
		patient(cfg)
		cfg.SlabBytes, cfg.Data[0].PartitionBytes = 1<<21, []int64{1 << 20, 1 << 20}
	})
	if err := c.train(place{}, place{1, 0}); err != nil {
		t.Fatal(err)
	}
	d := c.newJob("d", 3, 2, 12)
	d.connect()
	if err := d.train(place{}, place{1, 0}); err != nil {
		t.Fatal(err)
	}
	checkJobsOf(t, c.cluster.nodes)
	d.leave()
	c.leave()
	c.cluster.close()
	storage := c.cluster.storage
	storage.mu.Lock()
	defer storage.mu.Unlock()
	for id, n := range storage.reads {
		if n != 1 {
			t.Errorf("sample %d was read %d times", id, n)
		}
	}
	var jobs []string
	for _, r := range c.cluster.records {
		if e, is := r.(stats.Epoch); is {
			jobs = append(jobs, e.Job)
			if e.Draws() != crewSamples || e.Job == "d" && e.Hits() < crewSamples/2 {
				t.Errorf("job %q: %+v", e.Job, e)
			}
		}
	}
	if slices.Sort(jobs); !slices.Equal(jobs, []string{"", "d"}) {
		t.Errorf("the run log has epochs of jobs %q", jobs)
	}
	c.cluster = newCluster(t, 1, 4, 100) // for the clean-up to close
}

// checkJobsOf checks that each rank reports what each training was given, and that this adds up to
// what it gave to all.
func checkJobsOf(t *testing.T, nodes []*Node) {
	t.Helper()
	for rank, n := range nodes {
		st := n.Stats()
		var sum stats.Sums
		var names []string
		for i := range st.Jobs {
			sum.Add(st.Jobs[i].Sums)
			names = append(names, st.Jobs[i].Name)
		}
		if all := st.Sums; !slices.Equal(names, []string{"", "d"}) || sum.Draws() == 0 ||
			sum.Draws() != all.Draws() || sum.Hits() != all.Hits() {
			t.Errorf("rank %d: trainings %q have %v draws and %v hits of %v and %v", rank, names,
				sum.Draws(), sum.Hits(), all.Draws(), all.Hits())
		}
	}
}

// TestJobsAreRefused checks the errors for invalid jobs.
func TestJobsAreRefused(t *testing.T) {
	cl := newCluster(t, 1, 60, 1000)
	defer cl.close()
	spec := protocol.Spec{Data: "train", Sampler: "torch", Seed: 1, BatchSize: 6, World: 1}
	for _, name := range []string{"a b", "../x", "-a", ".a", strings.Repeat("a", 65), "ä"} {
		spec.Job = name
		refused(t, openSpec(stranger(t, cl.dirs[0], 0, 1), spec), "a job name must be 1 to 64 letters")
	}
	client := stranger(t, cl.dirs[0], 0, 1)
	spec.Job = sameNumber[0]
	if err := openSpec(client, spec); err != nil {
		t.Fatal(err)
	}
	spec.Job = sameNumber[1]
	refused(t, openSpec(client, spec), "job job-59600 has the number of job job-16564")
	for i := range training.MaxJobs - 1 {
		spec.Job = fmt.Sprint("job", i)
		if err := openSpec(stranger(t, cl.dirs[0], 0, 1), spec); err != nil {
			t.Fatal(err)
		}
	}
	spec.Job = "one"
	refused(t, openSpec(stranger(t, cl.dirs[0], 0, 1), spec), "one more is too many")
	spec.Job, spec.Identity = "job3", "another"
	refused(t, openSpec(stranger(t, cl.dirs[0], 0, 1), spec), "is not the one that trainer 0 trains")
	spec.Job, spec.Identity = "new", "another"
	refused(t, openSpec(stranger(t, cl.dirs[0], 0, 1), spec), "is not the one that trainer 0 trains")
	set := cl.nodes[0].rank.Sets[0]
	set.Store().Locked(func() {
		if set.Find("new") != nil {
			t.Error("a training on another version of the data set is kept")
		}
	})
	spec.Identity = ""
	spec.Job, spec.Seed = "job3", 2
	refused(t, openSpec(stranger(t, cl.dirs[0], 0, 1), spec), "is being trained on with seed 1")
}

// TestSystemsServeSeveralTrainings runs two trainings beside each other under each system that is
// run live, and kills the ranks once. Each is served what it is served on a cache of its own.
func TestSystemsServeSeveralTrainings(t *testing.T) {
	for _, system := range systems.All() {
		if system.Simulated != "" {
			continue
		}
		for _, ranks := range []int{1, 2} {
			t.Run(fmt.Sprintf("%s, %d ranks", system.Name, ranks), func(t *testing.T) {
				t.Parallel()
				alone := append(beside(t, &system, ranks, 3), beside(t, &system, ranks, 7)...)
				for i, stream := range beside(t, &system, ranks, 3, 7) {
					if !slices.Equal(stream, alone[i]) || len(stream) == 0 {
						t.Errorf("training %d is served other samples beside another", i)
					}
				}
			})
		}
	}
}

// beside trains on ranks that run a system: one training without a name, or several beside each
// other, each with its seed. It returns what each is served.
func beside(t *testing.T, system *systems.System, ranks int, seeds ...int64) [][]string {
	t.Helper()
	const epochs = 5
	c := &crew{t: t, ranks: ranks, edit: func(cfg *Config) {
		cfg.System, cfg.Scorer, cfg.Policy = system.Name, system.Scorer, system.Policy
		cfg.Data[0].BookBytes = 3000 * int64(ranks)
		if system.Chooses() {
			cfg.Policy = "clairvoyant"
		}
		if system.Name == "impact" {
			cfg.Options = systems.Values{"max_warm_up_epochs": 2}
		}
	}}
	c.cluster = newCluster(t, ranks, crewSamples, 3000, c.edit)
	defer func() { c.cluster.close() }()
	var all []*crew
	var streams [][]string
	for i, seed := range seeds {
		job := ""
		if len(seeds) > 1 {
			job = fmt.Sprint("training-", i)
		}
		d := c.newJob(job, seed, ranks, 12)
		d.sampler = system.LiveSampler()
		for _, tr := range d.trainers {
			tr.epochs = epochs
		}
		d.connect()
		defer d.leave()
		all = append(all, d)
	}
	train := func(from, to place) {
		t.Helper()
		var group sync.WaitGroup
		for _, d := range all {
			group.Go(func() {
				if err := d.train(from, to); err != nil {
					t.Error(err)
				}
			})
		}
		group.Wait()
	}
	train(place{}, place{2, 7})
	if len(all) > 1 {
		c.restart(all...)
		c.cluster = all[0].cluster
	}
	train(place{2, 7}, place{epochs, 0})
	for lane, d := range all {
		st := c.sets()[0].Store()
		st.Locked(func() {
			if p := st.Plan(lane, epochs-1); len(all) > 1 && p.Home != nil {
				t.Error("one of several trainings decides where samples are")
			}
		})
		streams = append(streams, d.stream)
	}
	return streams
}

// TestJobsComeAndGo opens a hundred jobs, one after the other, and lets each end when its processes
// are gone: its name is free for another training, and nothing of it is left but samples that
// nobody else wants.
func TestJobsComeAndGo(t *testing.T) {
	c := newCrew(t, 2, 2, 12, func(cfg *Config) { cfg.JobIdle = time.Nanosecond })
	sets := c.sets()
	if err := c.train(place{}, place{0, 3}); err != nil {
		t.Fatal(err)
	}
	given, descriptors := 0.0, 0
	for i := range 100 {
		d := c.newJob("again", int64(10+i), 2, 12)
		d.connect()
		if err := d.train(place{}, place{0, 2}); err != nil {
			t.Fatal(err)
		}
		d.leave()
		var over []<-chan struct{}
		for _, s := range sets {
			s.Store().Locked(func() { over = append(over, leave(s.Find("again"))) })
		}
		for _, ended := range over {
			<-ended
		}
		st := c.cluster.nodes[0].Stats()
		if sums := st.Sums; sums.Draws() <= given || st.Jobs != nil {
			t.Errorf("after %d trainings a rank has given %v samples, and %v before; jobs %v", i+1,
				sums.Draws(), given, st.Jobs)
		} else {
			given = sums.Draws()
		}
		if i == 10 { // what grows with the first ones, such as the buffers of the garbage collector
			descriptors = openFiles(t)
		}
	}
	const slack = 8 // connections that are being closed
	if now := openFiles(t); now > descriptors+slack {
		t.Errorf("%d descriptors are open after 100 trainings, and %d after the first", now,
			descriptors)
	}
	for rank, s := range sets {
		checkNothingWaits(t, rank, s)
	}
	if err := c.train(place{0, 3}, place{2, 0}); err != nil {
		t.Fatal(err)
	}
	c.leave()
	checkMemory(t, c.cluster.nodes[0])
}

// checkMemory checks that the memory of a rank that nobody uses any more holds samples only.
func checkMemory(t *testing.T, n *Node) {
	t.Helper()
	s := n.rank.Sets[0].Store()
	s.Locked(func() {
		if _, used := n.memory.Size(); used != s.UsedBytes() {
			t.Errorf("%d bytes of memory are used, by samples %d", used, s.UsedBytes())
		}
	})
}

// checkNothingWaits checks that nothing is left of trainings that have ended.
func checkNothingWaits(t *testing.T, rank int, set *training.Set) {
	t.Helper()
	set.Store().Locked(func() {
		gets, _ := set.Pending()
		if questions := set.Store().Questions(); gets+questions > 0 {
			t.Errorf("rank %d: %d GETs, %d questions are left", rank, gets, questions)
		}
	})
}

// sets returns the trainings of each rank.
func (c *crew) sets() (sets []*training.Set) {
	for _, n := range c.cluster.nodes {
		sets = append(sets, n.rank.Sets[0])
	}
	return sets
}

// leave makes a rank believe that the processes of a training, which are this one, are gone. The
// channel that it returns is closed when the training has ended.
func leave(l *training.Training) <-chan struct{} {
	for _, st := range l.Seats() {
		st.Started = 0
	}
	return l.Over()
}

// TestJobThatHangs stops a training in the middle of an epoch, with batches in its hands and others
// requested, and never continues it. The other draws what it draws alone; when the first is killed,
// nothing of it is left.
func TestJobThatHangs(t *testing.T) {
	want := alone(t, "a", 5, 2, 12, 4)
	c := newCrew(t, 2, 1, 6, func(cfg *Config) { cfg.JobIdle = time.Nanosecond })
	a, hangs := c.newJob("a", 5, 2, 12), c.newJob("hangs", 6, 2, 12)
	a.connect()
	hangs.connect()
	if err := hangs.train(place{}, place{0, 4}); err != nil {
		t.Fatal(err)
	}
	for _, tr := range hangs.trainers {
		if _, _, _, err := tr.get(0, 4); err != nil { // the lease stays
			t.Fatal(err)
		}
		if err := tr.Send(door.KindGet, tr.tally.Append(u32s(tr.stream, 0, 5, 0))); err != nil {
			t.Fatal(err) // nobody reads the reply
		}
	}
	if err := a.train(place{}, place{4, 0}); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(a.stream, want) {
		t.Error("job a draws other samples beside one that hangs")
	}
	var over []<-chan struct{}
	sets := c.sets()
	for _, s := range sets {
		s.Store().Locked(func() {
			over = append(over, leave(s.Find("a")), leave(s.Find("hangs")))
		})
	}
	hangs.leave()
	a.leave()
	for _, ended := range over {
		<-ended
	}
	c.leave()
	for rank, s := range sets {
		checkMemory(t, c.cluster.nodes[rank])
		checkNothingWaits(t, rank, s)
		if n := len(c.cluster.nodes[rank].rank.All()); n != 1 {
			t.Errorf("rank %d has %d trainings", rank, n)
		}
	}
}

// TestJobOpenedWhileItEnds opens a training on rank 1 while rank 0 ends the one of that name, and
// rank 1 does not know yet: its message to rank 0 about the old training does not reach the new
// one. Both draw what they draw alone.
func TestJobOpenedWhileItEnds(t *testing.T) {
	want := alone(t, "x", 7, 2, 12, 2)
	c := newCrew(t, 3, 1, 6, func(cfg *Config) { cfg.JobIdle = time.Hour })
	sets := c.sets()
	first := c.newJob("x", 7, 2, 12)
	first.connect()
	if err := first.train(place{}, place{1, 3}); err != nil {
		t.Fatal(err)
	}
	first.leave()
	var old []*training.Training
	for _, s := range sets {
		s.Store().Locked(func() {
			old = append(old, s.Find("x"))
			leave(s.Find("x"))
		})
	}
	sets[0].Store().Locked(old[0].End) // and the message to the other ranks is on its way

	next := c.newJob("x", 7, 2, 12)
	for r, tr := range next.trainers {
		tr.training.Life = uint64(900 + r)
	}
	hasty, err := c.cluster.trainer(1, 2)
	if err != nil {
		t.Fatal(err)
	}
	hasty.job, hasty.seed, hasty.training = "x", 7, next.trainers[1].training
	if err := hasty.open("pads", 6); err != nil {
		t.Fatal(err)
	}
	asked := hasty.planBeside()
	for waits := false; !waits; time.Sleep(time.Millisecond) {
		sets[1].Store().Locked(func() { waits = old[1].Coordinator().Waiting() > 0 })
	}
	root, handled := c.cluster.nodes[0].cfg.Transport, make(chan struct{})
	root.Put(0, 0, nil, func(error) {})
	root.Take(0, 0, nil, func(error) { close(handled) })
	<-handled // what rank 1 has sent before
	sets[0].Store().Locked(func() {
		if sets[0].Find("x") != nil {
			t.Error("rank 0 has a training of what rank 1 has told it of the one that has ended")
		}
	})
	const isOver = 2
	told := append(old[0].About().Begin(message.Idle), isOver)
	for r := 1; r < 3; r++ {
		c.cluster.nodes[0].cfg.Transport.Post(r, told)
	}
	for r := 1; r < 3; r++ {
		<-old[r].Over()
	}
	if err := <-asked; err == nil {
		t.Error("a trainer has a plan of a training that has ended")
	}
	hasty.close()
	next.connect()
	if err := next.train(place{}, place{2, 0}); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(next.stream, want) || !slices.Equal(first.stream, want[:len(first.stream)]) {
		t.Error("a training draws other samples than alone")
	}
	for r, s := range sets {
		s.Store().Locked(func() {
			if l := s.Find("x"); l == nil || l == old[r] || l.About().Generation != 1 {
				t.Errorf("rank %d serves %+v under the name", r, l)
			}
		})
	}
	next.leave()
	c.leave()
}

// openFiles returns the number of this process's descriptors.
func openFiles(t *testing.T) int {
	t.Helper()
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(open)
}

// sameNumber are names whose trainings have the same number at the door.
var sameNumber = []string{"job-16564", "job-59600"}

// TestJobsOfAllRanksAreServed checks that a rank serves the trainings that another one has
// admitted, even if it would admit none itself, and trainings whose names have the same number.
func TestJobsOfAllRanksAreServed(t *testing.T) {
	c := newCrew(t, 2, 1, 12, nil)
	set := c.cluster.nodes[1].rank.Sets[0]
	set.Store().Locked(func() {
		for i := range training.MaxJobs {
			if _, err := set.Join(fmt.Sprint("job", i)); err != nil {
				t.Fatal(err)
			}
		}
	})
	for i, job := range sameNumber {
		d := c.newJob(job, int64(i), 1, 12)
		d.connect()
		defer d.leave()
		if err := d.train(place{}, place{1, 0}); err != nil {
			t.Errorf("job %s: %v", job, err)
		}
	}
}
