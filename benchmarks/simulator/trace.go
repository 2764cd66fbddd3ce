package simulator

import (
	"fmt"
	"math"
	"slices"

	"rankpool/staging/npy"
)

// TraceFiles names the files of a trace, in NumPy's format; "" if there is none.
type TraceFiles struct {
	Losses     string // floats [epochs, samples]
	Labels     string // integers [samples], in [0, 2^31)
	Embeddings string // floating point [epochs, samples, dimensions]
	SizesBytes string // integers [samples], above 0
	Accuracies string // floats [epochs]
}

// LoadTrace reads a trace. It returns an error that names the file and, if possible, the epoch and
// the sample if a file cannot be read, has another type or shape, does not match the losses, or
// holds a number out of range.
func LoadTrace(files TraceFiles) (*Trace, error) {
	losses, err := LoadLosses(files.Losses)
	if err != nil {
		return nil, err
	}
	t := &Trace{Losses: losses}
	for _, more := range []struct {
		path string
		load func(path string) error
	}{
		{files.Labels, t.loadLabels},
		{files.Embeddings, t.loadEmbeddings},
		{files.SizesBytes, t.loadSizes},
		{files.Accuracies, t.loadAccuracies},
	} {
		if more.path != "" {
			if err := more.load(more.path); err != nil {
				return nil, fmt.Errorf("simulator: %w", err)
			}
		}
	}
	return t, nil
}

// LoadLosses reads losses recorded from training, [epoch][sample], from a file of NumPy's format:
// floating-point, two dimensions; float64 is rounded. protocol.Reported replaces losses that are
// not finite. The errors are those of LoadTrace.
func LoadLosses(path string) ([][]float32, error) {
	losses, err := loadLosses(path)
	if err != nil {
		return nil, fmt.Errorf("simulator: %w", err)
	}
	return losses, nil
}

func loadLosses(path string) ([][]float32, error) {
	a, err := npy.Read(path)
	if err != nil {
		return nil, err
	}
	numbers, err := a.Float32s()
	if err != nil || len(a.Shape) != 2 || len(numbers) == 0 {
		return nil, fmt.Errorf("%s holds %v, but losses are floats [epochs, samples]", path, a)
	}
	return slices.Collect(slices.Chunk(numbers, a.Shape[1])), nil
}

// loadColumn reads one integer per sample.
func (t *Trace) loadColumn(path, what string, least, most int64) ([]int64, error) {
	a, err := npy.Read(path)
	if err != nil {
		return nil, err
	}
	numbers, err := a.Int64s()
	if err != nil || len(a.Shape) != 1 {
		return nil, fmt.Errorf("%s holds %v, but %s are integers [samples]", path, a, what)
	}
	if len(numbers) != t.Samples() {
		return nil, fmt.Errorf("%s holds %d %s, but there are losses of %d samples", path,
			len(numbers), what, t.Samples())
	}
	for i, n := range numbers {
		if n < least || n > most {
			return nil, fmt.Errorf("%s: sample %d has %d, but %s are in [%d, %d]", path, i, n, what,
				least, most)
		}
	}
	return numbers, nil
}

func (t *Trace) loadLabels(path string) error {
	numbers, err := t.loadColumn(path, "labels", 0, math.MaxInt32)
	if err != nil {
		return err
	}
	t.Labels = make([]int32, len(numbers))
	for i, n := range numbers {
		t.Labels[i] = int32(n)
	}
	return nil
}

// maxSampleBytes keeps sums of the sizes of 2^31 samples far from the end of int64.
const maxSampleBytes = 1 << 31

func (t *Trace) loadSizes(path string) (err error) {
	t.SizesBytes, err = t.loadColumn(path, "sizes", 1, maxSampleBytes)
	return err
}

func (t *Trace) loadAccuracies(path string) error {
	a, err := npy.Read(path)
	if err != nil {
		return err
	}
	t.Accuracies, err = a.Float32s()
	if err != nil || len(a.Shape) != 1 || len(t.Accuracies) != len(t.Losses) {
		return fmt.Errorf("%s holds %v, but accuracies are floats [epochs], of %d epochs", path, a,
			len(t.Losses))
	}
	return nil
}

func (t *Trace) loadEmbeddings(path string) error {
	a, err := npy.Read(path)
	if err != nil {
		return err
	}
	numbers, err := a.Float32s()
	if err != nil || len(a.Shape) != 3 || a.Shape[2] == 0 {
		return fmt.Errorf(
			"%s holds %v, but embeddings are floating-point numbers [epochs, samples, dimensions]",
			path, a)
	}
	epochs, samples, dimensions := a.Shape[0], a.Shape[1], a.Shape[2]
	if epochs != len(t.Losses) || samples != t.Samples() {
		return fmt.Errorf("%s holds embeddings of %d epochs and %d samples, but there are losses "+
			"of %d epochs and %d samples",
			path, epochs, samples, len(t.Losses), t.Samples())
	}
	vectors := slices.Collect(slices.Chunk(numbers, dimensions))
	t.Embeddings = slices.Collect(slices.Chunk(vectors, samples))
	return nil
}
