package launch

import (
	"strings"
	"testing"
)

func TestIsAgent(t *testing.T) {
	for command, want := range map[string]bool{
		"torchrun --nproc_per_node 4 train.py":                 true,
		"/opt/venv/bin/torchrun train.py":                      true,
		"python3 -u -m torch.distributed.run train.py":         true,
		"/usr/bin/python3.11 -m torch.distributed.launch a.py": true,
		"python /opt/venv/bin/torchrun train.py":               true,
		"python train.py -m torch.distributed.run":             false,
		"python -u train.py torchrun":                          false,
		"python -m pytest torchrun":                            false,
		"python":                                               false,
		"apptainer exec x.sif torchrun train.py":               true,
		"deepspeed train.py":                                   false,
		"sh -c torchrun":                                       false,
	} {
		if got := isAgent(strings.Fields(command)); got != want {
			t.Errorf("%s: %v", command, got)
		}
	}
}
