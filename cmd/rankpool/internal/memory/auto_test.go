package memory

import (
	"testing"

	"pgregory.net/rapid"

	"rankpool/slurm"
)

func TestTrainersHere(t *testing.T) {
	for _, c := range []struct {
		perRank, ranksHere int
		env                map[string]string
		want               int
	}{
		{0, 1, nil, 1},
		{3, 2, nil, 6},
		{1, 1, map[string]string{"SLURM_GPUS_ON_NODE": "4"}, 4},
		{1, 1, map[string]string{"SLURM_GPUS_ON_NODE": "0", "SLURM_GPUS_PER_NODE": "a100:8"}, 8},
		{8, 1, map[string]string{"SLURM_GPUS_ON_NODE": "4"}, 8},
	} {
		env := func(name string) string { return c.env[name] }
		if got := (&Trainers{PerRank: c.perRank}).trainersHere(c.ranksHere, env); got != c.want {
			t.Errorf("%+v: %d trainers", c, got)
		}
	}
}

func TestMemoryAutoPlan(t *testing.T) {
	const gib = 1 << 30
	cgroup := func(limit, free int64) slurm.Memory {
		return slurm.Memory{
			LimitBytes: limit, FreeBytes: free,
			Limit: "the memory limit of control group /job_7",
		}
	}
	for _, c := range []struct {
		plan AutoPlan
		want string
		slab int64
	}{
		{
			AutoPlan{
				memory: cgroup(500*gib, 498*gib), Trainers: 4, eachBytes: 24 * gib,
				reserveBytes: 25 * gib, RanksHere: 1,
			},
			"498 GiB free of 500 GiB (the memory limit of control group /job_7), less 96 GiB for " +
				"4 trainers (24 GiB each, --tune trainer-memory), " +
				"less 25 GiB in reserve = 377 GiB for the cache",
			377 * gib,
		},
		{
			AutoPlan{
				memory: cgroup(100*gib, 100*gib), Trainers: 1, eachBytes: 8 * gib,
				estimated: true, reserveBytes: 5 * gib, RanksHere: 2,
			},
			"100 GiB free of 100 GiB (the memory limit of control group /job_7), less 8.0 GiB " +
				"for 1 trainer (an estimate, see --tune trainer-memory), " +
				"less 5.0 GiB in reserve, for 2 ranks = 44 GiB for the cache",
			43*gib + gib/2,
		},
		{
			AutoPlan{memory: cgroup(100*gib, 100*gib), Trainers: 1, sharedBytes: 20 * gib, RanksHere: 1},
			"100 GiB free of 100 GiB (the memory limit of control group /job_7), less 0 B for 1 " +
				"trainer (--tune trainer-memory), " +
				"less 0 B in reserve, and no more than /dev/shm holds (20 GiB) = 19 GiB for the " +
				"cache",
			19 * gib,
		},
		{
			AutoPlan{
				memory: cgroup(16*gib, 12*gib), Trainers: 1, eachBytes: 4 * gib,
				estimated: true, reserveBytes: gib, mostBytes: 6 * gib, RanksHere: 1,
			},
			"12 GiB free of 16 GiB (the memory limit of control group /job_7), less 4.0 GiB for 1 " +
				"trainer (an estimate, see --tune trainer-memory), less 1.0 GiB in reserve, and at " +
				"most half of what is free, outside a batch job = 6.0 GiB for the cache",
			6 * gib,
		},
		{
			AutoPlan{
				memory: cgroup(4*gib, 3*gib), Trainers: 4, eachBytes: gib,
				reserveBytes: gib / 2, RanksHere: 1,
			},
			"3.0 GiB free of 4.0 GiB (the memory limit of control group /job_7), less 4.0 GiB " +
				"for 4 trainers (1.0 GiB each, --tune trainer-memory), " +
				"less 512 MiB in reserve, leaves nothing for the cache",
			-gib - gib/2,
		},
	} {
		if got := c.plan.String(); got != c.want {
			t.Errorf("the plan says\n%s, want\n%s", got, c.want)
		}
		if got := c.plan.SlabBytes(); got != c.slab {
			t.Errorf("%s: the slab has %d bytes, want %d", c.want, got, c.slab)
		}
	}
}

// TestMemoryAutoFits checks that trainers, reserve and slabs fit into the free memory, and that
// without trainer-memory there is always a slab: in a batch job if half of the limit is free,
// otherwise always, of at most half of what is free.
func TestMemoryAutoFits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.Int64Range(1<<20, 1<<62).Draw(t, "limit")
		free := rapid.Int64Range(0, limit).Draw(t, "free")
		ranks := rapid.IntRange(1, 8).Draw(t, "ranks")
		o := Trainers{
			PerRank: rapid.IntRange(0, 16).Draw(t, "trainers"),
			Memory:  rapid.SampledFrom([]string{"", "0", "1GiB", "7EiB"}).Draw(t, "memory"),
		}
		job := rapid.SampledFrom([]string{"", "4711"}).Draw(t, "job")
		p, err := NewAutoPlan(o, slurm.Memory{LimitBytes: limit, FreeBytes: free, Limit: "a test"},
			ranks, func(name string) string { return map[string]string{"SLURM_JOB_ID": job}[name] })
		if err != nil {
			t.Fatal(err)
		}
		slab := p.SlabBytes()
		if slab > 0 && slab*int64(ranks)+int64(p.Trainers)*p.eachBytes+p.reserveBytes > free {
			t.Fatalf("%s: more than %d", p, free)
		}
		if job == "" && free > 1 && slab > free/2 {
			t.Fatalf("%s: more than half", p)
		}
		enough := free > limit/2+limit/1000 || job == "" && free > 1<<10
		if o.Memory == "" && enough && slab < 1 && p.sharedBytes > 1<<10 {
			t.Fatalf("%s: no slab", p)
		}
	})
}
