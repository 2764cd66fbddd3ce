package doctor

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"

	"rankpool/slurm"
)

// probe prints one JSON object about the Python that runs it.
//
//go:embed probe.py
var probe string

// oldestPython is the client's requires-python.
var oldestPython = [2]int{3, 9}

// A pythonReport is the output of probe.py. An empty error means that there is none.
type pythonReport struct {
	Version      [3]int `json:"version"`
	Executable   string `json:"executable"`
	Torch        string `json:"torch"`
	TorchError   string `json:"torch_error"`
	Distributed  bool   `json:"distributed"`
	Client       string `json:"client"` // its folder
	ClientError  string `json:"client_error"`
	CUDA         bool   `json:"cuda"`          // PyTorch sees a GPU
	CUDACompiled string `json:"cuda_compiled"` // the CUDA version that PyTorch was built with
}

func (r pythonReport) version() string {
	return fmt.Sprintf("%d.%d.%d", r.Version[0], r.Version[1], r.Version[2])
}

// checkPython starts training's Python, imports what training imports, and reports which client it
// finds.
func checkPython(env *Env) []Finding {
	p := env.Python
	if p.Failure != nil {
		return bad(p.Failure.Error(), "name a folder that can be written to with --runtime-dir")
	}
	if _, err := env.Machine.LookPath(p.Command); err != nil {
		judge := warning
		if p.Given {
			judge = bad
		}
		return judge(fmt.Sprintf("%s not found: %v", p.Command, err),
			"name the Python of training with --python, or load its module first")
	}
	var vars []string
	if p.Path != "" {
		path := p.Path
		if more := env.getenv("PYTHONPATH"); more != "" {
			path += string(os.PathListSeparator) + more
		}
		vars = []string{"PYTHONPATH=" + path}
	}
	text, err := env.Machine.Output(pythonPatience, vars, p.Command, "-c", probe)
	var r pythonReport
	// modules may print something when they are imported
	at := strings.LastIndex(strings.TrimSpace(text), "\n") + 1
	if malformed := json.Unmarshal([]byte(strings.TrimSpace(text)[at:]), &r); malformed != nil {
		if err == nil {
			err = fmt.Errorf("it printed %.80q", text)
		}
		return bad(fmt.Sprintf("%s does not run: %v", p.Command, err),
			"run it by hand on this node: "+p.Command+" -c 'import torch'")
	}
	_, gpus := jobGPUs(env)
	found := judgePython(r, p, gpus)
	found[0].Facts = map[string]string{"Python": r.version(), "PyTorch": r.Torch}
	return found
}

// jobGPUs returns this process's GPUs according to the environment, and the variable; "" if there
// is none.
func jobGPUs(env *Env) (job slurm.GPUs, given string) {
	job = slurm.DetectGPUs(env.Machine.LookupEnv)
	if job.Count > 0 {
		given = fmt.Sprintf("%s=%s", job.Source, env.getenv(job.Source))
	}
	return job, given
}

// judgePython judges Python's report. gpus is the variable that gives the job its GPUs, "" if there
// are none.
func judgePython(r pythonReport, p Python, gpus string) []Finding {
	what := fmt.Sprintf("Python %s (%s)", r.version(), r.Executable)
	var found []Finding
	switch {
	case slices.Compare(r.Version[:2], oldestPython[:]) < 0:
		found = append(found, bad(fmt.Sprintf("%s is older than %d.%d", what, oldestPython[0],
			oldestPython[1]), "name a newer one with --python")...)
	case r.ClientError != "":
		found = append(found, bad(fmt.Sprintf("%s cannot import rankpool: %s", what, r.ClientError),
			"unset RANKPOOL_PYTHON, so that rankpool hands out its own client, or install the package")...)
	}
	switch {
	case r.TorchError != "":
		found = append(found, warning(fmt.Sprintf("%s cannot import torch: %s", what, r.TorchError),
			"load the module or the environment that training uses, or name its Python with --python")...)
	case !r.Distributed:
		found = append(found, warning(fmt.Sprintf("PyTorch %s has no torch.distributed, so each trainer "+
			"would be alone", r.Torch), "install a PyTorch that was built with it")...)
	case gpus != "" && !r.CUDA:
		found = append(found, blind(r, gpus)...)
	}
	if len(found) > 0 {
		return found
	}
	client := "its own client"
	if p.Path == "" {
		client = "the client in " + r.Client
	}
	cuda := ", without CUDA"
	switch {
	case r.CUDACompiled != "" && r.CUDA:
		cuda = ", CUDA " + r.CUDACompiled
	case r.CUDACompiled != "":
		cuda = ", CUDA " + r.CUDACompiled + " and no GPU"
	case r.CUDA: // ROCm sets this too
		cuda = ", with GPUs"
	}
	return good(fmt.Sprintf("%s, PyTorch %s%s; training uses %s", what, r.Torch, cuda, client))
}

// blind is the finding for a PyTorch that does not see the job's GPUs: training would run on the
// CPUs, or fail.
func blind(r pythonReport, gpus string) []Finding {
	if r.CUDACompiled == "" {
		return warning(fmt.Sprintf("the job has GPUs (%s), but PyTorch %s of %s was built without CUDA, "+
			"or for others", gpus, r.Torch, r.Executable),
			"load the module or the environment that training uses, or name its Python with --python")
	}
	return warning(fmt.Sprintf("the job has GPUs (%s), but PyTorch %s with CUDA %s sees none", gpus,
		r.Torch, r.CUDACompiled),
		"see why: "+r.Executable+" -c 'import torch; torch.cuda.init()'; often the driver is older than "+
			"that CUDA, or a container was started without its GPU option")
}
