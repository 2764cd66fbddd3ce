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
	Client       string `json:"client"` // its folder
	ClientError  string `json:"client_error"`
	CUDA         bool   `json:"cuda"`          // PyTorch sees a GPU
	CUDACompiled string `json:"cuda_compiled"` // the CUDA version that PyTorch was built with
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
	return judgePython(r, p, jobGPUs(env))
}

// jobGPUs returns the variable that gives this process GPUs, "" if there is none.
func jobGPUs(env *Env) string {
	gpus := slurm.DetectGPUs(env.Machine.LookupEnv)
	if gpus.Count <= 0 {
		return ""
	}
	return fmt.Sprintf("%s=%s", gpus.Source, env.getenv(gpus.Source))
}

const otherPython = "load the module or the environment that training uses, or name its Python " +
	"with --python"

// judgePython judges Python's report. gpus is the variable that gives the job its GPUs, "" if there
// are none.
func judgePython(r pythonReport, p Python, gpus string) []Finding {
	v := r.Version
	what := fmt.Sprintf("Python %d.%d.%d (%s)", v[0], v[1], v[2], r.Executable)
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
			otherPython)...)
	case gpus != "" && !r.CUDA:
		cuda := "with CUDA " + r.CUDACompiled
		if r.CUDACompiled == "" {
			cuda = "built without CUDA"
		}
		found = append(found, warning(fmt.Sprintf("the job has GPUs (%s), but PyTorch %s, %s, sees none",
			gpus, r.Torch, cuda), "see why: "+r.Executable+" -c 'import torch; torch.cuda.init()'; often "+
			"the driver is older than that CUDA, a container was started without its GPU option, or "+
			"--python is needed")...)
	}
	if len(found) > 0 {
		return found
	}
	client := "its own client"
	if p.Path == "" {
		client = "the client in " + r.Client
	}
	cuda := ", without a GPU"
	if r.CUDA { // ROCm sets this too
		cuda = ", with GPUs"
	}
	return good(fmt.Sprintf("%s, PyTorch %s%s; training uses %s", what, r.Torch, cuda, client))
}
