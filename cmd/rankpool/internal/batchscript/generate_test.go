package batchscript

import (
	"bytes"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

var update = flag.Bool("update", false, "write the golden scripts anew")

// goldenOptions are the scripts of ../../testdata/sbatch, by name.
var goldenOptions = map[string]Options{
	"plain": {
		Nodes: 4, GPUsPerNode: 4, CPUsPerTask: 8, Data: []string{"/lustre/datasets/imagenet"},
		Memory: "auto", Mem: "0",
		Time: "04:00:00", Modules: []string{"openmpi", "rankpool"},
		Command: []string{"python", "train.py"},
	},
	"requeue": {
		Nodes: 2, GPUsPerNode: 4, CPUsPerTask: 16,
		Data:   []string{"train=/lustre/train", "val=/lustre/val.parquet"},
		Memory: "200GiB", Mem: "480G", Time: "1-00:00:00", Requeue: true, SignalSeconds: 120,
		Partition: "gpu", Account: "ab0123",
		JobName: "my training", Modules: []string{"openmpi/4.1.4", "rankpool"},
		Command: []string{"python", "train.py", "--name", "it's a \"test\" of $HOME", "--empty", ""},
	},
	"torchrun": {
		Nodes: 4, GPUsPerNode: 4, CPUsPerTask: 32, Data: []string{"/lustre/imagenet"}, Memory: "auto",
		Mem: "0", Time: "600",
		Command: []string{"torchrun", "--nproc-per-node", "4", "train.py", "--lr", "0.1"},
	},
	"array": {
		Nodes: 1, CPUsPerTask: 4, Data: []string{"images"}, Memory: "20%", Mem: "16G", Time: "30",
		Array:   "0-9%2",
		Command: []string{"sh", "-c", "exec python train.py --seed \"$SLURM_ARRAY_TASK_ID\""},
	},
	"array_requeue": {
		Nodes: 1, GPUsPerNode: 1, Data: []string{"images"}, Memory: "auto", Mem: "32G", Time: "30",
		Array: "1,3", Requeue: true,
		SignalSeconds: 90, Command: []string{"python", "-u", "train.py"},
	},
}

// TestGenerate checks that generated scripts equal those that a person has read, that bash parses
// them, and that Check has no warnings.
func TestGenerate(t *testing.T) {
	for name, options := range goldenOptions {
		t.Run(name, func(t *testing.T) {
			got, err := Generate(options)
			if err != nil {
				t.Fatal(err)
			}
			golden := filepath.Join("..", "..", "testdata", "sbatch", name+".sh")
			if *update {
				if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if got != string(want) {
				t.Errorf("the script is not %s (go test -update, and read it):\n%s", golden, got)
			}
			if out, err := exec.Command("bash", "-n", golden).CombinedOutput(); err != nil {
				t.Errorf("bash does not take it: %v\n%s", err, out)
			}
			script, err := Parse(got)
			if err != nil {
				t.Fatal(err)
			}
			if warnings := Check(script, testFacts()); len(warnings) > 0 {
				t.Errorf("warnings of our own script: %+v", warnings)
			}
		})
	}
}

// TestDocumentation compares docs/slurm.md with what this package does.
func TestDocumentation(t *testing.T) {
	text, err := os.ReadFile("../../../../docs/slurm.md")
	if err != nil {
		t.Fatal(err)
	}
	options := goldenOptions["plain"]
	options.Data, options.Requeue, options.SignalSeconds = []string{"/lustre/imagenet"}, true, 120
	script, err := Generate(options)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), script) {
		t.Errorf("docs/slurm.md does not show the script of today:\n%s", script)
	}
	for _, check := range checks {
		name := check.name
		if !strings.Contains(string(text), "`"+name+"`") {
			t.Errorf("docs/slurm.md does not name the check %s", name)
		}
	}
}

// TestDocumentedScripts checks that the scripts in the documentation have no warnings.
func TestDocumentedScripts(t *testing.T) {
	blocks := regexp.MustCompile("(?ms)^```[a-z]*\n(.*?)^```")
	for _, name := range []string{"README.md", "docs/slurm.md"} {
		text, err := os.ReadFile(filepath.Join("..", "..", "..", "..", name))
		if err != nil {
			t.Fatal(err)
		}
		found := 0
		for _, block := range blocks.FindAllStringSubmatch(string(text), -1) {
			code := block[1]
			if !strings.Contains(code, "#SBATCH") && !strings.Contains(code, "srun --overlap") {
				continue
			}
			found++
			if !strings.HasPrefix(code, "#!") {
				code = head + "#SBATCH --nodes=4 --ntasks-per-node=4 --mem=400G\n" + code
			}
			script, err := Parse(code)
			if err != nil {
				t.Fatal(err)
			}
			if warnings := Check(script, testFacts()); len(warnings) > 0 {
				t.Errorf("%s: warnings of\n%s\n%+v", name, code, warnings)
			}
		}
		if found == 0 {
			t.Errorf("%s shows no script", name)
		}
	}
}

