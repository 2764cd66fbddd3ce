package simulator

import (
	"math"
	"time"

	"rankpool/scheduler/draw"
	"rankpool/scheduler/protocol"
	"rankpool/scheduler/systems"
)

// Trace is what was recorded from training: the losses, and optionally more.
type Trace struct {
	// [epoch][sample]: the loss that training reports for the sample if it trains on
	// it in that epoch
	Losses     [][]float32
	Labels     []int32       // by sample; nil if unknown
	Embeddings [][][]float32 // [epoch][sample][dimension]; nil if unknown
	SizesBytes []int64       // by sample; nil: all equal, Cluster.SampleBytes
	// by epoch: the accuracy that training measures after it, NaN: none; nil: it measures none
	Accuracies []float32
}

// Samples returns the number of samples.
func (t *Trace) Samples() int { return len(t.Losses[0]) }

// Config is what to simulate: one system with one capacity.
type Config struct {
	Trace  *Trace
	System *systems.System
	Values systems.Values // of the system's options, where they differ from the defaults

	// Sampler, Policy and Scorer replace a part of the system; "" keeps its own. If a sampler is
	// given, the draws come from separate scores, which Scorer (or the sampler's default) makes
	// from the losses of the drawn samples; so they do not depend on what the system keeps or
	// substitutes.
	Sampler, Policy, Scorer string

	Capacity float64 // of all ranks' memory together, as a share of the data set's bytes, in (0, 1]
	// TierCapacity is the same for all ranks' tiers together; 0: there are none. Only the real
	// schedulers have tiers; reads of a tier take no time in the time model.
	TierCapacity float64
	Ranks        int // nodes
	// TrainersPerRank is the number of trainers of each node, trainer t on rank t /
	// TrainersPerRank, each with its own data loader; 0 means 1.
	TrainersPerRank int
	BatchSize       int // a trainer's; the global batch is that of all trainers
	// Window: samples are windows of rows, Rows at least 1; zero: each sample is one piece.
	Window Window
	// DropLast leaves out an epoch's last global batch if it is not full.
	DropLast   bool
	Epochs     int // that are trained, at most those of the trace
	SkipEpochs int // first epochs that are not counted
	// number that train on the data set at the same time and share the memory; job j has seed Seed + j
	Jobs    int
	Seed    int64
	Cluster *Cluster
	// IDsDigest asks for Result.IDsDigest.
	IDsDigest bool
	// JobSteps are the durations of a step of each job, instead of the cluster's; nil: the
	// cluster's for all. In simulated time all jobs take their steps in parallel, as fast as the
	// slowest; a job's gain from caching is measured with its own.
	JobSteps []time.Duration
	// NoBenefit makes RunLanes measure nothing, so that memory is divided by size.
	NoBenefit bool
	// JobLosses are the losses of each job, in place of Trace.Losses; nil: all jobs have those.
	JobLosses [][][]float32
}

// Result holds the counts over all jobs and the epochs after SkipEpochs. Draws = Hits + Substituted
// + StorageReads.
type Result struct {
	System          string  `json:"system"`
	Sampler         string  `json:"sampler"`
	Scorer          string  `json:"scorer"`
	Policy          string  `json:"policy"`
	Capacity        float64 `json:"capacity"`
	Ranks           int     `json:"ranks"`
	TrainersPerRank int     `json:"trainers_per_rank"`
	Jobs            int     `json:"jobs"`
	Draws           int64   `json:"draws"`
	// the sample drawn was in memory, and had been served since it was loaded
	Hits int64 `json:"hits"`
	// of these, in the memory of the rank that consumes it
	HitsLocal  int64 `json:"hits_local"`
	HitsRemote int64 `json:"hits_remote"` // in another rank's
	// another sample was served, from any rank's memory
	Substituted int64 `json:"substituted"`
	// the sample served was read for this draw, or ahead of it
	StorageReads int64 `json:"storage_reads"`
	// of these, a sample other than the one drawn was served
	SubstituteReads int64 `json:"substitute_reads"`
	// samples whose losses were measured without training on them: no draws
	Evaluated int64 `json:"evaluated"`
	// of these, read for it
	EvaluatedReads int64 `json:"evaluated_reads"`
	// packages that ranks read (and have written) if they have room for all, and their bytes
	Packages     int64 `json:"packages"`
	PackageBytes int64 `json:"package_bytes"`
	// all reads, including those of samples that were not drawn
	StorageBytes int64 `json:"storage_bytes"`
	// the same in each epoch, as a share of the data set; only with Config.Window
	DataSetsRead float64 `json:"data_sets_read,omitempty"`
	Distinct     int64   `json:"distinct"` // samples that were trained on at least once
	// longest run of epochs in which some sample was never trained on
	CoverageGapMax int `json:"coverage_gap_max"`
	// mean over epochs, by the time model of Cluster
	EpochSeconds float64 `json:"epoch_seconds"`
	// the longer of computing, and of reading the distinct bytes at the storage's bandwidth
	BoundSeconds float64 `json:"bound_seconds"`
	// an epoch's plan on one core, by the time model
	PlanSeconds float64 `json:"plan_seconds"`
	// IDsDigest is the SHA-256 over all global batches of all epochs, in order, of the ids served,
	// ascending, as little-endian int64; "" unless Config asks for it. With several jobs it is the
	// first one's.
	IDsDigest string `json:"ids_digest,omitempty"`
	// ScoreDeviation is the standard deviation of SpiderCache's scores after each epoch but the last,
	// by which it divides its memory.
	ScoreDeviation []float64 `json:"score_deviation,omitempty"`
	// ImpRatio is the share of the memory that is SpiderCache's importance cache, by epoch; epochs
	// that are not counted included. With several jobs it follows the first one.
	ImpRatio []float64 `json:"imp_ratio,omitempty"`

	Epochs []EpochResult `json:"-"` // all epochs, those not counted included
}

// EpochResult describes one epoch, for plots.
type EpochResult struct {
	Seconds float64
	Batches []BatchResult
}

// BatchResult is where the draws of one global batch came from.
type BatchResult struct {
	Local, Remote, Substituted, Storage int32
	substituteReads                     int32 // of Storage
}

// Load is what one rank's trainer needs for one global batch.
type Load struct {
	LocalBytes   int64 // from its own memory
	RemoteBytes  int64 // from other ranks' memory
	StorageBytes int64 // from storage
	Reads        int32 // samples that are read from storage one by one
	Packages     int32 // sequential reads of many samples
}

// accuracyBefore returns the accuracy that is measured after the epoch before epoch, NaN if none.
func (t *Trace) accuracyBefore(epoch int) float32 {
	if epoch < 1 || t.Accuracies == nil {
		return float32(math.NaN())
	}
	return t.Accuracies[epoch-1]
}

// train fills r with what training reports for ids.
func (t *Trace) train(epoch int, ids []draw.SampleID, r *protocol.Report) {
	r.IDs, r.Losses, r.Embeddings = ids, r.Losses[:0], r.Embeddings[:0]
	for _, id := range ids {
		r.Losses = append(r.Losses, t.Losses[epoch][id])
		if t.Embeddings != nil {
			r.Embeddings = append(r.Embeddings, t.Embeddings[epoch][id])
		}
	}
}
