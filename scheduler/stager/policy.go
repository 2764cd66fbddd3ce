package stager

import (
	"rankpool/scheduler/draw"
)

// Use is what is known of a sample when it is drawn or scored.
type Use struct {
	ID draw.SampleID
	// Next is the time of the sample's next draw, in epochs (epoch + fraction), exact inside the
	// planned epoch and predicted beyond it; a policy that does not look ahead ignores it.
	Next float64
	// Score is the sample's latest importance; for a sample that was never scored, the scorer's
	// initial score.
	Score float32
	// Known is true if Score comes from a report of training.
	Known bool
}

// Place numbers the residents of a Cache: small, dense, and reused when its resident leaves. A
// policy keeps its data about residents in arrays by Place, so its memory grows with the residents
// and not with the data set.
type Place int32

// A Policy orders the residents of one partition. It owns no bytes, no locks and no counters: Cache
// does. It is not safe for concurrent use, and the same calls give the same answers.
type Policy interface {
	// Admit makes u's sample the resident of place p, which must be free.
	Admit(p Place, u Use)
	// Touch records a draw of the resident of p.
	Touch(p Place, u Use)
	// Refresh replaces what is known of the resident of p, without a draw.
	Refresh(p Place, u Use)
	// Remove removes the resident of p.
	Remove(p Place)
	// Victim returns the place of the resident to evict first, or false if none may be evicted.
	Victim() (Place, bool)
	// Yields reports whether the resident of victim makes room for a newcomer.
	Yields(victim Place, newcomer Use) bool
}

// A Gate is a Policy that may reject a newcomer although there is room.
type Gate interface {
	// Keeps reports whether the newcomer may become a resident at all.
	Keeps(newcomer Use) bool
}

// A LookAhead is a Policy that orders residents by Use.Next, and not by their scores. It decides on
// a batch when the batch's losses are known, since a sample's own loss predicts its next draw best;
// other policies decide when the batch enters the window, by the scores before it.
type LookAhead interface {
	// lookAt is called once, when the Cache is made, with its residents, which the Cache keeps up to
	// date.
	lookAt(of *residents)
}

// A Lister is a Policy that chooses by the importance of all samples when an epoch begins.
type Lister interface {
	// Epoch passes the scores, one per sample, which must not be modified, and whether any of them
	// comes from a report.
	Epoch(scores []float32, known bool)
}
