package rank

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"rankpool/mpicache/stats"
	"rankpool/nvml"
	"rankpool/slurm"
)

// A nodeGPU is one GPU of the node: itself, or its MIG devices.
type nodeGPU struct {
	index   int
	uuid    string
	devices []sampledGPU
	err     error // why it cannot be read
}

// findGPUs returns the GPUs that a process may use: those that may names, in its order, or all that
// the library offers if may names none. MIG devices stand for a GPU that is partitioned. The error
// names the GPUs that do not respond or do not exist; the others are returned with it.
func findGPUs(library *nvml.Library, may slurm.GPUs) ([]sampledGPU, error) {
	if may.Count == 0 {
		return nil, nil
	}
	node, err := listGPUs(library)
	if err != nil {
		return nil, err
	}
	var found []sampledGPU
	var left []error
	if !named(may, len(node)) {
		for _, g := range node {
			found = append(found, g.devices...)
			if !errors.Is(g.err, nvml.ErrNotAvailable) { // else it is another job's
				left = append(left, g.err)
			}
		}
		return found, errors.Join(left...)
	}
	for _, name := range may.Visible {
		devices, err := pickGPU(node, name)
		found, left = append(found, devices...), append(left, err)
	}
	return found, errors.Join(left...)
}

// named reports whether may selects GPUs among those of the library. Slurm's own lists count the
// node's GPUs; if the job's control group shows only the listed ones, there is nothing to select.
// Lists of other vendors do not name NVIDIA GPUs.
func named(may slurm.GPUs, library int) bool {
	switch may.Source {
	case "CUDA_VISIBLE_DEVICES":
		return true
	case "SLURM_STEP_GPUS", "SLURM_JOB_GPUS":
		return len(may.Visible) < library
	}
	return false
}

// pickGPU returns what name stands for: a GPU by its index, or a GPU or MIG device by the beginning
// of its UUID.
func pickGPU(node []nodeGPU, name string) ([]sampledGPU, error) {
	for _, g := range node {
		if name == strconv.Itoa(g.index) || strings.HasPrefix(g.uuid, name) {
			return g.devices, g.err
		}
		for _, d := range g.devices {
			if strings.HasPrefix(d.State.UUID, name) {
				return []sampledGPU{d}, nil
			}
		}
	}
	return nil, fmt.Errorf("GPU %s not found", name)
}

// listGPUs returns the node's GPUs as NVML counts them.
func listGPUs(library *nvml.Library) ([]nodeGPU, error) {
	count, err := library.Count()
	if err != nil {
		return nil, err
	}
	node := make([]nodeGPU, count)
	for i := range node {
		node[i] = nodeGPU{index: i}
		if err := node[i].describe(library); err != nil {
			node[i].devices, node[i].err = nil, fmt.Errorf("GPU %d: %w", i, err)
		}
	}
	return node, nil
}

// describe fills in the properties of the GPU with g's index.
func (g *nodeGPU) describe(library *nvml.Library) error {
	device, err := library.Device(g.index)
	if err != nil {
		return err
	}
	if g.uuid, err = device.UUID(); err != nil {
		return err
	}
	devices, err := device.MIGDevices()
	if err != nil {
		return err
	}
	if len(devices) == 0 {
		devices = []nvml.Device{device}
	}
	for _, d := range devices {
		state := stats.GPU{Index: g.index}
		if state.UUID, err = d.UUID(); err != nil {
			return err
		}
		state.Name, _ = d.Name() // an unnamed GPU is read too
		g.devices = append(g.devices, sampledGPU{device: d, State: state})
	}
	return nil
}
