package stats

import (
	"encoding/json"
	"math"
)

// Measured is a number that may not have been measured: then it is NaN, and null in JSON.
type Measured float64

// MarshalJSON encodes the number.
func (m Measured) MarshalJSON() ([]byte, error) {
	if math.IsNaN(float64(m)) {
		return []byte("null"), nil
	}
	return json.Marshal(float64(m))
}

// UnmarshalJSON decodes the number.
func (m *Measured) UnmarshalJSON(text []byte) error {
	if string(text) == "null" {
		*m = Measured(math.NaN())
		return nil
	}
	return json.Unmarshal(text, (*float64)(m))
}
