package memory

import "testing"

func TestParseMemory(t *testing.T) {
	for text, want := range map[string]Amount{
		"0":       {},
		"64GiB":   {Bytes: 64 << 30},
		"20 GB":   {Bytes: 20e9},
		"1.5MiB":  {Bytes: 3 << 19},
		"64B":     {Bytes: 64},
		"1048576": {Bytes: 1 << 20}, // a program's number
		"20%":     {Share: 0.2, IsShare: true},
		" 100 % ": {Share: 1, IsShare: true},
		"0%":      {IsShare: true},
	} {
		if got, err := Parse(text); err != nil || got != want {
			t.Errorf("parseMemory(%q) = %+v, %v, want %+v", text, got, err, want)
		}
	}
	for _, text := range []string{
		"", "%", "-1", "-1%", "101%", "NaN%", "lots", "9EiB",
		"12 elephants", "64", " 64.5", "1,024", "1048575",
	} {
		if got, err := Parse(text); err == nil {
			t.Errorf("parseMemory(%q) = %+v, want an error", text, got)
		}
	}
}

func FuzzParseMemory(f *testing.F) {
	f.Add("64GiB")
	f.Add("20%")
	f.Fuzz(func(t *testing.T, text string) {
		if m, err := Parse(text); err == nil &&
			(m.Bytes < 0 || m.Share < 0 || m.Share > 1 || m.IsShare && m.Bytes != 0) {
			t.Errorf("parseMemory(%q) = %+v", text, m)
		}
	})
}

func TestMemoryAvailable(t *testing.T) {
	if m := Available(); m.FreeBytes <= 0 || m.LimitBytes < m.FreeBytes ||
		m.Limit == "no limit found" {
		t.Errorf("memoryAvailable() = %+v on this machine", m)
	}
}