// TestTasks checks the tasks per node that Generate requests.
func TestTasks(t *testing.T) {
	for command, want := range map[string]string{
		"python train.py --strategy deepspeed": "--ntasks-per-node=4 --gpus-per-node=a100:4",
		"python conf/accelerate":               "--ntasks-per-node=4 --gpus-per-node=a100:4",
		"python -m torch.distributed.run t.py": "--ntasks-per-node=1",
		"apptainer exec x.sif torchrun t.py":   "--ntasks-per-node=1",
	} {
		o := goldenOptions["plain"]
		o.GPUType, o.Command = "a100", strings.Fields(command)
		script, err := Generate(o)
		if err != nil || !strings.Contains(script, want) {
			t.Errorf("%s: %v, want %s:\n%s", command, err, want, script)
		}
	}
	o := goldenOptions["plain"]
	o.Command = []string{"sh", "-c", "exec torchrun --rdzv-endpoint $MASTER_ADDR t.py"}
	if script, err := Generate(o); err != nil ||
		!strings.Contains(script, "# One task a node: torchrun starts") {
		t.Errorf("%v:\n%s", err, script)
	}
}

func TestGenerateRefuses(t *testing.T) {
	good := goldenOptions["requeue"]
	for name, spoil := range map[string]func(*Options){
		"nodes":     func(o *Options) { o.Nodes = 0 },
		"GPUs":      func(o *Options) { o.GPUsPerNode = -1 },
		"CPU":       func(o *Options) { o.CPUsPerTask = -1 },
		"data set":  func(o *Options) { o.Data = nil },
		"training":  func(o *Options) { o.Command = nil },
		"signal":    func(o *Options) { o.SignalSeconds = 0 },
		"cannot":    func(o *Options) { o.JobName = "a\n#SBATCH --exclusive" },
		"forever":   func(o *Options) { o.Time, o.SignalSeconds = "10", 540 },
		"zero byte": func(o *Options) { o.Command = []string{"a\x00"} },
	} {
		o := good
		spoil(&o)
		if _, err := Generate(o); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: the error is %v", name, err)
		}
	}
}

// wordOf draws a word of characters that are special to a shell.
func wordOf() *rapid.Generator[string] {
	return rapid.StringOf(rapid.OneOf(rapid.RuneFrom([]rune("ab -$`'\"\\\n;&|<>(){}*?#!~=\t")),
		rapid.RuneFrom([]rune("é✓"))))
}

// TestWordsArrive draws training commands and generates scripts for them: both Parse and bash must
// see each command as it was given.
func TestWordsArrive(t *testing.T) {
	dir := t.TempDir()
	show := "#!/bin/sh\nprintf '%s\\0' \"$@\" >" + filepath.Join(dir, "words") + "\n"
	if err := os.WriteFile(filepath.Join(dir, "rankpool"), []byte(show), 0o755); err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(t *rapid.T) {
		command := append([]string{"python"}, rapid.SliceOfN(wordOf(), 0, 4).Draw(t, "words")...)
		data := wordOf().Draw(t, "data")
		text, err := Generate(Options{
			Nodes: 1, Data: []string{data}, Memory: "auto", Mem: "0",
			Time: "10", Command: command,
		})
		if err != nil {
			t.Fatal(err)
		}
		script, err := Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		step := findSteps(script.commands, testFacts())[0]
		if !slices.Equal(step.training(), command) || step.flag("data") != data {
			t.Fatalf("Parse sees %q of %q", step.training(), command)
		}
		bash := exec.Command("bash", "-s")
		bash.Stdin = strings.NewReader(text)
		bash.Env = []string{"PATH=" + dir + ":/usr/bin:/bin", "SLURM_JOB_ID=1"}
		if out, err := bash.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		words, err := os.ReadFile(filepath.Join(dir, "words"))
		if err != nil {
			t.Fatal(err)
		}
		seen := strings.Split(string(bytes.TrimSuffix(words, []byte{0})), "\x00")
		want := append([]string{"run", "--data", data, "--memory", "auto", "--log", "run-1.jsonl", "--"},
			command...)
		if !slices.Equal(seen, want) {
			t.Fatalf("bash sees %q, want %q", seen, want)
		}
	})
}
