// Package tier keeps copies of samples on a disk of the node, below memory: soft state, of which
// every byte that is read back is checked, and that may be lost at any time.
//
// All samples are in one file, which is allocated whole at the start and has no name: so the disk
// cannot be full later, where the file system allocates at all; a rank that is killed leaves
// nothing; a read is one system call, without a path and without meta-data of the file system; and
// a place that fails costs the samples in it. A file a sample would need an open for every read,
// and could run out of space or of inodes at any write. The file is divided into blocks, and a
// sample takes whichever are free, in as few pieces as there are: so there is room as long as there
// are blocks, however long samples of different sizes come and go.
package tier
