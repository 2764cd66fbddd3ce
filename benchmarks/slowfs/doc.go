// Package slowfs emulates slow storage: a FUSE file system that shows a folder, read-only, as a
// parallel file system would serve it.
//
// Each open, read, listed entry and lookup has a latency. Reads share the bandwidth of storage
// targets and of the whole, opens share a rate. Rules make accesses fail or stall. It counts what
// is read, by file too, so that a test can check that no sample was read twice.
//
// # The model
//
// A target, the whole, and the metadata server are pipes: they serve requests in order, one at a
// time, at their rate, and save no capacity while idle. A reply then takes the latency of its kind
// to arrive. Latencies of several requests overlap, so more requests in flight hide latency;
// nothing hides bandwidth:
//
//	answered = max(served by the whole, served by its targets) + latency + stall
//
// A hash of its path chooses the target of a file, or the first target of a striped one. The
// [Engine] holds model, rules and counters; it is pure, in virtual time. [Mount] makes a FUSE file
// system from it.
//
// # Use
//
// As a program, with settings from a TOML file, from the command line, or both (see [Config] for
// the keys):
//
//	rankpool-lab slowfs --config lustre.toml --set 'bandwidth = "200MB"' \
//	    --set 'open_latency = "2ms"' /data/imagenet /mnt/slow
//	cat /mnt/slow/.slowfs/stats
//
// It needs /dev/fuse, and to be root or to have fusermount3 (Debian: fuse3).
//
// # What it can do
//
// Without limits, 64 threads read files of 110 KB at 970 MB/s, and one thread at 440 MB/s, on two
// cores that they share with it; limited to 200 MB/s and 2 ms per open, 64 threads read 199 MB/s,
// and it uses half a core (two cores of an AMD EPYC, Linux 6.18, other programs beside it).
// Beyond that, FUSE limits latencies and rates.
//
// # What it cannot do
//
// A process that waits for a reply cannot be killed before the reply or an unmount, as on a hung
// Lustre mount. Replies are late if the program does not get its share of the processors.
package slowfs
