// Package entry is where the program begins, before Go's runtime does: the linker is told so (-E, see the Makefile).
//
// Where "ulimit -v" leaves less address space than the runtime reserves, it ends the process with a trace before
// the first line of Go runs. The few instructions here end it with a sentence. A program that is linked without -E does without.
package entry

// Least is how many bytes of address space a process needs at the least. Go's runtime alone reserves 1.2 GiB, and below
// some 1.5 GiB it often ends the process itself.
//
// Source: measured, with Go 1.26, Open MPI 4.1 and MPICH 4.0: VmPeak of a rank without samples is 1.8 to 2.0 GiB.
const Least = 2 << 30

// What the instructions read: variables that the compiler initializes.
var (
	least uint64 = Least //nolint:unused // by the instructions

	sentence = "rankpool: this shell limits a process to less than 2 GiB of address space (ulimit -v), and it " + //nolint:unused // by the instructions
		"needs that much: say \"ulimit -v unlimited\", or limit what is in memory by other means\n"
)
