// Package keep keeps copies of a rank's samples on a disk of the node beyond the end of the job, so
// that the next job on the same data begins warm. The copies are soft state: every byte read is
// verified, and all may be lost at any time.
//
// The samples that a rank owns are divided into groups of consecutive ones, of 64 MiB where there
// are many (layout.go). A group is a file, in a folder of the user's own within a folder of the
// node (folder.go). A sample has its fixed place in the file, and nothing in the file says which
// samples are there. The tags do: a tag is a cryptographic digest of a sample as storage returned
// it. They are in a file of the user's, away from the copies, for all nodes (tags.go). A sample is
// read only if its tag is known, and used only if the bytes read match it (store.go). So there is
// nothing to repair after a crash: what was not written does not match its tag, costs a read of a
// hole, and is read from storage. Two jobs of a user may write the same file at once: they write
// the same bytes.
package keep
