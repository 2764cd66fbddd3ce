// Package entry is the entry point of the program, which runs before Go's runtime: the linker's
// flag -E selects it, see the Makefile.
//
// If "ulimit -v" leaves less address space than the runtime reserves, the runtime ends the process
// with a trace before the first line of Go runs. The few instructions here end it with a sentence
// instead. A program that is linked without -E lacks this.
package entry

// Least is the smallest address space in bytes in which a process can run. Go's runtime alone
// reserves 1.2 GiB, and below some 1.5 GiB it often ends the process itself.
//
// Source: measured, with Go 1.26, Open MPI 4.1 and MPICH 4.0: VmPeak of a rank without samples is
// 1.8 to 2.0 GiB.
const Least = 2 << 30

// What the instructions read: variables that the compiler initializes.
var (
	least uint64 = Least //nolint:unused // by the instructions

	//nolint:unused // by the instructions
	sentence = "rankpool: this shell limits a process to less than 2 GiB of address space " +
		"(ulimit -v), and it needs that much: use \"ulimit -v unlimited\", or limit what is in " +
		"memory by other means\n"
)
