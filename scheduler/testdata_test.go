package scheduler

import (
	"bytes"
	"encoding/binary"
	"os"
	"testing"
)

// lossEpochs and lossSamples are the shape of the recorded losses.
const (
	lossEpochs  = 10
	lossSamples = 8000
)

// loadLosses returns the losses of real training, [epoch][sample]: a CNN on 8,000 images of
// Fashion-MNIST, 10 epochs, the cross entropy of each sample at the moment it was trained on. The
// file is NumPy's format, version 1.
func loadLosses(t testing.TB) [][]float32 {
	t.Helper()
	file, err := os.ReadFile("testdata/fashion-cnn-8k-losses.npy")
	if err != nil {
		t.Fatal(err)
	}
	const magic = "\x93NUMPY\x01\x00"
	if len(file) < 10 || string(file[:8]) != magic {
		t.Fatal("the losses are not in NumPy's format")
	}
	header := 10 + int(binary.LittleEndian.Uint16(file[8:]))
	if !bytes.Contains(file[:header],
		[]byte("'descr': '<f4', 'fortran_order': False, 'shape': (10, 8000)")) {
		t.Fatalf("the losses have the header %q", file[10:header])
	}
	losses := make([][]float32, lossEpochs)
	body := bytes.NewReader(file[header:])
	for e := range losses {
		losses[e] = make([]float32, lossSamples)
		if err := binary.Read(body, binary.LittleEndian, losses[e]); err != nil {
			t.Fatal(err)
		}
	}
	return losses
}

func TestLosses(t *testing.T) {
	losses := loadLosses(t)
	mean := func(row []float32) float64 {
		sum := 0.0
		for _, l := range row {
			if !(l >= 0 && l < 100) {
				t.Fatalf("a loss is %v", l)
			}
			sum += float64(l)
		}
		return sum / float64(len(row))
	}
	if first, last := mean(losses[0]), mean(losses[lossEpochs-1]); last >= first/2 {
		t.Errorf(
			"mean losses of %.3f in the first epoch and %.3f in the last do not look like training",
			first, last)
	}
}
