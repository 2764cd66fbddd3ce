package launch

import (
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"rankpool/cmd/internal/exit"
	"rankpool/cmd/rankpool/internal/world"
	"rankpool/slurm"
)

func TestTrainingEnv(t *testing.T) {
	for _, c := range []struct {
		env      []string
		training int
		of       int
		want     map[string]string
	}{
		{nil, 1, 2, map[string]string{
			"RANKPOOL_TRAINING": "1", "RANKPOOL_JOB": "training-1", "CUDA_VISIBLE_DEVICES": "",
		}},
		{[]string{"RANKPOOL_JOB=folds"}, 0, 2, map[string]string{"RANKPOOL_JOB": "folds-0"}},
		{[]string{"CUDA_VISIBLE_DEVICES=4,5,6,7"}, 1, 2, map[string]string{
			"CUDA_VISIBLE_DEVICES": "6,7",
		}},
		{[]string{"CUDA_VISIBLE_DEVICES=GPU-a,GPU-b,GPU-c"}, 1, 2, map[string]string{
			"CUDA_VISIBLE_DEVICES": "GPU-b",
		}},
		// fewer GPUs than trainings: they share all
		{[]string{"CUDA_VISIBLE_DEVICES=0"}, 1, 2, map[string]string{"CUDA_VISIBLE_DEVICES": "0"}},
	} {
		get := world.Lookup(ownGPUs(trainingEnv(c.env, c.training, c.of)))
		for name, want := range c.want {
			if got := get(name); got != want {
				t.Errorf("%v, training %d of %d: %s=%q, want %q", c.env, c.training, c.of, name,
					got, want)
			}
		}
	}
}

// TestLocalTrainings checks that each training has all ranks, numbers and a port of its own.
func TestLocalTrainings(t *testing.T) {
	o := testOptions()
	o.ranks, o.trainersPerRank, o.trainings = 1, 2, 3
	l, err := o.localLayout("/s", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	var ranks, trainings []string
	ports := map[string]bool{}
	for _, c := range l.trainers {
		get := world.Lookup(c.env)
		ranks = append(ranks, get("RANK")+"/"+get("WORLD_SIZE"))
		trainings = append(trainings, get("RANKPOOL_TRAINING"))
		ports[get("MASTER_PORT")] = true
		if c.among != 3 || c.stdin != nil {
			t.Errorf("a trainer among %d, stdin %v", c.among, c.stdin)
		}
	}
	if want := []string{"0/2", "1/2", "0/2", "1/2", "0/2", "1/2"}; !slices.Equal(ranks, want) {
		t.Errorf("ranks %v, want %v", ranks, want)
	}
	if want := []string{"0", "0", "1", "1", "2", "2"}; !slices.Equal(trainings, want) {
		t.Errorf("trainings %v, want %v", trainings, want)
	}
	if len(ports) != 3 {
		t.Errorf("ports %v", ports)
	}
}

// TestSlurmTrainings checks that each training is a step with a name and a port of its own.
func TestSlurmTrainings(t *testing.T) {
	o := testOptions()
	o.trainings = 3
	job := slurm.Job{JobID: "7", Nodes: 2, NodeID: 0, NodeList: "n[1-2]"}
	l := o.slurmLayout(job, "/s", []string{"MASTER_PORT=1", "CUDA_VISIBLE_DEVICES=0"})
	if len(l.trainers) != 3 {
		t.Fatalf("%d steps", len(l.trainers))
	}
	ports := map[string]bool{}
	for i, c := range l.trainers {
		get, number := world.Lookup(c.env), strconv.Itoa(i)
		want := "join --session /s --job training-" + number + " -- python train.py"
		if words := strings.Join(c.args, " "); !strings.HasSuffix(words, want) ||
			get("RANKPOOL_TRAINING") != number || c.training != i || c.among != 3 {
			t.Errorf("step %d: %s, RANKPOOL_TRAINING=%s", i, words, get("RANKPOOL_TRAINING"))
		}
		ports[get("MASTER_PORT")] = true
	}
	if len(ports) != 3 || ports["1"] {
		t.Errorf("ports %v", ports)
	}
}

func TestTrainingsAreRefused(t *testing.T) {
	two := Options{trainings: 2}
	if err := two.checkTrainings(formTask); err == nil || exit.Code(err) != 2 ||
		!strings.Contains(err.Error(), "call it in the batch script, without srun") {
		t.Error(err)
	}
	for _, f := range []form{formLocal, formSlurm} {
		if err := two.checkTrainings(f); err != nil {
			t.Errorf("form %d: %v", f, err)
		}
	}
}

func TestPrefixed(t *testing.T) {
	long := strings.Repeat("x", maxLine)
	for _, c := range []struct {
		written []string
		want    string
	}{
		{[]string{"a\nb\n"}, "[7] a\n[7] b\n"},
		{[]string{"a", "b\nc"}, "[7] ab\n[7] c\n"},
		{[]string{"10 %\r20 %\r\n\nend"}, "[7] 10 %\n[7] 20 %\n[7] \n[7] end\n"},
		{[]string{long, "y\n"}, "[7] " + long + "\n[7] y\n"},
		{nil, ""},
	} {
		var out strings.Builder
		p := &prefixed{to: &out, mu: new(sync.Mutex), prefix: "[7] "}
		for _, text := range c.written {
			if n, err := p.Write([]byte(text)); n != len(text) || err != nil {
				t.Errorf("%d bytes are written of %d, %v", n, len(text), err)
			}
		}
		p.end()
		if out.String() != c.want {
			t.Errorf("%.40q gives %.60q, want %.60q", c.written, out.String(), c.want)
		}
	}
}
