#include "textflag.h"

// The kernel has put the arguments on the stack, and Go's runtime finds them there.
TEXT rankpool_entry(SB), NOSPLIT|NOFRAME|TOPFRAME, $0
	SUBQ $16, SP
	MOVL $97, AX // getrlimit
	MOVL $9, DI // RLIMIT_AS
	MOVQ SP, SI
	SYSCALL
	TESTQ AX, AX
	JNE  begin
	MOVQ 0(SP), AX // the soft limit
	CMPQ AX, ·least(SB)
	JCC  begin
	MOVL $1, AX // write
	MOVL $2, DI
	MOVQ ·sentence(SB), SI
	MOVQ ·sentence+8(SB), DX
	SYSCALL
	MOVL $231, AX // exit_group
	MOVL $1, DI
	SYSCALL

begin:
	ADDQ $16, SP
	JMP  _rt0_amd64_linux(SB)
