package mpi

import "encoding/binary"

// abi is the part of mpi.h that differs between libraries. A handle is as wide as handleBytes;
// narrow ones are the low bits of a word, which is little-endian on every machine that we build
// for.
type abi struct {
	name        string
	handleBytes int
	statusBytes int
	sourceAt    int // offset of MPI_SOURCE in a status
	errorAt     int // offset of MPI_ERROR in a status

	anySource, tagUpperBound, errInStatus int32
	serialized, multiple                  int32 // MPI_THREAD_…

	world, self, byteType, errorsReturn, requestNull uintptr // handles
}

// Constants of every ABI.
const (
	success   = 0
	undefined = -32766
	maxText   = 8192 // the longest version text of any ABI, and longer than any error's
)

// mpichABI is the ABI of MPICH since 3.1, shared by Intel MPI, MVAPICH, ParaStation MPI and Cray
// MPICH.
//
// Source: mpi.h of MPICH 4.0; the MPICH ABI Compatibility Initiative, https://www.mpich.org/abi/.
var mpichABI = abi{
	name: "MPICH", handleBytes: 4, statusBytes: 20, sourceAt: 8, errorAt: 16,
	anySource: -2, tagUpperBound: 0x64400001, errInStatus: 17, serialized: 2, multiple: 3,
	world: 0x44000000, self: 0x44000001, byteType: 0x4c00010d,
	errorsReturn: 0x54000001, requestNull: 0x2c000000,
}

// openMPI lacks the handles: they are addresses of the library's variables.
//
// Source: mpi.h of Open MPI 4.1.
var openMPI = abi{
	name: "Open MPI", handleBytes: 8, statusBytes: 24, sourceAt: 0, errorAt: 8,
	anySource: -1, tagUpperBound: 0, errInStatus: 18, serialized: 2, multiple: 3,
}

// standardABI is version 1 of the ABI that MPI 5 defines.
//
// Source: MPI Forum, MPI 5.0, chapter 20, and mpi.h of https://github.com/mpi-forum/mpi-abi-stubs
// 1.0.0.
var standardABI = abi{
	name: "MPI 5", handleBytes: 8, statusBytes: 32, sourceAt: 0, errorAt: 8,
	anySource: -1, tagUpperBound: 501, errInStatus: 19, serialized: 2048, multiple: 4096,
	world: 0x101, self: 0x102, byteType: 0x247, errorsReturn: 0x143, requestNull: 0x180,
}

// putHandle writes a handle to a place of an array of handles.
func (a *abi) putHandle(array []byte, place int, handle uint64) {
	if a.handleBytes == 4 {
		binary.LittleEndian.PutUint32(array[4*place:], uint32(handle))
		return
	}
	binary.LittleEndian.PutUint64(array[8*place:], handle)
}

// status returns the bytes of a status in an array of statuses.
func (a *abi) status(array []byte, place int) []byte {
	return array[place*a.statusBytes : (place+1)*a.statusBytes]
}

// source returns MPI_SOURCE of a status.
func (a *abi) source(status []byte) int {
	return int(int32(binary.LittleEndian.Uint32(status[a.sourceAt:])))
}

// code returns MPI_ERROR of a status.
func (a *abi) code(status []byte) int32 {
	return int32(binary.LittleEndian.Uint32(status[a.errorAt:]))
}
