package world

import (
	"slices"
	"testing"
)

func TestWithoutLaunch(t *testing.T) {
	env := []string{
		"OMPI_MCA_btl=tcp,self", "PMI_RANK=1", "PMIX_RANK=1", "SLURM_PROCID=1",
		"MPIR_CVAR_X=1", "HOME=/",
	}
	if got, want := WithoutLaunch(env),
		[]string{
			"OMPI_MCA_btl=tcp,self", "SLURM_PROCID=1", "MPIR_CVAR_X=1",
			"HOME=/",
		}; !slices.Equal(got, want) {
		t.Errorf("withoutLaunch = %q, want %q", got, want)
	}
	if got, want := WithoutLaunch(append(env, "OMPI_COMM_WORLD_SIZE=2"), "SLURM_"),
		[]string{"MPIR_CVAR_X=1", "HOME=/"}; !slices.Equal(got, want) {
		t.Errorf("under mpirun: %q, want %q", got, want)
	}
}
