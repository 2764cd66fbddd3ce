package rank

import (
	"log/slog"

	"github.com/spf13/pflag"

	"rankpool/cmd/internal/exit"
	"rankpool/cmd/rankpool/internal/memory"
	"rankpool/staging/sizes"
	"rankpool/staging/storage"
)

// StorageOptions are the flags about reading samples from storage.
type StorageOptions struct {
	MaxRate  string
	MaxOpens float64
}

// RegisterLimits registers the flags that apply to every reader of storage. A rank's share is an
// equal one, or all if it reads everything.
func (o *StorageOptions) RegisterLimits(flags *pflag.FlagSet) {
	flags.StringVar(&o.MaxRate, "max-storage-rate", "", "read at most this much per second from "+
		"storage, all ranks together: a size (10GB)")
	flags.Float64Var(&o.MaxOpens, "max-opens", 0,
		"open at most this many files per second on storage, all ranks together; 0: no limit")
}

// Check returns an error of wrong usage if a flag's value is not possible.
func (o *StorageOptions) Check() error {
	if _, err := o.Rate(); err != nil {
		return exit.Usagef("--max-storage-rate: %w", err)
	}
	if !(o.MaxOpens >= 0) {
		return exit.Usagef("--max-opens must be at least 0 files a second, not %v", o.MaxOpens)
	}
	return nil
}

// Rate returns --max-storage-rate in bytes a second; 0 is no limit. It also accepts "10GB/s".
func (o *StorageOptions) Rate() (int64, error) {
	if o.MaxRate == "" {
		return 0, nil
	}
	return sizes.Rate(o.MaxRate)
}

// limit returns one rank's share of the limits, for all its data sets together; nil if there are
// none.
func (o *StorageOptions) limit(ranks int) *storage.RateLimit {
	if bytes, opens := o.share(ranks); bytes > 0 || opens > 0 {
		return storage.NewRateLimit(bytes, opens)
	}
	return nil
}

// share returns one rank's share of the limits, bytes and opens a second; 0 is no limit.
func (o *StorageOptions) share(ranks int) (bytes, opens float64) {
	rate, _ := o.Rate() // checked before
	return float64(rate) / float64(ranks), o.MaxOpens / float64(ranks)
}

// writeLimits writes the share into the rank's folder, for trainers that read storage themselves
// when the rank is gone.
func (o *StorageOptions) writeLimits(folder string, ranks int) error {
	bytes, opens := o.share(ranks)
	if bytes == 0 && opens == 0 {
		return nil
	}
	return storage.WriteReadersLimit(folder, bytes, opens)
}

// logStorage logs with -v what a rank has read from storage so far.
func logStorage(log *slog.Logger, set string, s storage.Stats) {
	log.Debug("read from storage", "data", set, "samples", s.Reads,
		"bytes", memory.Text(s.StorageBytes), "opens", s.Opens, "coalesced", s.Coalesced,
		"retries", s.Retries, "stalls", s.Stalls, "errors", s.Errors, "concurrency", s.Concurrency)
}
