package batchscript

import (
	"slices"
	"strings"
	"testing"
)

// head is the beginning of a correct script; the tests insert and append lines.
const head = "#!/bin/bash\n#SBATCH --time=10\n"

// TestCheck checks scripts with one mistake each, or none if check is "". line is the expected
// line, says a part of the message.
func TestCheck(t *testing.T) {
	run := "exec rankpool run --data d -- python t.py"
	runWith := func(flags string) string {
		return "exec rankpool run --data d " + flags + " -- python t.py"
	}
	requeue := runWith("--requeue --state s")
	serve := "srun --overlap --ntasks-per-node=1 --mpi=pmix rankpool run --data d -- t &"
	train := "srun --overlap rankpool join -- python t.py"
	for name, c := range map[string]struct {
		script string
		line   int
		check  string
		says   string
	}{
		"good":               {head + run + "\n", 0, "", ""},
		"good, two steps":    {head + serve + "\n" + train + "\n", 0, "", ""},
		"no rankpool at all": {head + "python t.py\n", 0, "", ""},
		"unclosed quote":     {head + "echo 'it\n" + run + "\n", 3, "syntax", "closing quote"},
		"no fi":              {head + "if a; then b\n" + run + "\n", 3, "syntax", "`fi`"},
		"not in bash":        {"#!/usr/bin/tcsh\n#SBATCH --time=10\nif ($x) then\nendif\n", 0, "", ""},
		"late": {
			head + "hostname\n#SBATCH --nodes=4\n" + run, 4, "directive", "--nodes=4 here",
		},
		"late after blank": {"#!/bin/bash\n\n# why\n#SBATCH --time=10\n" + run, 0, "", ""},
		"small letters":    {head + "#sbatch --nodes=4\n" + run, 3, "directive", "finds no option"},
		"indented":         {head + "  #SBATCH --nodes=4\n" + run, 3, "directive", "finds no option"},
		"glued":            {head + "#SBATCH--nodes=4\n" + run, 3, "directive", "finds no option"},
		"switched off":     {head + "##SBATCH --nodes=4\n# SBATCH --nodes=4\n" + run, 0, "", ""},
		"no dashes": {
			head + "#SBATCH nodes=4\n" + run, 3, "directive", "finds no option",
		},
		"option of a site": {head + "#SBATCH --beeond --tmpdir=x\n" + run, 0, "", ""},
		"trailing comment": {head + "#SBATCH --nodes=4 # --oops\n" + run, 0, "", ""},
		"variable in directive": {
			head + "#SBATCH --output=$HOME/%j.out\n" + run, 3, "directive", "does not replace",
		},
		"misspelt flag": {head + runWith("--memroy 3"), 3, "call", "unknown flag: --memroy"},
		"misspelt command": {
			head + "exec rankpool runn --data d -- python t.py", 3, "call", "no command runn",
		},
		"command by variable": {
			head + "rankpool $VERB x || exit\nmodule load rankpool || exit\n" + run, 0, "", "",
		},
		"no data set": {
			head + "exec rankpool run -- python t.py", 3, "call", "run has no --data",
		},
		"data among variables": {head + "exec rankpool run $FLAGS -- python t.py", 0, "", ""},
		"no command": {
			head + "exec rankpool run --data d", 3, "call", "no training command",
		},
		"nothing joins": {
			head + serve + "\nsrun --overlap rankpool join --", 4, "call", "no training command",
		},
		"help": {head + "rankpool run --help || exit\n" + run, 0, "", ""},
		"srun under run": {
			head + "exec rankpool run --data d -- srun python t.py", 3, "call", "begins with srun",
		},
		"no mpi": {head + "srun --overlap rankpool run --data d -- t &\n" + train, 3, "mpi", "no --mpi"},
		"mpi by variable": {
			head + "export SLURM_MPI_TYPE=pmix\nsrun --overlap rankpool run --data d -- t &\n" + train,
			0, "",
			"",
		},
		"wrong mpi": {
			head + "srun --overlap --mpi pmi2 rankpool run --data d -- t &\n" + train,
			3, "mpi", "does not fit",
		},
		"version of pmix": {
			head + "srun --overlap --mpi=pmix_v4 rankpool run --data d -- t &\n" + train, 0, "", "",
		},
		"four ranks a node": {
			head + "#SBATCH --ntasks-per-node=4\n" + strings.Replace(serve, "--ntasks-per-node=1 "+
				"", "", 1) + "\n" + train, 4, "mpi", "4 ranks on a node",
		},
		"eight tasks, two nodes": {
			head + "#SBATCH -N2 -n8\n" + strings.Replace(serve, "--ntasks-per-node=1 "+
				"", "", 1) + "\n" + train, 4, "mpi", "4 ranks on a node",
		},
		"one task a node": {
			head + "#SBATCH -N4 " +
				"--ntasks-per-node=2\n" + strings.Replace(serve, "--ntasks-per-node=1", "-N4 "+
				"-n4", 1) + "\n" + train, 0, "", "",
		},
		"nodes by variable": {
			head + "#SBATCH -N4 " +
				"--ntasks-per-node=4\n" + strings.Replace(serve, "--ntasks-per-node=1", "-N $SLURM_NNODES -n "+
				"\"${SLURM_JOB_NUM_NODES}\"", 1) + "\n" + train, 0, "", "",
		},
		"two a node, variable": {
			head + "#SBATCH -N4\n" + strings.Replace(serve, "--ntasks-per-node=1", "-N $SLURM_NNODES -n "+
				"8", 1) + "\n" + train, 4, "mpi", "2 ranks on a node",
		},
		"tasks not known": {
			head + "#SBATCH -N4 " +
				"--ntasks-per-node=4\n" + strings.Replace(serve, "--ntasks-per-node=1", "-N $N -n "+
				"4", 1) + "\n" + train, 0, "", "",
		},
		"joiners not known": {
			head + "#SBATCH --gpus-per-node=4\n" + serve + "\n" + strings.Replace(train, "srun", "srun -n "+
				"$N", 1), 0, "", "",
		},
		"run by tasks": {
			head + "srun --mpi=pmix -n 4 rankpool run --data d -- python t.py\n", 3, "mpi",
			"4 ranks on a node",
		},
		"one trainer": {
			head + "#SBATCH --gpus-per-node=4\n" + run, 4, "tasks",
			"one training process a node",
		},
		"one trainer, gres": {
			head + "#SBATCH --gres=gpu:a100:2,nvme:1\n" + run, 4, "tasks", "beside 2 GPUs",
		},
		"one trainer, all GPUs": {
			head + "#SBATCH -N2 -G 8\n" + run, 4, "tasks", "beside 4 GPUs",
		},
		"trainer a GPU": {
			head + "#SBATCH -c 8 --gpus-per-node=4 --ntasks-per-node=4\n" + run, 0, "", "",
		},
		"trainer a GPU, one CPU": {
			head + "#SBATCH --gpus-per-node=4 --ntasks-per-node=4\n" + run, 4, "tasks", "one CPU",
		},
		"tasks by GPU": {
			head + "#SBATCH -c 8 --gpus-per-node=4 --ntasks-per-gpu=1\n" + run, 0, "", "",
		},
		"tasks of all nodes": {head + "#SBATCH -N2 -n8 --gpus-per-task=1\n" + run, 0, "", ""},
		"shell decides": {
			head + "#SBATCH --gpus-per-node=4\nexec rankpool run --data d -- bash go.sh", 0, "", "",
		},
		"shared GPUs": {
			head + "#SBATCH --gpus-per-node=2 --ntasks-per-node=4\n" + run, 4, "tasks",
			"share 2 GPUs",
		},
		"torchrun a GPU": {
			head + "#SBATCH --gpus-per-node=4 --ntasks-per-node=4\nexec rankpool run --data d -- torchrun " +
				"t.py", 4, "tasks", "started 4 times",
		},
		"torchrun a node": {
			head + "#SBATCH --gpus-per-node=4\nexec rankpool run --data d -- python -m " +
				"torch.distributed.run --nproc_per_node=4 t.py", 0, "", "",
		},
		"torchrun in a shell": {
			head + "#SBATCH --gpus-per-node=4 --ntasks-per-node=4\nexec rankpool run --data d -- bash -e " +
				"-o pipefail -c 'cd x && exec torchrun t.py'", 4, "tasks",
			"torchrun starts all training processes of a node, and would be started 4 times",
		},
		"shell without torchrun": {
			head + "#SBATCH -c 8 -G 4 -n 4\nexec rankpool run --data d -- sh -c " +
				"'echo torchrun; python t.py'", 0, "", "",
		},
		"torchrun in a container": {
			head + "#SBATCH --gpus-per-node=4 --ntasks-per-node=4\nexec rankpool run --data d -- " +
				"apptainer exec --nv -B /a x.sif torchrun t.py", 4, "tasks", "started 4 times",
		},
		"accelerate as a module": {
			head + "#SBATCH --gpus-per-node=4 --ntasks-per-node=4\nexec rankpool run --data d -- python " +
				"-m accelerate.commands.launch t.py", 4, "tasks", "accelerate starts",
		},
		"deepspeed as a strategy": {
			head + "#SBATCH -c 8 -G 4 -n 4\nexec rankpool run --data d -- python " +
				"t.py --strategy deepspeed", 0, "", "",
		},
		"one for a strategy": {
			head + "#SBATCH --gpus-per-node=4\nexec rankpool run --data d -- python t.py --config " +
				"conf/accelerate", 4, "tasks", "one training process a node",
		},
		"torchrun, one process": {
			head + "#SBATCH --gpus-per-node=4\nexec rankpool run --data d -- torchrun t.py", 4,
			"tasks", "--nproc-per-node",
		},
		"torchrun under run": {
			head + "#SBATCH -N2\nexec rankpool run --data d -- torchrun t.py", 0, "", "",
		},
		"torchrun joins": {
			head + "#SBATCH -N2\n" + serve + "\nsrun --overlap rankpool join -- torchrun t.py", 0, "", "",
		},
		"one after the other": {
			head + "srun --mpi=pmix rankpool run --data d -- t &\nwait\nsrun rankpool join -- python t.py",
			0,
			"", "",
		},
		"too few joiners": {
			head + "#SBATCH --gpus-per-node=4\n" + serve + "\n" + train, 5, "tasks",
			"one training process",
		},
		"enough joiners": {
			head + "#SBATCH -c 8 -G 4\n" + serve + "\n" + strings.Replace(train, "srun", "srun -n "+
				"4", 1), 0, "", "",
		},
		"signal to the steps": {
			head + "#SBATCH --signal=USR1@60 --requeue --open-mode=append\n" + requeue, 0, "", "",
		},
		"signal ends the shell": {
			head + "#SBATCH --signal=B:USR1@60\n" + strings.TrimPrefix(run, "exec "), 3, "signal",
			"ends of it",
		},
		"signal ends training": {
			head + "#SBATCH --signal=B:10@60\nsrun python t.py", 3, "signal", "training with it",
		},
		"signal after exec":  {head + "#SBATCH --signal=B:USR1@60\n" + run, 0, "", ""},
		"signal of training": {head + "#SBATCH --signal=USR1@60\nsrun python t.py", 0, "", ""},
		"trap in the background": {
			head + "#SBATCH --signal=B:USR1@60\ntrap 'echo bye' SIGUSR1\nsrun python t.py &\nwait", 0, "",
			"",
		},
		"no signal to wait for": {
			head + "#SBATCH --requeue --open-mode=append\n" + requeue, 4, "signal", "asks for none",
		},
		"requeue": {
			head + "#SBATCH --requeue --open-mode=append --signal=B:USR1@60\n" + requeue, 0, "", "",
		},
		"no requeue": {head + "#SBATCH --requeue --no-requeue\n" + run, 0, "", ""},
		"too much memory": {
			head + "#SBATCH --mem=100G\n" + runWith("--memory 100GiB"), 4, "memory", "leaves nothing",
		},
		"enough memory":    {head + "#SBATCH --mem=120G\n" + runWith("--memory 100GiB"), 0, "", ""},
		"auto without mem": {head + runWith("--memory auto"), 3, "memory", "partition's default"},
		"auto with all":    {head + "#SBATCH --mem=0 -c 4\n" + runWith("--memory auto"), 0, "", ""},
		"auto on its own nodes": {
			head + "#SBATCH --exclusive\n" + runWith("--memory auto"), 4, "memory", "also with --exclusive",
		},
		"memory of CPUs of GPUs": {
			head + "#SBATCH --mem-per-cpu=4G --cpus-per-gpu=8 --gpus-per-node=4 " +
				"--ntasks-per-node=4\n" + runWith("--memory 64GiB"), 0, "", "",
		},
		"memory of all CPUs": {
			head + "#SBATCH --mem-per-cpu=4G --exclusive\n" + runWith("--memory 64GiB"), 0, "", "",
		},
		"no size": {
			head + "#SBATCH --mem=1G\n" + runWith("--memory 100Q"), 4, "memory", "refuses --memory",
		},
		"size by variable": {head + runWith("--memory ${M}Q"), 0, "", ""},
		"a share":          {head + runWith("--memory 20%"), 0, "", ""},
		"other components": {
			head + "#SBATCH --nodes=1\n#SBATCH hetjob\n#SBATCH --gpus-per-node=4\n" + run, 0, "", "",
		},
		"a blank after a backslash": {
			head + "rankpool run --data d \\ \n  -- python t.py\n", 3, "syntax", "followed by a blank",
		},
		"an escaped blank": {head + "tr -d \\ \n" + run, 0, "", ""},
		"directives of another script": {
			head + "sbatch <<X\n#!/bin/bash\n#SBATCH --time=5\nX\necho '\n#SBATCH -N 2\n'\n" + run,
			0, "", "",
		},
		"address of the batch script": {
			head + "exec rankpool run --data d -- torchrun --rdzv-endpoint $MASTER_ADDR:1 t.py", 3,
			"variable", "MASTER_ADDR is not set",
		},
		"address of training": {
			head + "exec rankpool run --data d -- sh -c 'exec torchrun --rdzv-endpoint $MASTER_ADDR:1 t.py'",
			0, "", "",
		},
		"own address": {
			head + "MASTER_ADDR=$(hostname)\nexec rankpool run --data d -- python t.py $MASTER_ADDR", 0, "",
			"",
		},
		"in a container": {
			head + "apptainer exec x.sif rankpool run --data d -- python t.py", 3, "call",
			"which a container does not have",
		},
		"in a container, one rank": {
			head + "apptainer exec x.sif rankpool run --ranks 1 --data d -- python t.py", 0, "", "",
		},
		"a container in the cache": {
			head + "rankpool run --data d -- apptainer exec x.sif python t.py", 0, "", "",
		},
		"staged on one node": {
			head + "#SBATCH -N2\nrankpool stage --data d\n" + run, 4, "mpi", "the first node alone",
		},
		"staged on all nodes": {
			head + "#SBATCH -N2\nsrun --mpi=pmix rankpool stage --data d\n" + run, 0, "", "",
		},
		"array, one output": {
			head + "#SBATCH --array=1-4 --output=out.txt\n" + run, 3, "directive", "--output=out.txt",
		},
		"array, many outputs": {head + "#SBATCH --array=1-4 --output=%A_%a.txt\n" + run, 0, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			script, err := Parse(c.script)
			if err != nil {
				t.Fatal(err)
			}
			warnings := Check(script, testFacts())
			if c.check == "" {
				if len(warnings) > 0 {
					t.Errorf("unexpected: %+v", warnings)
				}
				return
			}
			if len(warnings) != 1 || warnings[0].Line != c.line || warnings[0].Check != c.check ||
				!strings.Contains(warnings[0].What, c.says) {
				t.Errorf("want line %d, %s, %q: %+v", c.line, c.check, c.says, warnings)
			}
			tested.note(c.check)
		})
	}
	for _, check := range checks {
		name := check.name
		if !slices.Contains(tested, name) {
			t.Errorf("no script here fails the check %s", name)
		}
	}
}

// tested are the checks that gave a warning.
var tested notes

type notes []string

func (n *notes) note(name string) { *n = append(*n, name) }

// TestCheckWithoutMPI checks a script on a login node without an MPI library: the compute nodes'
// library is unknown.
func TestCheckWithoutMPI(t *testing.T) {
	facts := testFacts()
	facts.MPI = ""
	script, err := Parse(head + "#SBATCH -N2\nsrun --overlap rankpool run --data d -- t &\nsrun " +
		"--overlap rankpool join -- python t.py\n")
	if err != nil {
		t.Fatal(err)
	}
	if got := Check(script, facts); len(got) != 1 || !strings.Contains(got[0].What, "has no --mpi") {
		t.Errorf("%+v", got)
	}
}
