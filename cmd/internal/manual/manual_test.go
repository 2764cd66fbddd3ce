package manual

import "testing"

// TestMarkdown checks that markdown keeps the meaning of a help text.
func TestMarkdown(t *testing.T) {
	for help, want := range map[string]string{
		"a_b *c* <d>\n":          "a\\_b \\*c\\* \\<d\\>\n",
		"a:\n  b  c\n\n  d\ne\n": "a:\n\n    b  c\n\n    d\n\ne\n",
		"Exit codes:\n  0  fine": "# EXIT STATUS\n\n    0  fine\n",
		"Exit codes of --check:\n  0  fine": "# EXIT STATUS\n\nExit codes of --check:\n\n" +
			"    0  fine\n",
	} {
		if got := markdown(help); got != want {
			t.Errorf("%q: %q, want %q", help, got, want)
		}
	}
}
