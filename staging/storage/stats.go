package storage

// Stats counts what a Fetcher has done.
type Stats struct {
	Reads   int64 // samples read
	Bytes   int64 // their bytes
	Retries int64 // tries after a sample's first
	Errors  int64 // samples that could not be read

	StorageBytes int64 // bytes of samples that storage returned, each time that it did
	Opens        int64 // files opened
	Requests     int64 // to storage, completed
	Nanoseconds  int64 // their summed duration: divided by Requests, the mean latency
	Coalesced    int64 // samples that were read together with another one, without their own request
	Stalls       int64 // requests that took longer than stallAfter
	Concurrency  int   // the limit on requests at this moment
}

// ended counts a read of n bytes that has no further try.
func (s *Stats) ended(n int, failure *Failure) {
	if failure != nil {
		s.Errors++
		return
	}
	s.Reads++
	s.Bytes += int64(n)
}
