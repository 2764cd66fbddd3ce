package training

import (
	"fmt"

	"rankpool/scheduler/draw"
	"rankpool/scheduler/protocol"
	"rankpool/scheduler/systems"
)

// book returns what the draws of the system's own sampler depend on; nil if the system has none, or
// spec uses another one.
func (s *Training) book(spec *protocol.Spec) *book {
	system := s.rank.System
	if !system.Draws() || spec.Sampler != system.LiveSampler() {
		return nil
	}
	b := &book{
		system: system, capacityBytes: s.data.BookBytes, epochs: spec.Epochs, size: s.data.Size,
	}
	if name := s.ScorerFor(*spec); name != "" {
		scorer, err := protocol.NewScorer(name)
		if err != nil {
			panic("mpicache: " + err.Error())
		}
		b.initial = scorer.Initial(spec.BatchSize * spec.World)
	}
	if system.NeedsEmbeddings {
		b.dimensions = spec.Embeddings
		for id := range draw.SampleID(s.data.Samples) {
			b.labels = append(b.labels, int32(s.data.Label(id)))
		}
	}
	return b
}

// Choice describes what the draws of the system's own sampler depend on, besides the spec and the
// options; "" if the system has none, or spec uses another one.
func (s *Training) Choice(spec *protocol.Spec) string {
	system := s.rank.System
	if !system.Draws() || spec.Sampler != system.LiveSampler() {
		return ""
	}
	text := fmt.Sprintf("%s with %d bytes", system.Name, s.data.BookBytes)
	if system.NeedsEpochs {
		text += fmt.Sprintf(", %d epochs", spec.Epochs)
	}
	return text
}

// chooses reports whether a system's sampler chooses what to serve by the scores of all epochs.
func chooses(sampler draw.Sampler) bool {
	chooser, is := sampler.(*systems.Chooser)
	return is && !chooser.Follows()
}
