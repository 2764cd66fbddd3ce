// Package storage reads samples from storage: a Fetcher reads them in order of need, with as many
// requests at once as increase throughput, within limits on bytes and opened files, and checks what
// it has read.
package storage
