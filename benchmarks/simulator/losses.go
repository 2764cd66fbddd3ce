package simulator

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strconv"
)

// npyMagic begins a file of NumPy's format, version 1.
const npyMagic = "\x93NUMPY\x01\x00"

var npyShape = regexp.MustCompile(`'descr': '<f4', 'fortran_order': False, 'shape': \((\d+), (\d+)\)`)

// LoadLosses reads losses recorded from training, [epoch][sample], from a file of NumPy's format: float32, two dimensions.
func LoadLosses(path string) ([][]float32, error) {
	file, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("simulator: %w", err)
	}
	losses, err := parseLosses(file)
	if err != nil {
		return nil, fmt.Errorf("simulator: %s: %w", path, err)
	}
	return losses, nil
}

func parseLosses(file []byte) ([][]float32, error) {
	if len(file) < 10 || string(file[:8]) != npyMagic {
		return nil, errors.New("it is no file of NumPy's format, version 1")
	}
	header := 10 + int(binary.LittleEndian.Uint16(file[8:]))
	if header > len(file) {
		return nil, errors.New("its header is cut off")
	}
	shape := npyShape.FindSubmatch(file[:header])
	if shape == nil {
		return nil, fmt.Errorf("it holds no float32 matrix but %q", file[10:header])
	}
	epochs, err := strconv.Atoi(string(shape[1]))
	if err != nil {
		return nil, err
	}
	samples, err := strconv.Atoi(string(shape[2]))
	if err != nil {
		return nil, err
	}
	body := file[header:]
	if samples == 0 || len(body)/4/samples != epochs || len(body) != 4*samples*epochs {
		return nil, fmt.Errorf("%d bytes are no %d epochs of %d losses", len(body), epochs, samples)
	}
	losses := make([][]float32, epochs)
	r := bytes.NewReader(body)
	for e := range losses {
		losses[e] = make([]float32, samples)
		if err := binary.Read(r, binary.LittleEndian, losses[e]); err != nil {
			return nil, err
		}
	}
	return losses, nil
}

// Tile returns the losses of a data set that has every sample `times` times; the copies keep their sample's losses.
func Tile(losses [][]float32, times int) [][]float32 {
	tiled := make([][]float32, len(losses))
	for e, row := range losses {
		for range times {
			tiled[e] = append(tiled[e], row...)
		}
	}
	return tiled
}
