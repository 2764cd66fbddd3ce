package protocol

// held are reports of epochs that are not open yet, in order of arrival.
type held struct {
	reports []Trained
	by      map[int]map[place]bool // by trainer: the batches of reports
}

func noneHeld() held { return held{by: map[int]map[place]bool{}} }

// hold keeps a report for later. A trainer that reconnects before there is a plan resends all its
// reports.
func (h *held) hold(r Trained) {
	by, at := h.by[r.Trainer], place{r.Epoch, r.Batch}
	if by == nil {
		by = map[place]bool{}
		h.by[r.Trainer] = by
	}
	if !by[at] {
		by[at] = true
		h.reports = append(h.reports, r)
	}
}

// take returns the reports, and holds none of them any more.
func (h *held) take() []Trained {
	reports := h.reports
	h.reports = nil
	clear(h.by)
	return reports
}
