// Package staging indexes data sets and reads storage: it indexes a tree of files into a Manifest
// (Scan, Open), stores the index (WriteParquet, WriteIndex), and reads samples in order of need
// (Fetcher).
//
// A data set is a folder of class folders, as for torchvision's ImageFolder, or a folder of files
// without classes. A sample is a file, or a part of one. Its id is its row in the manifest, and
// does not change while the data set does not.
package staging
