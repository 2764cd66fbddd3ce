// Package nopfs is the performance simulator of the NoPFS paper: the machine, the data sets and the
// policies of its section 6, in times of its performance model (section 4).
//
// Workers read samples, and train in step: a batch begins when every worker has ended the one
// before. Time is computed sample by sample; it uses no losses and no measurements.
//
// Sources: Dryden, Böhringer, Ben-Nun and Hoefler, "Clairvoyant Prefetching for Distributed Machine
// Learning I/O", SC 2021 ("the paper"); Böhringer, "Clairvoyant Prefetching for Machine Learning
// I/O", master's thesis, ETH Zürich ("the thesis"), which describes the same simulator in section
// 4.1, and has tables of its results in section 5.2. The simulator itself is not published.
package nopfs
