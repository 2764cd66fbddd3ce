package protocol

import (
	"slices"
	"strings"
	"testing"
)

func TestAssignOfASpecIsCompared(t *testing.T) {
	a := agreement{}
	spec := Spec{Data: "train", Sampler: "torch", BatchSize: 4, World: 2}
	for _, c := range []struct{ assign, want string }{
		{"sampler", ""},
		{"local", "the trainers disagree on data set train: trainer 0 has assign sampler, " +
			"trainer 1 has local"},
	} {
		spec.Assign = c.assign
		if _, err := a.open(spec, 0); (err == nil) != (c.want == "") ||
			err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", c.assign, err, c.want)
		}
		spec.Trainer++
	}
}

func TestMissingTrainersAreNamed(t *testing.T) {
	many := agreement{world: slices.Repeat([]int32{-1}, 12), missing: 12}
	want := "of 12 trainers (WORLD_SIZE) 12 have not come: RANK 0, 1, 2, 3, 4, 5, 6, 7, ..."
	if got := many.whoIsMissing(); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
