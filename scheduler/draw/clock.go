package draw

import "math"

// Every product below is explicitly converted to float64, which keeps the compiler from fusing it
// with a following sum. So clocks, and with them plans, have the same bits on every architecture.

// uniform turns 64 random bits into a number in (0, 1): 2^52 equally spaced values, never 0 or 1,
// symmetric: uniform(^h) = 1 - uniform(h).
func uniform(h uint64) float64 { return float64((float64(h>>12) + 0.5) * 0x1p-52) }

// exponential turns 64 random bits into a sample of the exponential distribution with mean 1, in
// [2^-53, 36.8].
func exponential(h uint64) float64 { return -Ln(uniform(h)) }

// Ln returns the natural logarithm of x, a positive normal number, with an error below 1 ulp and
// the same bits on every machine.
//
// Source: Sun Microsystems, fdlibm 5.3, e_log.c: the reduction x = 2^k (1+f) with √2/2 < 1+f < √2,
// and the minimax polynomial of log(1+f) in s = f/(2+f). Differs: math.Log has other bits on other
// architectures.
func Ln(x float64) float64 {
	const (
		ln2Hi = 6.93147180369123816490e-01
		ln2Lo = 1.90821492927058770002e-10
		l1    = 6.666666666666735130e-01
		l2    = 3.999999999940941908e-01
		l3    = 2.857142874366239149e-01
		l4    = 2.222219843214978396e-01
		l5    = 1.818357216161805012e-01
		l6    = 1.531383769920937332e-01
		l7    = 1.479819860511658591e-01

		one     = 0x3ff0000000000000 // bits of 1
		rootHex = 0x3fe6a09e667f3bcd // bits of √2/2
		one52   = 1<<52 - 1          // bits of the mantissa
	)
	b := math.Float64bits(x) + (one - rootHex)
	k := float64(int64(b>>52) - 1023)
	f := math.Float64frombits(b&one52+rootHex) - 1

	s := f / (2 + f)
	z := float64(s * s)
	w := float64(z * z)
	odd := float64(z * (l1 + float64(w*(l3+float64(w*(l5+float64(w*l7)))))))
	even := float64(w * (l2 + float64(w*(l4+float64(w*l6)))))
	half := float64(float64(0.5*f) * f)
	return float64(k*ln2Hi) - ((half - (float64(s*(half+odd+even)) + float64(k*ln2Lo))) - f)
}

// Times are sorted as 32-bit keys: the exponent of the time, 128 octaves from 2^-64 to 2^64, and
// the first 25 bits of its mantissa. Of 14.2 million arrivals in an epoch, about one in ten shares
// its key with another; those are ordered by id. Times are in epochs, so the range holds 19 decades
// of importance.
const (
	keyMantissaBits = 25
	keyOctave       = 1 << keyMantissaBits
	keyOffset       = (1023 - 64) << keyMantissaBits
	keyMax          = 1<<32 - 1 - keyOctave // the last octave is for samples that never come
)

// timeKey maps a positive time to its key, monotonically; times outside the range get the range's
// ends.
func timeKey(t float64) uint32 {
	k := int64(math.Float64bits(t)>>(52-keyMantissaBits)) - keyOffset
	return uint32(min(max(k, 0), keyMax))
}

// keyTime is the earliest time that has a key.
func keyTime(key uint32) float64 {
	return math.Float64frombits(uint64(int64(key)+keyOffset) << (52 - keyMantissaBits))
}

// neverKey is the key of a sample whose weight is 0: after all others, in the order of its own
// clock.
func neverKey(h uint64) uint32 { return keyMax + 1 + uint32(^h>>(64-keyMantissaBits)) }
