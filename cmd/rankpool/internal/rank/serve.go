package rank

import (
	"github.com/spf13/pflag"

	"rankpool/cmd/rankpool/internal/world"
)

// Options are the flags of serve.
type Options struct {
	CacheOptions
	MPI      world.MPIOptions
	Session  string
	Hosts    string // of the job when it began, where it has lost some since; else ""
	Launch   string // the name of run's launch; "": serve was called by hand
	Together bool   // end with the other ranks
	World    int    // the ranks of run's launch

	Identities []string // NAME=DIGEST of the data sets that run began with
}

// RegisterServe adds the flags of serve.
func (o *Options) RegisterServe(flags *pflag.FlagSet) {
	o.Register(flags)
	o.MPI.Register(flags)
	flags.IntVar(&o.Trainers.PerRank, "trainers-per-rank", 0, "for --memory auto: training processes a rank (default: the job's GPUs here; where it has none, 1)")
	flags.StringVar(&o.Session, "session", "", "folder of the run on this node; made if it is not there (default: by job, in /dev/shm)")
	flags.BoolVar(&o.Together, "end-together", false, "told to end, wait until all ranks were")
	flags.StringVar(&o.Launch, "launch", "", "what the ranks of one launch have in common")
	flags.IntVar(&o.World, "world", 0, "how many ranks the launch has")
	flags.StringArrayVar(&o.Identities, "identity", nil, "NAME=DIGEST of a data set that the run began with")
	flags.StringVar(&o.Hosts, "hosts", "", "the nodes that the job began with, where it has lost some: folders keep their numbers")
	for _, name := range []string{"end-together", "hosts", "identity", "launch", "world"} {
		_ = flags.MarkHidden(name) // it is there: the lines above
	}
}
