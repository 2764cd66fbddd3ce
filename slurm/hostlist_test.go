package slurm

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// TestParseHostlist compares with what "scontrol show hostnames" of Slurm 22.05 printed, except
// where marked.
func TestParseHostlist(t *testing.T) {
	for list, want := range map[string]string{
		"":              "",
		",":             "",
		"login":         "login",
		"gpu[01-04,07]": "gpu01 gpu02 gpu03 gpu04 gpu07",
		"rack[1-2]node[01-03]": "rack1node01 rack1node02 rack1node03 rack2node01 rack2node02 " +
			"rack2node03",
		"n[1,3-4]a[1-2],m": "n1a1 n1a2 n3a1 n3a2 n4a1 n4a2 m",
		"n[9-11]":          "n9 n10 n11",
		"n[09-11]":         "n09 n10 n11",
		"n[99-101]":        "n99 n100 n101",
		"n[001-3]":         "n001 n002 n003",
		"n[1-02]":          "n1 n2",
		"n[00-02]":         "n00 n01 n02",
		"n[0-1][0-1]":      "n00 n01 n10 n11",
		"n[1-2]3[4-5]":     "n134 n135 n234 n235",
		"n[01,1,001]":      "n01 n1 n001",
		"n[1,1]":           "n1 n1",
		"a,b,a":            "a b a",
		" n1 , n2":         "n1 n2",
		"n1,,n2":           "n1 n2",
		",n1":              "n1",
		"n1 n2":            "n1 n2",
		"[1-3]":            "1 2 3",
		"3":                "3",
		"1-3":              "1-3",
		// Slurm 22.05 refuses it; later versions accept it
		"n[1-3]-ib":               "n1-ib n2-ib n3-ib",
		"n[1-2]m,x[08-10]y[1-2]z": "n1m n2m x08y1z x08y2z x09y1z x09y2z x10y1z x10y2z", // as above
		// Slurm's order differs
		"n[1-2]x[3-4]y[5-6]": "n1x3y5 n1x3y6 n1x4y5 n1x4y6 n2x3y5 n2x3y6 n2x4y5 n2x4y6",
		"n[00000000000000000000001-00000000000000000000002]": "n00000000000000000000001 " +
			"n00000000000000000000002",
	} {
		got, err := ParseHostlist(list)
		if err != nil || strings.Join(got, " ") != want {
			t.Errorf("ParseHostlist(%q) = %q, %v, want %q", list, got, err, want)
		}
		first, _, _ := strings.Cut(want, " ")
		if got := (Job{NodeList: list}).FirstHost(); got != first {
			t.Errorf("FirstHost(%q) = %q, want %q", list, got, first)
		}
	}
}

func TestParseHostlistRefuses(t *testing.T) {
	for list, tooMany := range map[string]bool{
		"n[3-1]":    false,
		"n[2-1]":    false,
		"n[]":       false,
		"n[1-2":     false,
		"n1]":       false,
		"n[1-2]]":   false,
		"n[[1-2]]":  false,
		"n[1-2 ,4]": false,
		"n[a-b]":    false,
		"n[-1]":     false,
		"n[1-]":     false,
		"n[1--2]":   false,
		"n[+1]":     false,
		"n[1-2,a]":  false,
		"n[1,]":     false,
		"n[18446744073709551615-18446744073709551616]":    false,
		strings.Repeat("n", 256):                          false,
		"n[" + strings.Repeat("0", 255) + ",1]":           false,
		"n[" + strings.Repeat("0", 300) + "1]":            false,
		"n[1-65537]":                                      true,
		"n[0-999999999999999999]":                         true,
		"n[1-65536],m":                                    true,
		"n[1-256][1-257]":                                 true,
		"n[1-65536][1-65536][1-65536][1-65536][1-65536]":  true,
		strings.Repeat("n,", 65537):                       true,
		"n[" + strings.Repeat("1-40000,", 2) + "1-40000]": true,
	} {
		hosts, err := ParseHostlist(list)
		if err == nil || hosts != nil || errors.Is(err, ErrTooManyHosts) != tooMany ||
			len(err.Error()) > 200 {
			t.Errorf("ParseHostlist(%q) = %d hosts, %v", clip(list), len(hosts), err)
		}
		if got := (Job{NodeList: list}).FirstHost(); got != "" {
			t.Errorf("FirstHost(%q) = %q", clip(list), got)
		}
	}
	for _, list := range []string{"n[1-65536]", "n[1-256][1-256]", strings.Repeat("n,", 65536)} {
		if hosts, err := ParseHostlist(list); err != nil || len(hosts) != 65536 {
			t.Errorf("ParseHostlist(%q) = %d hosts, %v", clip(list), len(hosts), err)
		}
	}
}

