package layout

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestTake(t *testing.T) {
	sys, data := mixed(t)
	s, err := take(context.Background(), sys, "/d", data, Options{})
	if err != nil {
		t.Fatal(err)
	}
	problem := s.Problem
	s.Problem = nil
	want := &Survey{
		FileSystem: Lustre, Files: 9, Bytes: 2<<20 + 10 + 100 + 1<<20 + 4*5 + 3<<20,
		Groups: []Group{
			{"", KindNone, 0, 3},
			{Lustre, KindRAID0, 0, 2},
			{Lustre, KindRAID0, 2, 2},
			{Lustre, KindDoM, 2, 1},
			{Lustre, KindRAID0, 1, 1},
		},
		Pools: []string{"flash"},
		Loads: []Load{{3, 2, 1<<20 + 10 + 2<<20}, {4, 2, 2 << 20}, {5, 2, 100 + 768<<10}},
		Known: 32, OnMDT: Load{MDT, 1, 256 << 10}, Unplaced: Load{NoTarget, 4, 20},
		SmallOnOST: 1, Released: 2, Unread: 2,
	}
	if !reflect.DeepEqual(s, want) {
		t.Errorf("got  %+v\nwant %+v", s, want)
	}
	if problem == nil || !strings.Contains(problem.Error(), "/d/bad") {
		t.Errorf("problem %v", problem)
	}
	if ratio := s.MaxOverMean(); ratio < 1.55 || ratio > 1.57 {
		t.Errorf("max over mean %v", ratio)
	}
}

// A file that fills one stripe needs no second target; one that starts a second does.
func TestTakeCountsSmallAndWide(t *testing.T) {
	sys := newFake(map[string]fakeFile{
		"/1": lustreFile(1, 2), "/2": lustreFile(1, 2),
		"/3": lustreFile(1), "/4": lustreFile(1), "/5": lustreFile(1, 2),
	})
	s, err := take(context.Background(), sys, "/", dataSet{
		{"/1", 0, 1 << 20},
		{"/2", 0, 1<<20 + 1},
		{"/3", 0, SmallFileBytes},
		{"/4", 0, SmallFileBytes - 1},
		{"/5", 0, 0},
	}, Options{})
	if err != nil || s.SmallWide != 1 || s.SmallOnOST != 1 {
		t.Errorf("%+v, %v", s, err)
	}
}

func TestTakeWithoutLayout(t *testing.T) {
	sys := newFake(map[string]fakeFile{"/f": {magic: unix.TMPFS_MAGIC}})
	s, err := take(context.Background(), sys, "/", dataSet{{"/f", 0, 1}}, Options{})
	if err != nil || !reflect.DeepEqual(s, &Survey{}) || s.MaxOverMean() != 0 || s.Hints() != nil {
		t.Errorf("%+v, %v", s, err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := take(ctx, sys, "/", dataSet{{"/f", 0, 1}}, Options{}); !errors.Is(
		err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

func TestHints(t *testing.T) {
	loads := func(bytes ...int64) (all []Load) {
		for i, n := range bytes {
			all = append(all, Load{Target: i, Files: 10, Bytes: n})
		}
		return all
	}
	four := []Group{{Lustre, KindRAID0, 1, 4}}
	for name, test := range map[string]struct {
		s    Survey
		want []string // a part of each hint, in order
	}{
		"balanced": {Survey{FileSystem: Lustre, Files: 100, Loads: loads(10, 11, 9), Known: 4}, nil},
		"released": {
			Survey{FileSystem: Lustre, Files: 9999, Released: 1234, Stubs: 1},
			[]string{"1,234 files are released", "1 file is only on a remote"},
		},
		"unread": {
			Survey{Files: 3, Unread: 1, Problem: errors.New("why")},
			[]string{"The layout of 1 file cannot be read; the first error: why."},
		},
		"few shards": {
			Survey{FileSystem: Lustre, Files: 4, Groups: four, Loads: loads(5, 5, 5, 5), Known: 32},
			[]string{"Stripe count 1 over 4 of 32 targets: \"lfs migrate -c 8 FILE\""},
		},
		"one shard": {
			Survey{FileSystem: Lustre, Files: 1, Groups: four, Loads: loads(5), Known: 3},
			[]string{"lfs migrate -c 3 FILE"},
		},
		"one pool": {
			Survey{FileSystem: Lustre, Files: 5000, Pools: []string{"flash"}, Loads: loads(5, 5), Known: 32},
			[]string{"5,000 files, but on only 2 of 32 targets (pool flash)"},
		},
		"imbalance": {
			Survey{FileSystem: Lustre, Files: 100, Loads: loads(40, 10, 10), Known: 3},
			[]string{"OST0000 holds 2.0 times the mean"},
		},
		"few are odd": {Survey{FileSystem: Lustre, Files: 3, Loads: loads(40, 10, 10), Known: 3}, nil},
		"on BeeGFS": {
			Survey{FileSystem: BeeGFS, Files: 5000, Loads: loads(10, 40, 10), SmallOnOST: 4000},
			[]string{
				"target 1 holds 2.0 times the mean of the targets in use, and reading everything waits for " +
					"it: copying",
				"4,000 files are smaller than 256 KiB: pack them",
			},
		},
		"small files": {
			Survey{FileSystem: Lustre, Files: 5000, Loads: loads(10, 10), SmallOnOST: 4000},
			[]string{"-E 256K -L mdt"},
		},
		"few are small": {Survey{
			FileSystem: Lustre, Files: 50000, Loads: loads(10, 10), SmallOnOST: 4000,
			SmallWide: 4000,
		}, nil},
		"small wide": {
			Survey{FileSystem: Lustre, Files: 5000, Loads: loads(10, 10), SmallWide: 4000},
			[]string{"4,000 files are smaller than a stripe and yet have several targets"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := test.s.Hints()
			if len(got) != len(test.want) {
				t.Fatalf("%d hints, want %d: %q", len(got), len(test.want), got)
			}
			for i, part := range test.want {
				if !strings.Contains(got[i], part) || !strings.HasSuffix(got[i], ".") {
					t.Errorf("hint %q, want one with %q", got[i], part)
				}
			}
		})
	}
}

func TestTargetName(t *testing.T) {
	got := fmt.Sprint(TargetName(Lustre, 0x1f), TargetName(BeeGFS, 31), TargetName(Lustre, MDT),
		TargetName("", NoTarget))
	if want := "OST001f" + "target 31" + "MDT" +
		"none"; strings.ReplaceAll(got, " ", "") != strings.ReplaceAll(want, " ", "") {
		t.Error(got)
	}
}
