package world

import (
	"testing"

	"rankpool/mpicache/transport/mpilib"
)

func TestSlurmMPI(t *testing.T) {
	const debian = "MPI plugin types are...\n\tnone\n\tpmi2\n\tpmix\n" +
		"specific pmix plugin versions available: pmix_v4\n"
	for _, c := range []struct {
		family     mpilib.Family
		list, want string
	}{
		{"", debian, "none"},
		{mpilib.OpenMPI, "", "pmix"},
		{mpilib.OpenMPI, debian, "pmix"},
		{mpilib.OpenMPI, "none pmix_v3 pmix_v4", "pmix_v4"},
		{mpilib.OpenMPI, "none pmi2", "pmi2"},
		{mpilib.MPICH, "", "pmi2"},
		{mpilib.MPICH, debian, "pmi2"},
		{mpilib.MPICH, "none, cray_shasta, pmix", "cray_shasta"},
		{mpilib.MPICH, "none, pmix", "pmix"},
		{mpilib.Other, debian, "pmix"},
	} {
		if got := SlurmMPI(c.family, c.list); got != c.want {
			t.Errorf("slurmMPI(%q, %q) = %q, want %q", c.family, c.list, got, c.want)
		}
	}
}
