package dataset

import (
	"math"
	"testing"

	"pgregory.net/rapid"

	"rankpool/scheduler"
	"rankpool/staging/stagingtest"
)

// TestBuildMakesAnyManifest rebuilds manifests of any kind, and sends them to another rank.
func TestBuildMakesAnyManifest(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		want := anyManifest().Draw(r, "manifest")
		got, err := Build(want.Root(), want.Classes(), want.Len(), func(i int) Sample {
			return want.Sample(scheduler.SampleID(i))
		})
		wantRead(r, want, got, err, true)
		data, err := EncodeManifest(got)
		if err != nil {
			r.Fatal(err)
		}
		sent, err := DecodeManifest(data)
		wantRead(r, got, sent, err, false)
	})
}

func TestBuildRefuses(t *testing.T) {
	for sentence, change := range map[string]func(*Sample){
		`"../f" is not a folder`:              func(s *Sample) { s.Path = "../f/x" },
		`is not a file name`:                  func(s *Sample) { s.Path = "a/" },
		"label 2 is not one of the 2 classes": func(s *Sample) { s.Label = 2 },
		"label -1 is not one":                 func(s *Sample) { s.Label = -1 },
		"it cannot have -1 bytes at offset 5": func(s *Sample) { s.Size = -1 },
		"bytes at offset 9223372036854775807": func(s *Sample) { s.Offset = math.MaxInt64 },
		"it cannot have 4 bytes at offset 5":  func(s *Sample) { s.Format = FormatFile },
		"unknown format 77":                   func(s *Sample) { s.Format = 77 },
		"sample 0 has 4 bytes, but its members have": func(s *Sample) {
			s.Members = []Member{{"a", 0, 3}}
		},
	} {
		sample := Sample{Path: "f", Format: FormatTar, Offset: 5, Size: 4}
		change(&sample)
		_, err := Build("/data", []string{"a", "b"}, 1, func(int) Sample { return sample })
		stagingtest.WantError(t, err, "staging: a manifest of /data: sample 0: ", sentence)
	}
	_, err := Build("/data", nil, 0, nil)
	stagingtest.WantError(t, err, "it holds no sample")
	_, err = Build("data", nil, 1, nil)
	stagingtest.WantError(t, err, "is not an absolute path")
	_, err = DecodeManifest([]byte("x"))
	stagingtest.WantError(t, err, "the manifest of another rank: is not a parquet file")
}
