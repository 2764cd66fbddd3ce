// Package mpilib says which MPI library a process should load, and which mpirun belongs to one. It
// looks at the environment and at files; it loads nothing.
//
// The order: what the user says; what the launcher that started this process implies; what mpirun
// in $PATH belongs to; what the loader finds. So "module load" decides, and a rank gets the library
// of the launcher that started it.
package mpilib
