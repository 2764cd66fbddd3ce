package draw

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

// ulps is how many representable numbers lie between a and b, of the same sign.
func ulps(a, b float64) int64 {
	d := int64(math.Float64bits(a)) - int64(math.Float64bits(b))
	return max(d, -d)
}

func TestLn(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x := rapid.Float64Range(0x1p-1022, math.MaxFloat64).Draw(t, "x")
		if got, want := Ln(x), math.Log(x); ulps(got, want) > 1 {
			t.Fatalf("ln(%v) = %v, math.Log gives %v", x, got, want)
		}
	})
	stream := newSource(0, forClock).epoch(0)
	for id := range SampleID(200_000) {
		u := uniform(stream.bits(id, 0))
		if got, want := Ln(u), math.Log(u); ulps(got, want) > 1 {
			t.Fatalf("ln(%v) = %v, math.Log gives %v", u, got, want)
		}
	}
}

// TestLnGolden pins the bits of the logarithm; on an architecture with fused products it fails if
// one slips in.
func TestLnGolden(t *testing.T) {
	if Ln(1) != 0 {
		t.Errorf("ln(1) = %v", Ln(1))
	}
	var sum uint64
	stream := newSource(0, forClock).epoch(0)
	for id := range SampleID(100_000) {
		sum = mix(sum ^ math.Float64bits(exponential(stream.bits(id, 0))))
	}
	if want := uint64(0xf63ae22024a6c996); sum != want {
		t.Errorf("the bits of 100,000 clocks hash to %#016x, want %#016x", sum, want)
	}
}

func TestUniformRange(t *testing.T) {
	tests := []struct {
		bits uint64
		want float64
	}{
		{0, 0x1p-53},
		{math.MaxUint64, 1 - 0x1p-53},
		{1 << 63, 0.5 + 0x1p-53},
	}
	for _, tt := range tests {
		if got := uniform(tt.bits); got != tt.want {
			t.Errorf("uniform(%#x) = %v, want %v", tt.bits, got, tt.want)
		}
		if got := exponential(tt.bits); !(got > 0 && got < 37) {
			t.Errorf("exponential(%#x) = %v", tt.bits, got)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		h := rapid.Uint64().Draw(t, "h")
		if u := uniform(h); uniform(^h) != 1-u {
			t.Fatalf("uniform(^%#x) = %v, want %v", h, uniform(^h), 1-u)
		}
	})
}

// TestExponentialMoments compares mean and variance with 1 and 1, and the tails with e^-x.
func TestExponentialMoments(t *testing.T) {
	const n = 1_000_000
	stream := newSource(0, forClock).epoch(0)
	sum, squares, beyond3 := 0.0, 0.0, 0
	for id := range SampleID(n) {
		e := exponential(stream.bits(id, 0))
		sum += e
		squares += e * e
		if e > 3 {
			beyond3++
		}
	}
	if mean := sum / n; math.Abs(mean-1) > 0.005 {
		t.Errorf("the mean is %v", mean)
	}
	if variance := squares/n - sum/n*sum/n; math.Abs(variance-1) > 0.015 {
		t.Errorf("the variance is %v", variance)
	}
	if share := float64(beyond3) / n; math.Abs(share-math.Exp(-3)) > 0.0011 {
		t.Errorf("%v of the clocks are beyond 3, want %v", share, math.Exp(-3))
	}
}

func TestTimeKey(t *testing.T) {
	positive := rapid.Float64Range(math.SmallestNonzeroFloat64, math.MaxFloat64)
	rapid.Check(t, func(t *rapid.T) {
		a, b := positive.Draw(t, "a"), positive.Draw(t, "b")
		if a < b && timeKey(a) > timeKey(b) {
			t.Fatalf("%v is before %v, but its key %d is after %d", a, b, timeKey(a), timeKey(b))
		}
		if timeKey(a) >= neverKey(rapid.Uint64().Draw(t, "h")) {
			t.Fatalf("%v is not before never", a)
		}
	})
	if a, b := timeKey(0.5), timeKey(0.5+0x1p-26); b != a+1 {
		t.Errorf("the keys of 0.5 and 0.5+2^-26 are %d and %d, not neighbours", a, b)
	}
}
