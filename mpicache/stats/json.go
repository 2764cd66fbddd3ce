package stats

import "encoding/json"

// MarshalJSON encodes the reading with its counters.
func (r Reading) MarshalJSON() ([]byte, error) {
	type state Reading
	return Join(state(r), counters{ofRank, &r.Sums})
}

// UnmarshalJSON decodes what MarshalJSON encodes.
func (r *Reading) UnmarshalJSON(text []byte) error {
	type state Reading
	return split(text, (*state)(r), &counters{ofRank, &r.Sums})
}

// MarshalJSON encodes the training with its counters.
func (j Job) MarshalJSON() ([]byte, error) {
	type state Job
	return Join(state(j), counters{ofJob, &j.Sums})
}

// UnmarshalJSON decodes what MarshalJSON encodes.
func (j *Job) UnmarshalJSON(text []byte) error {
	type state Job
	return split(text, (*state)(j), &counters{ofJob, &j.Sums})
}

// MarshalJSON encodes the epoch with its counters and, as draws, the number of its samples.
func (e Epoch) MarshalJSON() ([]byte, error) {
	type state Epoch
	draws := map[string]int64{"draws": int64(e.Draws())}
	return Join(state(e), draws, counters{ofEpoch, &e.Sums})
}

// UnmarshalJSON decodes what MarshalJSON encodes.
func (e *Epoch) UnmarshalJSON(text []byte) error {
	type state Epoch
	return split(text, (*state)(e), &counters{ofEpoch, &e.Sums})
}

// MarshalJSON encodes the summary with its counters.
func (s Summary) MarshalJSON() ([]byte, error) { return Join(s.Epoch, s.Whole) }

// UnmarshalJSON decodes what MarshalJSON encodes.
func (s *Summary) UnmarshalJSON(text []byte) error { return split(text, &s.Epoch, &s.Whole) }

// Join encodes the fields of several values as one JSON object.
func Join(parts ...any) ([]byte, error) {
	object := []byte{'{'}
	for _, part := range parts {
		text, err := json.Marshal(part)
		if err != nil {
			return nil, err
		}
		if len(object) > 1 && len(text) > len("{}") {
			object = append(object, ',')
		}
		object = append(object, text[1:len(text)-1]...)
	}
	return append(object, '}'), nil
}

// split decodes one JSON object into several values.
func split(text []byte, parts ...any) error {
	for _, part := range parts {
		if err := json.Unmarshal(text, part); err != nil {
			return err
		}
	}
	return nil
}

// An owner is what counters are of.
type owner int

const (
	ofRank owner = iota
	ofJob
	ofEpoch
)

// field returns a counter's field, "" if the owner does not have it.
func (o owner) field(c Counter) string {
	switch {
	case o == ofEpoch && c == TrainSeconds:
		return "seconds"
	case c <= PackageWriteBytes, o == ofEpoch && c == PlannedHits, o == ofRank && c == PeerBytes:
		return Table[c].Name
	}
	return ""
}

// counters are sums as fields of a JSON object.
type counters struct {
	of   owner
	sums *Sums
}

// MarshalJSON encodes the counters. Those that only some systems have are left out where they are
// 0, and StallSeconds are null if they were not measured.
func (l counters) MarshalJSON() ([]byte, error) {
	fields := map[string]Measured{}
	for c, sum := range l.sums {
		if name := l.of.field(Counter(c)); name != "" && (sum != 0 || !Table[c].System) {
			fields[name] = Measured(sum)
		}
	}
	return json.Marshal(fields)
}

// UnmarshalJSON decodes the counters among other fields.
func (l *counters) UnmarshalJSON(text []byte) error {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(text, &fields); err != nil {
		return err
	}
	for c := range l.sums {
		value, found := fields[l.of.field(Counter(c))]
		if !found {
			continue
		}
		if err := json.Unmarshal(value, (*Measured)(&l.sums[c])); err != nil {
			return err
		}
	}
	return nil
}
