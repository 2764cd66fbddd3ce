package launch

import (
	"math"
	"testing"
)

func TestServedText(t *testing.T) {
	train := servedSet{"train", 60_000, 31 << 20}
	for _, tt := range []struct {
		sets []servedSet
		part float64
		want string
	}{
		{
			[]servedSet{train, {"test", 10_000, 5 << 20}},
			1.5,
			"serving train (60,000 samples, 31 MiB) and test (10,000); memory for all of them",
		},
		{
			[]servedSet{train, {"a", 1, 1}, {"b", 2, 1}},
			0.999,
			"serving train (60,000 samples, 31 MiB), a (1) and b (2); memory for 99 % of them",
		},
		{[]servedSet{{"one", 1, 5}}, 1, "serving one (1 sample, 5 B); memory for all of them"},
		{[]servedSet{train}, math.NaN(), "serving train (60,000 samples, 31 MiB)"},
	} {
		if got := servedText(tt.sets, tt.part); got != tt.want {
			t.Errorf("%q, want %q", got, tt.want)
		}
	}
}
