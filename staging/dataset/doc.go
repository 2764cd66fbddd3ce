// Package dataset describes data sets: a Manifest names each sample's place, size, label and
// modification time, is stored as a Parquet file (WriteParquet) or as an index that all processes
// of a node map (WriteIndex), and is compared with another one (Compare, Identity).
//
// A data set is a folder of class folders, as for torchvision's ImageFolder, or a folder of files
// without classes. A sample is a file, or a part of one. Its id is its row in the manifest, and
// does not change while the data set does not.
package dataset
