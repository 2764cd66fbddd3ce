package doctor

import (
	"strings"

	"github.com/dustin/go-humanize"
)

// A Unit is the unit of an Amount.
type Unit string

// The units.
const (
	Count   Unit = ""
	Bytes   Unit = "bytes"
	Seconds Unit = "s"
)

// nothingYet is the place of an amount in a Detail.
const nothingYet = "{}"

// An Amount is a number in a finding that may differ between nodes without being a different
// finding.
type Amount struct {
	Value float64 `json:"value"`
	Unit  Unit    `json:"unit"`
}

func bytesOf[T int64 | uint64](n T) Amount { return Amount{float64(n), Bytes} }
func count(n int) Amount                   { return Amount{float64(n), Count} }

// String returns the amount with its unit.
func (a Amount) String() string {
	switch a.Unit {
	case Bytes:
		return humanize.IBytes(uint64(max(0, a.Value)))
	case Seconds:
		return humanize.SIWithDigits(a.Value, 2, "s")
	}
	return humanize.Comma(int64(a.Value))
}

// fill inserts the amounts into detail, each as its range over all nodes. amounts holds a list per
// node; lists of another length than the first are ignored.
func fill(detail string, amounts [][]Amount) string {
	for i := range amounts[0] {
		low, high := amounts[0][i], amounts[0][i]
		for _, node := range amounts {
			if len(node) == len(amounts[0]) {
				low.Value, high.Value = min(low.Value, node[i].Value), max(high.Value, node[i].Value)
			}
		}
		text := low.String()
		if high.String() != text {
			text += " to " + high.String()
		}
		detail = strings.Replace(detail, nothingYet, text, 1)
	}
	return detail
}
