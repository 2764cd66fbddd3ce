package memory

import (
	"os"

	"rankpool/slurm"
	"rankpool/staging/sizes"
)

// An Amount is how much memory the user gives to samples: bytes of each node, or a share of the
// data over all nodes.
type Amount struct {
	Bytes   int64   // of each node, if IsShare is false
	Share   float64 // of the data's bytes, in [0, 1]
	IsShare bool
}

// Parse reads a size as sizes.Parse does, or "20%", a share of the data.
func Parse(text string) (Amount, error) {
	if share, isShare, err := sizes.Share(text); isShare {
		return Amount{Share: share, IsShare: true}, err
	}
	bytes, err := sizes.Parse(text)
	return Amount{Bytes: bytes}, err
}

// Available returns the limit that leaves this process the least memory.
//
// The size of /dev/shm is not considered: the kernel does not bound a memfd by that mount's limit.
func Available() slurm.Memory { return slurm.ReadMemory(os.ReadFile, os.Getenv, 0) }
