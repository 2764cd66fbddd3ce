package sizes

import (
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	for text, want := range map[string]int64{
		"0": 0, "0B": 0, "64GiB": 64 << 30, "64gib": 64 << 30, "20 GB": 20e9, " 1.5MiB ": 3 << 19,
		"64B": 64, "1.5kB": 1500, "1.5KB": 1500, "1048576": 1 << 20, "0.5TiB": 1 << 39, "2PB": 2e15,
	} {
		if got, err := Parse(text); err != nil || got != want {
			t.Errorf("Parse(%q) = %d, %v, want %d", text, got, err, want)
		}
	}
	for text, want := range map[string]string{
		"":                    "is not a size such as 64GiB",
		"1,5GiB":              "is not a size such as 64GiB",
		"0,3kB":               "is not a size such as 64GiB",
		"1,024MiB":            "is not a size such as 64GiB",
		"1_000MB":             "is not a size such as 64GiB",
		"1.000.000B":          "is not a size such as 64GiB",
		"-1GiB":               "is not a size such as 64GiB",
		"+1GiB":               "is not a size such as 64GiB",
		".5GiB":               "is not a size such as 64GiB",
		"1e3GB":               "is not a size such as 64GiB",
		"0x10GB":              "is not a size such as 64GiB",
		"infGB":               "is not a size such as 64GiB",
		"12 elephants":        "is not a size such as 64GiB",
		"64G":                 "is not a size such as 64GiB", // 1000 or 1024?
		"64Gb":                "is not a size such as 64GiB", // bits?
		"64GiBs":              "is not a size such as 64GiB",
		"64GB/s":              "is not a size such as 64GiB",
		"20%":                 "is not a size such as 64GiB",
		"0.3B":                "is not a size such as 64GiB",
		"0.5":                 "has no unit: write a size such as",
		"1.5":                 "has no unit: write a size such as",
		"20":                  "has no unit: write a size such as",
		"1048575":             "has no unit: write a size such as",
		"1048576.5":           "has no unit: write a size such as",
		"9EiB":                "is not a size below 8EiB",
		"9223372036854775808": "is not a size below 8EiB",
	} {
		if got, err := Parse(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Parse(%q) = %d, %v, want an error with %q", text, got, err, want)
		}
	}
}

func TestRate(t *testing.T) {
	for text, want := range map[string]int64{
		"0": 0, "10GB": 10e9, "2GiB/s": 2 << 30, "1.5 MB/s": 15e5,
	} {
		if got, err := Rate(text); err != nil || got != want {
			t.Errorf("Rate(%q) = %d, %v, want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"0.5", "1,5GB/s", "10Gb/s", "10GB/h", "10GBps", "20%", "/s"} {
		if got, err := Rate(text); err == nil {
			t.Errorf("Rate(%q) = %d, want an error", text, got)
		}
	}
}

func TestShare(t *testing.T) {
	for text, want := range map[string]float64{"0%": 0, "20%": 0.2, " 100 % ": 1, "12.5%": 0.125} {
		if got, is, err := Share(text); err != nil || !is || got != want {
			t.Errorf("Share(%q) = %v, %v, %v, want %v", text, got, is, err, want)
		}
	}
	for _, text := range []string{
		"%", "-1%", "101%", "12,5%", "0x10%", "NaN%", "1e1%", "20%%", "5 GB%",
	} {
		if got, is, err := Share(text); err == nil || !is {
			t.Errorf("Share(%q) = %v, %v, want an error", text, got, is)
		}
	}
	if _, is, err := Share("20GB"); is || err != nil {
		t.Errorf("20GB is a share: %v, %v", is, err)
	}
}
