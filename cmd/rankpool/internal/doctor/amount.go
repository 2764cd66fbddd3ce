package doctor

import (
	"fmt"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
)

// A Unit says what an Amount counts.
type Unit string

// The units.
const (
	Count      Unit = ""
	Bytes      Unit = "bytes"
	PerSecond  Unit = "bytes/s"
	Seconds    Unit = "s"
	nothingYet      = "{}"     // where an amount belongs in a Detail
	kept            = "{\x00}" // stands for "{}" itself: no path has a zero byte
)

// An Amount is a number of a finding that differs between nodes without a difference in what is
// found.
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
	case PerSecond:
		return humanize.Bytes(uint64(max(0, a.Value))) + "/s"
	case Seconds:
		return shortly(time.Duration(a.Value * float64(time.Second)))
	}
	return humanize.Comma(int64(a.Value))
}

// shortly returns a duration to two or three digits: "1.2 ms".
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

// verbatim keeps a "{}" in text that is put into a Detail, as a path may have one, from being taken
// for an amount's place.
func verbatim(text string) string { return strings.ReplaceAll(text, nothingYet, kept) }

// fill returns detail with its amounts, each as the range over those of all nodes. amounts holds a
// list a node; lists of other lengths than the first are left out.
func fill(detail string, amounts [][]Amount) string {
	for i := range amounts[0] {
		low, high := amounts[0][i], amounts[0][i]
		for _, node := range amounts {
			if len(node) != len(amounts[0]) {
				continue
			}
			if node[i].Value < low.Value {
				low = node[i]
			}
			if node[i].Value > high.Value {
				high = node[i]
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