func TestFormatHostlist(t *testing.T) {
	for hosts, want := range map[string]string{
		"":                  "",
		"login":             "login",
		"n1 n2 n3":          "n[1-3]",
		"gpu01 gpu02 gpu04": "gpu[01-02],gpu04",
		"n8 n9 n10 n11":     "n[8-11]",
		"n08 n09 n10":       "n[08-10]",
		"n9 n10":            "n[9-10]",
		"n99 n100":          "n[99-100]",
		"n099 n100":         "n[099-100]",
		"n00 n01":           "n[00-01]",
		"n3 n1 n2":          "n3,n[1-2]",
		"n1 n1 n2":          "n1,n[1-2]",
		"n001 n01":          "n001,n01",
		"n1 n01 n2":         "n1,n01,n2",
		"1 2 3":             "[1-3]",
		"a b":               "a,b",
		"login n1":          "login,n1",
		"n1 m1 n2":          "n1,m1,n2",
		"n1-ib n2-ib":       "n1-ib,n2-ib",
		"rack1node01 rack1node02 rack2node01 rack2node02": "rack1node[01-02],rack2node[01-02]",
	} {
		if got := FormatHostlist(strings.Fields(hosts)); got != want {
			t.Errorf("FormatHostlist(%s) = %q, want %q", hosts, got, want)
		}
	}
}

func TestHostlistRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		// Few prefixes and numbers, so that there is something to fold; also different widths, ends of
		// decades and long numbers.
		name := rapid.Custom(func(t *rapid.T) string {
			return rapid.SampledFrom([]string{"n", "gpu", "r1n", "a-", ""}).Draw(t, "prefix") +
				rapid.SampledFrom([]string{
					"0", "00", "1", "2", "3", "01", "02", "9", "10", "09", "99", "100", "099",
					"999999999999999999", "1000000000000000000",
				}).Draw(t, "number") +
				rapid.SampledFrom([]string{"", "", "", "-ib"}).Draw(t, "suffix")
		})
		hosts := rapid.SliceOf(name).Draw(t, "hosts")
		text := FormatHostlist(hosts)
		got, err := ParseHostlist(text)
		if err != nil || !slices.Equal(got, hosts) {
			t.Fatalf("%q became %q, and that %q, %v", hosts, text, got, err)
		}
		if again := FormatHostlist(got); again != text {
			t.Fatalf("%q became %q and then %q", hosts, text, again)
		}
	})
}

// TestHostlistFolds checks that a range is written as one.
func TestHostlistFolds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		from, count := rapid.Int64Range(0, 1e6).Draw(t, "from"), rapid.IntRange(2, 300).Draw(t, "count")
		width := rapid.IntRange(1, 8).Draw(t, "width")
		var hosts []string
		for i := range count {
			hosts = append(hosts, "n"+pad(from+int64(i), width))
		}
		if got, want := FormatHostlist(hosts), "n["+pad(from, width)+"-"+pad(
			from+int64(count)-1, width)+"]"; got != want {
			t.Fatalf("FormatHostlist = %q, want %q", got, want)
		}
	})
}

func FuzzHostlist(f *testing.F) {
	for _, seed := range []string{
		"gpu[01-04,07]", "rack[1-2]node[01-40]-ib,login1", "n[001-3", "n[9-11] m,,", "[1-65536][1-2]",
		"a]b[", "n[00-1]",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		hosts, err := ParseHostlist(text)
		if err != nil {
			return
		}
		if len(hosts) > maxHosts {
			t.Fatalf("%d hosts", len(hosts))
		}
		for _, h := range hosts {
			if h == "" || len(h) > maxNameBytes || strings.ContainsAny(h, "[], \t\n") {
				t.Fatalf("%q is not a name", h)
			}
		}
		if again, err := ParseHostlist(FormatHostlist(hosts)); err != nil || !slices.Equal(again, hosts) {
			t.Fatalf("%q became %q, and that %q, %v", hosts, FormatHostlist(hosts), again, err)
		}
	})
}
