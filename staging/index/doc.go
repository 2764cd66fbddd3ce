// Package index makes the manifests of data sets: it scans folders (Scan) and the shards in them,
// alone or with other ranks (Group), computes checksums (Checksums), and caches manifests (Open).
package index
