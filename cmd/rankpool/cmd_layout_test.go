package main

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
	"unicode/utf8"

	storage "rankpool/staging/layout"
)

func surveyOf(loads ...storage.Load) *storage.Survey {
	return &storage.Survey{
		FileSystem: storage.Lustre, Files: 1234, Bytes: 60 << 20, Loads: loads, Known: 32,
		Pools: []string{"flash"},
		Groups: []storage.Group{{
			FileSystem: storage.Lustre, Kind: storage.KindRAID0, Stripes: 1,
			Files: 1230,
		}, {Files: 4}},
		OnMDT: storage.Load{Target: storage.MDT, Files: 2, Bytes: 1}, Released: 4,
	}
}

func TestPrintSurvey(t *testing.T) {
	var out strings.Builder
	s := surveyOf(storage.Load{Target: 3, Files: 1200, Bytes: 40 << 20},
		storage.Load{Target: 31, Files: 34, Bytes: 20 << 20})
	if err := printSurvey(&out, "/d", s, barStyle{60, "#"}); err != nil {
		t.Fatal(err)
	}
	want := `data set:    /d
file system: lustre
files:       1,234 (60 MiB)
layouts:     1,230 raid0 over 1, 4 none
pools:       flash
targets:     2 of 32 in use, the fullest holds 1.33 times their mean

OST0003  1,200 files  40 MiB  #############################
OST001f  34 files     20 MiB  ##############
MDT      2 files      1 B     #

hint: 4 files are released to the archive, and a read waits for a tape: restore them first, with "lfs find DIR --layout released -print0 | xargs -0 lfs hsm_restore".

hint: 1,234 files, but on only 2 of 32 targets (pool flash): "lfs getstripe -d DIR" shows whether the folder's default names a first target or a pool.
`
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
}

// No line of the picture is as wide as the terminal, and every bar has at least minBar columns.
func TestPrintBarsFitsTerminal(t *testing.T) {
	s := surveyOf(storage.Load{Target: 3, Files: 1200, Bytes: 40 << 20},
		storage.Load{Target: 4, Files: 0, Bytes: 0})
	for _, width := range []int{50, 80, 237} {
		var out strings.Builder
		if err := printBars(&out, s, barStyle{width, "█"}); err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(out.String(), "\n")
		if got := utf8.RuneCountInString(lines[0]); got != width-1 {
			t.Errorf("the longest line has %d columns of %d:\n%s", got, width, out.String())
		}
		if strings.Contains(lines[1], "█") {
			t.Errorf("a bar of nothing:\n%s", out.String())
		}
	}
	var out strings.Builder
	if err := printBars(&out, s, barStyle{5, "#"}); err != nil ||
		strings.Count(strings.Split(out.String(), "\n")[0], "#") != minBar {
		t.Errorf("on a terminal of 5 columns:\n%s", out.String())
	}
}

func TestManyTargetsFitAScreen(t *testing.T) {
	var loads []storage.Load
	for i := range 100 {
		loads = append(loads, storage.Load{Target: i, Files: 1, Bytes: int64(i)})
	}
	s := surveyOf(loads...)
	s.OnMDT = storage.Load{}
	var out strings.Builder
	if err := printBars(&out, s, barStyle{80, "#"}); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != maxBars+1 || !strings.HasPrefix(lines[0], "OST0063") ||
		lines[maxBars/2] != "(60 more)" || !strings.HasPrefix(lines[maxBars], "OST0000") {
		t.Errorf("%d lines:\n%s", len(lines), out.String())
	}
}

func TestLayoutJSON(t *testing.T) {
	s := surveyOf(storage.Load{Target: 3, Files: 1200, Bytes: 30},
		storage.Load{Target: 31, Files: 34, Bytes: 10})
	s.Hints()
	text, err := json.Marshal(newLayoutJSON("/d", s))
	if err != nil {
		t.Fatal(err)
	}
	want := `{"data":"/d","file_system":"lustre","files":1234,"bytes":62914560,` +
		`"layouts":[{"file_system":"lustre","kind":"raid0","targets":1,"files":1230},{"file_system":"none","kind":"none","targets":0,"files":4}],` +
		`"pools":["flash"],"targets":[{"target":"OST0003","files":1200,"bytes":30},{"target":"OST001f","files":34,"bytes":10},{"target":"MDT","files":2,"bytes":1}],` +
		`"targets_of_file_system":32,"max_over_mean":1.5,"released":4,"stubs":0,"unreadable":0,"hints":[`
	if !strings.HasPrefix(string(text), want) {
		t.Errorf("got  %s\nwant %s", text, want)
	}
}

// Anything that is not a terminal gets plain ASCII.
func TestPictureStyle(t *testing.T) {
	file, err := os.Create(t.TempDir() + "/out")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if got := pictureStyle(file); got != (barStyle{plainWidth, "#"}) {
		t.Errorf("%+v", got)
	}
}
