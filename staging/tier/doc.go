// Package tier keeps copies of samples on a disk of the node, below memory. They are soft state:
// every byte read is verified, and all may be lost at any time.
//
// All samples are in one file, which is allocated in full at the start and has no name. So the disk
// cannot fill up later, if the file system supports allocation; a rank that is killed leaves
// nothing; a read is one system call, without a path or file system metadata; and a bad place costs
// only the samples in it. A file per sample would need an open for every read, and could run out of
// space or inodes at any write. The file is divided into blocks, and a sample uses free ones in as
// few pieces as possible: so there is room as long as there are blocks, however long samples of
// different sizes come and go.
package tier
