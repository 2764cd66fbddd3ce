// Package index makes the manifests of data sets: it scans folders (Scan) and the shards in them,
// alone or with other ranks (Group), keeps what it has found for a run that was interrupted
// (Journal), computes checksums (Checksums), and keeps manifests for the next time (Open).
package index
