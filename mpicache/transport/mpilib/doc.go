// Package mpilib decides which MPI library a process should load, and which mpirun belongs to one.
// It reads the environment and files, and runs mpirun --version; it loads nothing.
//
// The order of preference: the user's choice; the family of the launcher that started this process;
// the library of the mpirun in $PATH; what the loader finds. So "module load" decides, and a rank
// gets the library of the launcher that started it.
package mpilib
