package mpicache

import "time"

// beginRecord is the first line that rank 0 writes to the run log.
type beginRecord struct {
	Event  string    `json:"event"`
	Time   time.Time `json:"time"`
	Launch string    `json:"launch"`
	Ranks  int       `json:"ranks"`
	Data   []string  `json:"data"` // the first is trained on
}

// recordBegin writes the line on rank 0 if the start of the training has a name; without one the
// line would not help readers.
func (n *Node) recordBegin() {
	if n.report == nil || n.cfg.Launch == "" || n.cfg.Record == nil {
		return
	}
	rec := beginRecord{
		Event: "begin", Time: time.Now().UTC(), Launch: n.cfg.Launch,
		Ranks: n.cfg.Transport.Size(),
	}
	for i := range n.cfg.Data {
		rec.Data = append(rec.Data, n.cfg.Data[i].Name)
	}
	n.cfg.Record(rec)
}
