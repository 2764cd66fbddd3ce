package mpicache

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"rankpool/mpicache/files"
	"rankpool/mpicache/slab"
	"rankpool/scheduler/draw"
)

// When a rank dies, the trainers of its node still have its memory mapped. Its successor takes the
// memory back from them (memory_takeback.go), and serves the samples that are complete in it. The
// directory in the memory lists them; each sample is verified by its sum before its first use.

// slabSets describes the data sets of the memory. The key of each is its identity and its files'
// modification times.
func slabSets(data []DataSet) []slab.Set {
	sets := make([]slab.Set, len(data))
	for i, d := range data {
		text := fmt.Sprintf("%q %q %q", d.Name, d.Identity, d.Times)
		sets[i] = slab.Set{Samples: d.Held(), Key: sha256.Sum256([]byte(text))}
	}
	return sets
}

// found lists the samples in memory that a rank took over.
type found struct {
	whole     []slab.Entry
	residents int // of the rank before
}

// takeMemory returns the node's memory, and the samples found in it.
func (cfg *Config) takeMemory() (memory *slab.Slab, f found, err error) {
	memory = cfg.Memory
	if memory == nil {
		forgetSlab(cfg.Dir) // so that clients release the old memory
		if err := renewInPlace(cfg.Dir); err != nil {
			return nil, f, err
		}
		if memory, err = slab.New(cfg.SlabBytes, slabSets(cfg.Data), cfg.Room); err != nil {
			return nil, f, err
		}
	} else if f.whole, f.residents, err = memory.Resume(cfg.SlabBytes, cfg.size); err != nil {
		return nil, f, errors.Join(err, memory.Close())
	}
	memory.Expect(cfg.held())
	if err := noteSlab(cfg.Dir, memory); err != nil {
		return nil, f, errors.Join(err, memory.Close())
	}
	return memory, f, nil
}

// held returns how many samples of mean size there is memory for.
func (cfg *Config) held() int {
	samples, total := int64(0), int64(0)
	for set, d := range cfg.Data {
		for id := range d.Held() {
			total += slab.Footprint(cfg.size(set, id))
		}
		samples += int64(d.Held())
	}
	mean := max(1, total/max(1, samples))
	return int(min(cfg.SlabBytes, total) / mean)
}

func (cfg *Config) size(set, sample int) int64 {
	return cfg.Data[set].Size(draw.SampleID(sample))
}

// Recovered returns how many residents of the previous rank this one has kept, and how many had
// been complete in memory.
func (n *Node) Recovered() (kept, of int) { return n.kept, n.keptOf }

// slabName is the file in a rank's folder that names the rank's memory: only that memory is taken
// back, or kept by clients while there is no rank.
const slabName = "slab"

func noteSlab(dir string, memory *slab.Slab) error {
	is, err := memory.Identity()
	if err != nil {
		return err
	}
	text := fmt.Appendf(nil, "%d %d %d\n", is.Device, is.Inode, is.SizeBytes)
	return files.Write(filepath.Join(dir, slabName), text)
}

func readSlabNote(dir string) (is slab.Identity, err error) {
	text, err := files.Read(filepath.Join(dir, slabName))
	if err == nil {
		_, err = fmt.Sscanf(string(text), "%d %d %d\n", &is.Device, &is.Inode, &is.SizeBytes)
	}
	return is, err
}

// forgetSlab overwrites the note. Removing it would free space that other processes could use.
func forgetSlab(dir string) {
	file, err := os.OpenFile(filepath.Join(dir, slabName), os.O_WRONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return // it may not be there
	}
	_, _ = file.WriteString("0 0 0                                                           \n")
	_ = file.Close() // a remaining note is checked against the memory that clients send
}
