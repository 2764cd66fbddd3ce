package report

import "testing"

// TestTextsFit checks that the column behind a ledger's bars is as wide as its longest text.
func TestTextsFit(t *testing.T) {
	for text, want := range map[string]float64{
		"12 %":              ledgerTexts,
		"82.4 MB ± 12.9 kB": 16 + 17*ledgerLetter,
	} {
		l := ledger{rows: []ledgerRow{{text: "1 s"}, {text: text}}}
		if got := l.textsWidth(); got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
}
