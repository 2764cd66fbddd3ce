package draw

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
)

// A Sampler turns importance into the draws of an epoch. It holds no state between epochs: the same
// epoch and scores give the same draws, whenever and wherever it is asked. It may be used
// concurrently.
type Sampler interface {
	// Weighted reports whether draws depend on scores. If not, Draw ignores them and may be given
	// nil.
	Weighted() bool

	// Draw returns the draws of an epoch, 0 ≤ epoch. scores has one finite entry per sample, of any
	// sign. The result keeps a reference to scores: the caller must not change them as long as it uses
	// the result. Draw panics if scores has another length or holds an infinite or NaN score.
	Draw(epoch int, scores []float32) *Draws
}

// A Padder is a Sampler whose number of draws in an epoch is a multiple of the number of processes
// that the training began with.
type Padder interface {
	Sampler
	// Pad returns the sampler for the given number of processes; 0: as many as train.
	Pad(processes int) Sampler
}

// SamplerConfig selects a sampler and its data set.
type SamplerConfig struct {
	// torch, torch-sequential, uniform, chunks, sequential, pads, weighted, weighted-once, subset,
	// selective, thrifty; thrifty may be followed by reads, room and draws: "thrifty,reads=0.3",
	// which go before Reads, Room and Fraction; reads=0 is AutoReads
	Name      string
	Samples   int // N > 0
	Seed      int64
	BatchSize int // a trainer's; the global batch is BatchSize · World
	World     int // trainers
	// torch, torch-sequential: the processes that epochs are padded for, as the training began with;
	// 0: World
	Processes int
	// drop the last global batch when it is not full (DataLoader's drop_last)
	DropLast        bool
	SamplerDropLast bool // torch, torch-sequential: DistributedSampler's drop_last
	// chunks only: the chunk that epoch 0 begins with, at least 0 and below the number of chunks
	FirstChunk int
	// subset, selective and thrifty: expected share of the samples in an epoch, in (0, 1]; 0 means
	// 0.7, for thrifty 1
	Fraction float64
	// weighted, pads, subset and thrifty: the least share of the draws that a sample gets, as a part
	// of an equal share, in (0, 1]; 0 means DefaultFloor, NoFloor none
	Floor float64
	// thrifty only: storage reads a draw, in (0, 1] or AutoReads, and the size of the store that it
	// counts with, as a share of the data set, in (0, 1]; 0 means 0.25, and 0.2
	Reads, Room float64
	// selective only: power of a score's percentile, at least 0; 0 means 0.33, below 2^-24 all
	// samples are alike
	Beta float64
	// selective only: first epochs, which draw all samples; 0 means 1, -1 none
	WarmUp int
}

// makers has one entry per sampler.
var makers = map[string]func(SamplerConfig) Sampler{
	"torch":            newTorchSampler,
	"torch-sequential": newTorchSampler,
	"sequential":       newSequentialSampler,
	"uniform":          newUniformSampler,
	"chunks":           newChunksSampler,
	"weighted":         newWeightedSampler,
	"pads":             newWeightedSampler,
	"weighted-once":    newOnceSampler,
	"subset":           newSubsetSampler,
	"selective":        newSelectiveSampler,
	Thrifty:            newThriftySampler,
}

// SamplerNames returns the names that NewSampler knows, sorted.
func SamplerNames() []string { return slices.Sorted(maps.Keys(makers)) }

// NewSampler returns the sampler that cfg describes.
//
// It returns an error when cfg's name is unknown, a number is out of its range, or an epoch could
// not hold a single draw.
func NewSampler(cfg SamplerConfig) (Sampler, error) {
	if cfg.Name == InList {
		return Listed(nil), nil
	}
	maker, ok := makers[KindOf(cfg.Name)]
	if !ok {
		return nil, fmt.Errorf("scheduler: unknown sampler %q, the known ones are %s",
			cfg.Name, strings.Join(SamplerNames(), ", "))
	}
	if err := cfg.takeOptions(); err != nil {
		return nil, fmt.Errorf("scheduler: sampler %s: %w", cfg.Name, err)
	}
	if err := cfg.check(); err != nil {
		return nil, fmt.Errorf("scheduler: sampler %s: %w", cfg.Name, err)
	}
	return maker(cfg), nil
}

// KindOf returns the name of a sampler without the options that may follow it.
func KindOf(name string) string {
	kind, _, _ := strings.Cut(name, ",")
	return kind
}

// takeOptions sets what follows the name.
func (c *SamplerConfig) takeOptions() error {
	kind, options, given := strings.Cut(c.Name, ",")
	if !given {
		return nil
	}
	for option := range strings.SplitSeq(options, ",") {
		name, text, _ := strings.Cut(option, "=")
		to, known := map[string]*float64{
			"reads": &c.Reads, "room": &c.Room, "draws": &c.Fraction,
		}[name]
		value, err := strconv.ParseFloat(text, 64)
		if name == "reads" {
			value = cmp.Or(value, AutoReads)
		}
		if kind != Thrifty || !known || err != nil || value == 0 {
			return fmt.Errorf("%q is no option of it; thrifty has reads, room and draws, "+
				"numbers above 0 and at most 1, or reads=0", option)
		}
		*to = value
	}
	c.Name = kind
	return nil
}

