package doctor

import (
	"fmt"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
)

// A Unit is the unit of an Amount.
type Unit string

// The units.
const (
	Count      Unit = ""
	Bytes      Unit = "bytes"
	Seconds    Unit = "s"
	nothingYet      = "{}"     // the place of an amount in a Detail
	kept            = "{\x00}" // stands for a literal "{}": no path contains a zero byte
)

// An Amount is a number in a finding that may differ between nodes without being a different
// finding.
type Amount struct {
	Value float64 `json:"value"`
	Unit  Unit    `json:"unit"`
}

func bytesOf[T int64 | uint64](n T) Amount { return Amount{float64(n), Bytes} }
func count(n int) Amount                   { return Amount{float64(n), Count} }
func lasting(d time.Duration) Amount       { return Amount{d.Seconds(), Seconds} }

// String returns the amount with its unit, to three digits.
func (a Amount) String() string {
	switch a.Unit {
	case Bytes:
		return humanize.IBytes(uint64(max(0, a.Value)))
	case Seconds:
		return shortly(time.Duration(a.Value * float64(time.Second)))
	}
	return humanize.Comma(int64(a.Value))
}

// shortly formats a duration to two or three digits: "1.2 ms".
func shortly(d time.Duration) string {
	switch abs := d.Abs(); {
	case abs >= time.Hour:
		return fmt.Sprintf("%.1f h", d.Hours())
	case abs >= 2*time.Minute:
		return fmt.Sprintf("%.0f min", d.Minutes())
	case abs >= time.Second:
		return fmt.Sprintf("%.3g s", d.Seconds())
	case abs >= time.Millisecond:
		return fmt.Sprintf("%.3g ms", d.Seconds()*1e3)
	}
	return fmt.Sprintf("%.3g µs", d.Seconds()*1e6)
}

// verbatim escapes "{}" in text for a Detail, such as a path, so that fill does not replace it.
func verbatim(text string) string { return strings.ReplaceAll(text, nothingYet, kept) }

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
	return strings.ReplaceAll(detail, kept, nothingYet)
}
