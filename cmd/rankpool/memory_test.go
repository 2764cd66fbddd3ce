package main

import "testing"

func TestParseMemory(t *testing.T) {
	for text, want := range map[string]memorySize{
		"0":       {},
		"64GiB":   {bytes: 64 << 30},
		"20 GB":   {bytes: 20e9},
		"1.5MiB":  {bytes: 3 << 19},
		"64B":     {bytes: 64},
		"1048576": {bytes: 1 << 20}, // a program's number
		"20%":     {share: 0.2, isShare: true},
		" 100 % ": {share: 1, isShare: true},
		"0%":      {isShare: true},
	} {
		if got, err := parseMemory(text); err != nil || got != want {
			t.Errorf("parseMemory(%q) = %+v, %v, want %+v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "%", "-1", "-1%", "101%", "NaN%", "lots", "9EiB", "12 elephants", "64", " 64.5", "1,024", "1048575"} {
		if got, err := parseMemory(text); err == nil {
			t.Errorf("parseMemory(%q) = %+v, want an error", text, got)
		}
	}
}

func FuzzParseMemory(f *testing.F) {
	f.Add("64GiB")
	f.Add("20%")
	f.Fuzz(func(t *testing.T, text string) {
		if m, err := parseMemory(text); err == nil && (m.bytes < 0 || m.share < 0 || m.share > 1 || m.isShare && m.bytes != 0) {
			t.Errorf("parseMemory(%q) = %+v", text, m)
		}
	})
}

func TestMemoryAvailable(t *testing.T) {
	if m := memoryAvailable(); m.FreeBytes <= 0 || m.LimitBytes < m.FreeBytes || m.Limit == "no limit found" {
		t.Errorf("memoryAvailable() = %+v on this machine", m)
	}
}
