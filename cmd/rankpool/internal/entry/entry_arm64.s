#include "textflag.h"

// The kernel has put the arguments on the stack, and Go's runtime finds them there.
TEXT rankpool_entry(SB), NOSPLIT|NOFRAME|TOPFRAME, $0
	SUB  $16, RSP
	MOVD $0, R0
	MOVD $9, R1 // RLIMIT_AS
	MOVD $0, R2
	MOVD RSP, R3
	MOVD $261, R8 // prlimit64
	SVC
	CBNZ R0, begin
	MOVD 0(RSP), R4 // the soft limit
	MOVD ·least(SB), R5
	CMP  R5, R4
	BHS  begin
	MOVD $2, R0
	MOVD ·sentence(SB), R1
	MOVD ·sentence+8(SB), R2
	MOVD $64, R8 // write
	SVC
	MOVD $1, R0
	MOVD $94, R8 // exit_group
	SVC

begin:
	ADD $16, RSP
	JMP _rt0_arm64_linux(SB)