func (c SamplerConfig) check() error {
	switch {
	case c.Samples < 1 || c.Samples > math.MaxInt32:
		return fmt.Errorf("the number of samples is %d, it must be in [1, 2^31)", c.Samples)
	case c.BatchSize < 1:
		return fmt.Errorf("the batch size is %d, it must be at least 1", c.BatchSize)
	case c.World < 1 || c.World > math.MaxUint16:
		return fmt.Errorf("the number of trainers is %d, it must be in [1, 65535]", c.World)
	case c.BatchSize > math.MaxInt32/c.World:
		return fmt.Errorf("%d trainers with a batch size of %d make a global batch of 2^31 draws or "+
			"more", c.World, c.BatchSize)
	case c.fillsBatches() && c.globalBatch() > max(c.Samples, mostFilled):
		return fmt.Errorf("%d samples would be repeated to fill a global batch of %d draws, and at "+
			"most %d are possible: give a smaller batch size", c.Samples, c.globalBatch(), mostFilled)
	case c.Processes < 0 || c.Processes > 0 && c.globalBatch()%c.Processes != 0:
		return fmt.Errorf("the training began with %d processes, which do not divide a global batch "+
			"of %d", c.Processes, c.globalBatch())
	case !(c.Fraction >= 0 && c.Fraction <= 1):
		return fmt.Errorf("the fraction is %v, it must be in (0, 1]", c.Fraction)
	case c.Floor != NoFloor && !(c.Floor >= 0 && c.Floor <= 1):
		return fmt.Errorf("the floor is %v, it must be in (0, 1]", c.Floor)
	case c.Reads != AutoReads && !(c.Reads >= 0 && c.Reads <= 1):
		return fmt.Errorf("the reads are %v a draw, they must be in (0, 1]", c.Reads)
	case !(c.Room >= 0 && c.Room <= 1):
		return fmt.Errorf("the room is %v of the data set, it must be in (0, 1]", c.Room)
	case !(c.Beta >= 0 && c.Beta <= maxBeta):
		return fmt.Errorf("beta is %v, it must be in [0, %d]", c.Beta, maxBeta)
	case !c.asTorch() && c.SamplerDropLast:
		return fmt.Errorf("DistributedSampler's drop_last belongs to the samplers torch and " +
			"torch-sequential")
	case c.FirstChunk != 0 && c.Name != "chunks":
		return fmt.Errorf("the first chunk is %d, and only the sampler chunks has some", c.FirstChunk)
	case c.FirstChunk < 0 || c.FirstChunk >= min(Chunks, c.Samples):
		return fmt.Errorf("the first chunk is %d, it must be in [0, %d)", c.FirstChunk,
			min(Chunks, c.Samples))
	case c.Name == "torch" && c.Samples >= torchSamplesMax:
		return fmt.Errorf("the number of samples is %d, torch.randperm uses another algorithm from "+
			"%d on", c.Samples, torchSamplesMax)
	}
	draws := c.Samples
	if c.asTorch() {
		draws = torchTotal(c)
	}
	if draws == 0 {
		return fmt.Errorf("%d samples are fewer than %d trainers, so drop_last leaves none",
			c.Samples, c.World)
	}
	if c.DropLast && draws < c.globalBatch() {
		return fmt.Errorf("%d draws are fewer than one global batch of %d, so drop_last leaves none",
			draws, c.globalBatch())
	}
	return nil
}

// mostFilled is how many draws a global batch may have if the samples are fewer: an epoch has them
// all, and plans take memory for each.
const mostFilled = 1 << 22

// fillsBatches reports whether an epoch is a whole number of global batches.
func (c SamplerConfig) fillsBatches() bool { return !c.asTorch() && c.Name != "sequential" }

// asTorch reports whether the sampler is torch's DistributedSampler.
func (c SamplerConfig) asTorch() bool { return c.Name == "torch" || c.Name == InTorchsOrder }

// InTorchsOrder is the sampler DistributedSampler(shuffle=False).
const InTorchsOrder = "torch-sequential"

// InList is the sampler whose epochs trainers hand in. It takes nothing of SamplerConfig but the
// name; each epoch has a Listed.
const InList = "listed"

// globalBatch is the number of draws in a full global batch.
func (c SamplerConfig) globalBatch() int { return c.BatchSize * c.World }

// floor returns Floor with its default.
func (c SamplerConfig) floor() float64 { return cmp.Or(c.Floor, DefaultFloor) }

// A race is the common part of the samplers whose epochs are as long as the data set, in whole
// global batches, and in the order of race clocks.
type race struct {
	samples int
	draws   int // in an epoch
	clocks  source
}

func (c SamplerConfig) race() race {
	return race{
		samples: c.Samples,
		draws:   wholeBatches(c.Samples, c.globalBatch(), c.DropLast),
		clocks:  newSource(c.Seed, forClock),
	}
}

// rates turn scores into the rates λ of the race clocks.
type rates struct {
	lift
	scores   []float32 // lifted
	sum      float64   // of the scores before they were lifted
	perScore float64   // λ of a lifted score of 1
	equal    float64   // λ of all samples when all lifted scores are zero, else 0
}

// newRates returns the rates, whose sum is total, of lifted scores. It sums them in the order of
// ids, so the sum has the same bits everywhere. It panics if there is not one score per sample, or
// if a score is infinite or NaN.
func newRates(scores []float32, samples int, total, floor float64) rates {
	if len(scores) != samples {
		panic(fmt.Sprintf("scheduler: Draw got %d scores for %d samples.", len(scores), samples))
	}
	r := rates{lift: newLift(scores, floor)}
	r.scores = r.all(scores)
	lifted := 0.0
	for id, s := range scores {
		r.sum += float64(s)
		lifted += float64(r.scores[id])
	}
	if lifted == 0 {
		r.equal = total / float64(samples)
	} else {
		r.perScore = total / lifted
	}
	return r
}

// of returns the rate of a lifted score.
func (r rates) of(score float32) float64 {
	return r.equal + float64(r.perScore*float64(score))
}

// maxBeta bounds SamplerConfig.Beta, far above the values at which only the largest score has a
// weight.
const maxBeta = 1 << 20
