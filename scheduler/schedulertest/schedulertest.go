// Package schedulertest helps to test the scheduler's packages.
package schedulertest

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

// Losses returns the losses of real training, [epoch][sample]: a CNN on 8,000 images of
// Fashion-MNIST, 10 epochs, the cross entropy of each sample at the moment it was trained on. The
// file is NumPy's format, version 1. It is read from a folder beside this one.
func Losses(t testing.TB) [][]float32 {
	t.Helper()
	file, err := os.ReadFile("../testdata/fashion-cnn-8k-losses.npy")
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

// MustPanic fails unless f panics.
func MustPanic(t *testing.T, name string, f func()) {
	t.Helper()
	defer func() {
		if recover() == nil {
			t.Errorf("%s: no panic", name)
		}
	}()
	f()
}
