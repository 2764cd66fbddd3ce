// Package staging knows data sets and reads storage: it indexes a tree of files into a Manifest
// (Scan, Open), keeps the index (WriteParquet, WriteIndex), and reads samples in the order in which
// they are needed (Fetcher).
//
// A data set is a folder of class folders, as torchvision's ImageFolder has it, or a folder of
// files without classes. A sample is a file, or a part of one. Its id is its row in the manifest,
// and never changes while the data set does not.
package staging
