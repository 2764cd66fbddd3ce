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
	Hosts    string // of the job at its start, if it has lost some since; else ""
	Launch   string // the name of run's launch; "": serve was called by hand
	Together bool   // end with the other ranks
	World    int    // the ranks of run's launch

	Identities []string // NAME=DIGEST of the data sets that run began with
}

// RegisterServe adds the flags of serve.
func (o *Options) RegisterServe(flags *pflag.FlagSet) {
	o.Register(flags)
	o.MPI.Register(flags)
	flags.IntVar(&o.Trainers.PerRank, "trainers-per-rank", 0, "for --memory auto: training "+
		"processes a rank (default: the job's GPUs here, or 1)")
	flags.StringVar(&o.Session, "session", "",
		"folder of the run on this node; created if missing (default: by job, in /dev/shm)")
	flags.BoolVar(&o.Together, "end-together", false,
		"when asked to end, wait until all ranks were")
	flags.StringVar(&o.Launch, "launch", "", "the name of the launch, the same for all its ranks")
	flags.IntVar(&o.World, "world", 0, "how many ranks the launch has")
	flags.StringArrayVar(&o.Identities, "identity", nil,
		"NAME=DIGEST of a data set that the run began with")
	flags.StringVar(&o.Hosts, "hosts", "",
		"the nodes of the job at its start, if it has lost some: folders keep their numbers")
	for _, name := range []string{"end-together", "hosts", "identity", "launch", "world"} {
		_ = flags.MarkHidden(name) // cannot fail: the flags are defined above
	}
}
