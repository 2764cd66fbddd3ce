package launchers

import (
	"strings"
	"testing"
)

func TestOf(t *testing.T) {
	for command, want := range map[string]string{
		"": "", "python": "", "python -m": "", "python -W": "", "env": "", "apptainer exec": "",
		"nice -n":                                                                          "",
		"torchrun --nproc_per_node 4 train.py":                                             "torchrun",
		"/opt/venv/bin/torchrun train.py":                                                  "torchrun",
		"python3 -u -m torch.distributed.run train.py":                                     "torchrun",
		"/usr/bin/python3.11 -m torch.distributed.launch a.py":                             "torchrun",
		"python -W ignore -X dev -um torch.distributed.run train.py":                       "torchrun",
		"python /opt/venv/bin/torchrun train.py":                                           "torchrun",
		"python x/torchrun.py":                                                             "torchrun",
		"accelerate launch --num_machines 2 train.py":                                      "accelerate",
		"accelerate-launch train.py":                                                       "accelerate",
		"python -m accelerate.commands.launch train.py":                                    "accelerate",
		"deepspeed --hostfile h train.py":                                                  "deepspeed",
		"horovodrun -np 4 python train.py":                                                 "horovodrun",
		"apptainer exec --nv --bind /a:/b -H /home image.sif torchrun train.py":            "torchrun",
		"singularity run --env=A=1 image.sif python -m torch.distributed.run train.py":     "torchrun",
		"shifter --image x deepspeed train.py":                                             "deepspeed",
		"env -u A OMP_NUM_THREADS=1 P=/x/y numactl -N 0 taskset -c 0-3 nice torchrun t.py": "torchrun",
		"conda run -n torch --no-capture-output torchrun train.py":                         "torchrun",

		"uv run torchrun train.py":                                            "torchrun",
		"uv run --with rich --extra cu128 -- torchrun train.py":               "torchrun",
		"uv --directory /x run -p 3.12 torchrun train.py":                     "torchrun",
		"timeout 3h torchrun train.py":                                        "torchrun",
		"timeout -s INT -k 60 3h torchrun train.py":                           "torchrun",
		"stdbuf -oL torchrun train.py":                                        "torchrun",
		"stdbuf -o L torchrun train.py":                                       "torchrun",
		"nsys profile -o x --trace=cuda torchrun train.py":                    "torchrun",
		"nsys profile --trace cuda -o x python -m torch.distributed.run t.py": "torchrun",
		"micromamba run -n x torchrun train.py":                               "torchrun",
		"mamba run -n deepspeed torchrun train.py":                            "torchrun",
		"poetry run torchrun train.py":                                        "torchrun",
		"pixi run -e gpu torchrun train.py":                                   "torchrun",
		"podman-hpc run --rm --gpu -v /a:/b image torchrun train.py":          "torchrun",
		"ch-run -w /var/tmp/image -- torchrun train.py":                       "torchrun",
		"enroot start --mount /a:/b image torchrun train.py":                  "torchrun",
		"perf stat -e cycles deepspeed train.py":                              "deepspeed",
		"strace -f -o x accelerate launch train.py":                           "accelerate",
		"our-wrapper --option value uv run torchrun train.py":                 "torchrun",

		"composer -n 4 train.py":                         "composer",
		"colossalai run --nproc_per_node 4 train.py":     "colossalai",
		"fabric run --devices 4 train.py":                "fabric",
		"lightning run model --devices 4 train.py":       "lightning",
		"tune run --nproc_per_node 4 full.py --config c": "tune",

		"accelerate config":                          "",
		"colossalai check -i":                        "",
		"tune download model":                        "",
		"lightning":                                  "",
		"uv run train.py torchrun":                   "",
		"uv pip install torchrun":                    "",
		"uv run --with deepspeed python train.py":    "",
		"micromamba run -n deepspeed python t.py":    "",
		"timeout 3h python train.py --by torchrun":   "",
		"./train.sh torchrun":                        "",
		"our-wrapper ./train.py torchrun":            "",
		"our-wrapper bash train.sh torchrun":         "",
		"pip install deepspeed torchrun":             "",
		"strace -f accelerate config":                "",
		"python train.py --strategy deepspeed":       "",
		"python train.py --config conf/accelerate":   "",
		"python train.py -m torch.distributed.run":   "",
		"python -u train.py torchrun":                "",
		"python -m pytest torchrun":                  "",
		"python -c torchrun":                         "",
		"python -m train -m torch.distributed.run":   "",
		"apptainer exec torchrun python train.py":    "",
		"apptainer inspect image.sif torchrun":       "",
		"conda env torchrun":                         "",
		"sh -c torchrun":                             "",
		"3.11 -m torch.distributed.run":              "",
		"pythonista -m torch.distributed.run":        "",
		"python -m horovod.torch":                    "",
		"env --chdir torchrun python train.py":       "",
		"/opt/deepspeed/bin/python train.py torch=1": "",
	} {
		if got := Of(strings.Fields(command)); got != want {
			t.Errorf("%s: %q, want %q", command, got, want)
		}
	}
}

func TestUnwrap(t *testing.T) {
	for command, want := range map[string]string{
		"python t.py":                  "python t.py",
		"exec env A=1 python t.py A=2": "python t.py A=2",
		"nice -- python t.py":          "python t.py",
		"apptainer build x":            "apptainer build x",
		"env A=1":                      "env A=1",
	} {
		if got := Unwrap(strings.Fields(command)); strings.Join(got, " ") != want {
			t.Errorf("%s: %q, want %q", command, got, want)
		}
	}
}

func TestStartsTasks(t *testing.T) {
	for program, want := range map[string]bool{
		"srun": true, "/usr/bin/mpirun": true, "salloc": true, "python": false, "torchrun": false,
	} {
		if got := StartsTasks(program); got != want {
			t.Errorf("%s: %v", program, got)
		}
	}
}
