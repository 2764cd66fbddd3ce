// Package slowfs emulates slow storage: a FUSE file system that shows a folder, read-only, as a
// parallel file system would serve it.
//
// Each open, read, listed entry and lookup has a latency. Reads share the bandwidth of storage
// targets and of the whole, opens share a rate. Rules make accesses fail or stall. It counts what
// is read, by file too, so that a test can say "no sample was read twice".
//
// # The model
//
// A target, the whole, and the metadata server are pipes: they serve requests in the order in which
// these come, one after the other, at their rate, and save nothing up while idle. What comes out of
// a pipe takes the latency of its kind to arrive. A request is answered at that time, and requests
// wait side by side, so latency is hidden by requests in flight, and bandwidth by nothing:
//
//	answered = max(served by the whole, served by its targets) + latency + stall
//
// A file lies on the target that a hash of its path says, or in stripes over all targets from that
// one on. The [Engine] holds model, rules and counters; it is pure, in virtual time. [Mount] asks
// it for a FUSE file system, and package slowstorage for a storage.Storage.
//
// # Use
//
// As a program, with settings from a TOML file, from the command line, or both (see [Config] for
// the keys):
//
//	slowfs -config lustre.toml -set 'bandwidth = "200MB"' -set 'open_latency = "2ms"' \
//	    /data/imagenet /mnt/slow
//	cat /mnt/slow/.slowfs/stats
//
// In a test, [MountFor] mounts on a temporary folder and unmounts when the test ends. It needs
// /dev/fuse, and to be root or to have fusermount3 (Debian: fuse3).
//
// # What it can do
//
// Without limits it gives 64 threads that read files of 110 KB 970 MB/s, and one thread 440 MB/s,
// on two cores that it shares with them; set to 200 MB/s and 2 ms an open it gives 64 threads 199
// MB/s and takes half a core (two cores of an AMD EPYC, Linux 6.18, other programs beside it).
// Beyond that, latencies and rates are those of FUSE, not the ones that were set.
//
// # What it cannot do
//
// A process that waits for an answer cannot be killed until it comes or the file system is
// unmounted, as on a hung Lustre mount. The program must get its share of the processors; an answer
// is late when it does not.
package slowfs
