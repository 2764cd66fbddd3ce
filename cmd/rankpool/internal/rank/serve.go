package rank

import "rankpool/cmd/rankpool/internal/world"

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
