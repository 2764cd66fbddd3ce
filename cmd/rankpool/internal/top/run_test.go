package top

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"rankpool/cmd/rankpool/internal/control"
	"rankpool/cmd/rankpool/internal/session"
	"rankpool/mpicache/door"
	"rankpool/mpicache/door/doortest"
	"rankpool/mpicache/stats"
	"rankpool/slurm"
)

// A nodesDoor is a door that greets and reports a status, a second later each time.
type nodesDoor struct {
	dir   string // of the session
	nodes func(asked int) door.Status
	asked atomic.Int64
	door  net.Listener
	hello []byte // the payload of the reply to HELLO
}

// openNodesDoor opens the door of rank in a session below base. The path of a socket must stay
// short.
func openNodesDoor(
	t *testing.T, base, name string, rank int, nodes func(asked int) door.Status,
) *nodesDoor {
	t.Helper()
	golden := doortest.GoldenFrames(t, "../../../../docs/wire/frames.txt")["hello_reply"]
	header := len(door.AppendFrame(nil, door.KindHello, 0, nil))
	d := &nodesDoor{dir: filepath.Join(base, name), nodes: nodes, hello: golden[header:]}
	folder := session.RankFolder(d.dir, rank)
	if err := os.MkdirAll(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	d.door = doortest.ListenAt(t, filepath.Join(folder, session.DoorName), func(conn net.Conn) {
		defer conn.Close()
		doortest.Answer(conn, d.reply, nil)
	})
	return d
}

func (d *nodesDoor) reply(kind door.Kind) (payload []byte, ok bool) {
	if kind != door.KindStatus {
		return d.hello, true
	}
	status := d.nodes(int(d.asked.Add(1)))
	if status.Nodes == nil {
		return []byte("not JSON"), true
	}
	payload, err := json.Marshal(status)
	return payload, err == nil
}

// shortDir returns a folder whose path leaves room for a socket's.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "rp") //nolint:usetesting // t.TempDir is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// running returns a function that reports n ranks, a second later every time.
func running(n int) func(int) door.Status {
	return func(asked int) door.Status {
		return door.Status{Ranks: n, Nodes: someNodes(n, 100+float64(asked))}
	}
}

func topOf(d *nodesDoor, out io.Writer) *run {
	return &run{
		Options: Options{Interval: time.Millisecond}, dir: d.dir, out: out,
		door: control.Poller{Path: filepath.Join(session.RankFolder(d.dir, 0), session.DoorName)},
	}
}

func onceOf(d *nodesDoor, out io.Writer) *run {
	t := topOf(d, out)
	t.Once = true
	return t
}

func TestTopOnce(t *testing.T) {
	d := openNodesDoor(t, shortDir(t), "rankpool-0-slurm77", 0, running(2))
	var out bytes.Buffer
	if err := onceOf(d, &out).follow(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"job 77  2 of 2 ranks  train epoch 3",
		"\n   1 nid002      5,000  40.0 %  20.0 %", "\nall ",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
	if n := d.asked.Load(); n != 2 {
		t.Errorf("asked %d times, want 2", n)
	}
}

func TestTopOnceJSON(t *testing.T) {
	d := openNodesDoor(t, shortDir(t), "s", 0, func(asked int) door.Status {
		nodes := someNodes(3, 100+float64(asked/2)) // news every other time
		return door.Status{Ranks: 4, Nodes: nodes}
	})
	var out bytes.Buffer
	run := onceOf(d, &out)
	run.JSON = true
	if err := run.follow(t.Context()); err != nil {
		t.Fatal(err)
	}
	var report struct {
		Session string
		Ranks   int
		Silent  []int
		Total   struct{ Nodes, Trainers int }
		Nodes   []struct {
			Host       string
			HitsRemote float64 `json:"hits_remote"`
			Rates      struct {
				SamplesPerSecond float64 `json:"samples_per_second"`
			}
			GPU float64 `json:"gpu_utilisation"`
		}
	}
	if err := json.Unmarshal(out.Bytes(), &report); err != nil {
		t.Fatalf("%v in %s", err, out.String())
	}
	if report.Session != d.dir || report.Ranks != 4 || fmt.Sprint(report.Silent) != "[3]" ||
		report.Total.Nodes != 3 || report.Total.Trainers != 12 ||
		len(report.Nodes) != 3 || report.Nodes[1].Rates.SamplesPerSecond != 5000 ||
		report.Nodes[1].Host != "nid002" || report.Nodes[1].HitsRemote != 303000 {
		t.Errorf("got %s", out.String())
	}
}

// A rank without new readings does not keep --once waiting forever.
func TestTopOnceOfAFrozenRank(t *testing.T) {
	d := openNodesDoor(t, shortDir(t), "s", 0,
		func(int) door.Status { return door.Status{Ranks: 1, Nodes: someNodes(1, 100)} })
	var out bytes.Buffer
	if err := onceOf(d, &out).follow(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := d.asked.Load(); n != onceReadings || !strings.Contains(out.String(), "nid001") {
		t.Errorf("asked %d times, printed\n%s", n, out.String())
	}
}

// stream continues while a rank restarts, and ends with the run.
func TestTopStream(t *testing.T) {
	base := shortDir(t)
	var d *nodesDoor
	d = openNodesDoor(t, base, "s", 0, func(asked int) door.Status {
		switch asked {
		case 3:
			return door.Status{} // an error: asked again over a new connection
		case 5:
			d.door.Close()
			os.RemoveAll(d.dir)
			return door.Status{}
		}
		return running(1)(asked)
	})
	var out bytes.Buffer
	run := topOf(d, &out)
	run.JSON = true
	if err := run.follow(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(out.String(), "\n"); n < 2 || n > 4 {
		t.Errorf("%d lines of JSON\n%s", n, out.String())
	}
	if err := topOf(d, &out).follow(t.Context()); err == nil {
		t.Error("no error for a session that does not exist")
	}
}

func TestNotes(t *testing.T) {
	ranks := func(numbers ...int) (nodes []stats.Reading) {
		for _, r := range numbers {
			nodes = append(nodes, stats.Reading{Rank: r})
		}
		return nodes
	}
	for _, tc := range []struct {
		status door.Status
		want   []string
	}{
		{door.Status{Rank: 0, Ranks: 2, Nodes: ranks(0, 1)}, nil},
		{door.Status{Rank: 0, Ranks: 3, Nodes: ranks(0, 2)}, []string{"rank 1 is silent"}},
		{
			door.Status{Rank: 0, Ranks: 12, Nodes: ranks(0)},
			[]string{"11 of 12 ranks are silent, rank 1 first"},
		},
		{
			door.Status{Rank: 3, Ranks: 4, Nodes: ranks(3)},
			[]string{"this is rank 3 of 4 alone: rank 0 knows all, so call top on its node"},
		},
	} {
		if got := notesOn(tc.status); fmt.Sprint(got) != fmt.Sprint(tc.want) {
			t.Errorf("%+v: %q, want %q", tc.status, got, tc.want)
		}
	}
}

func TestFindTopSession(t *testing.T) {
	bases := []string{shortDir(t), shortDir(t)}
	const uid = 4321
	name := func(job string) string { return fmt.Sprintf("rankpool-%d-%s", os.Getuid(), job) }
	want := func(env map[string]string, named, dir, complaint string) {
		t.Helper()
		for _, name := range []string{"SLURM_JOB_ID", "RANKPOOL_SESSION"} {
			t.Setenv(name, env[name])
		}
		got, err := find(named, bases)
		if got != dir || (err == nil) != (complaint == "") ||
			err != nil && !strings.Contains(err.Error(), complaint) {
			t.Errorf("%v %q: %s, %v; want %s, %q", env, named, got, err, dir, complaint)
		}
	}
	job := map[string]string{"SLURM_JOB_ID": "77"}
	want(nil, "", "", "no cache of yours runs on this machine; call top on the first node of its")
	want(job, "", "", "no rank of job 77 serves on this machine; call top on the job's first node: "+
		"srun --overlap --jobid=77 --nodes=1 --ntasks=1 --pty rankpool top")
	// Dead sessions and those of other users do not count.
	if err := os.MkdirAll(filepath.Join(bases[0], name("pid1-dead"), "r0"), 0o700); err != nil {
		t.Fatal(err)
	}
	openNodesDoor(t, bases[0], fmt.Sprintf("rankpool-%d-pid2-other", os.Getuid()+uid), 0,
		running(1))
	want(nil, "", "", "no cache of yours")
	one := openNodesDoor(t, bases[1], name("pid3-live"), 2, running(1))
	want(nil, "", one.dir, "")
	want(job, "", one.dir, "")
	two := openNodesDoor(t, bases[0], name("slurm77"), 0, running(1))
	note := func(dir, id string) {
		t.Helper()
		if err := session.NoteJob(session.RankFolder(dir, 0), slurm.Job{JobID: id}); err != nil {
			t.Fatal(err)
		}
	}
	note(two.dir, "77")
	want(job, "", two.dir, "")
	want(
		nil, "", "",
		"several caches run here; choose one with --session:\n  "+two.dir+" (train)\n  "+
			one.dir+" (train)")
	want(map[string]string{"RANKPOOL_SESSION": one.dir, "SLURM_JOB_ID": "77"}, "", one.dir, "")
	want(map[string]string{"RANKPOOL_SESSION": one.dir}, two.dir, two.dir, "")
	// If a job started run with mpirun, or as one step, its sessions are not named after it.
	three := openNodesDoor(t, bases[0], name("pid4-job78"), 0, running(1))
	note(three.dir, "78")
	want(job, "", two.dir, "")
	want(map[string]string{"SLURM_JOB_ID": "78"}, "", three.dir, "")
	want(map[string]string{"SLURM_JOB_ID": "79"}, "", one.dir, "")
	note(three.dir, "77")
	want(
		job, "", "",
		"several caches run here; choose one with --session:\n  "+three.dir+" (train)\n  "+
			two.dir+" (train)")
	three.door.Close()
	two.door.Close()
	want(job, "", one.dir, "")
}

func TestFirstDoor(t *testing.T) {
	dir := t.TempDir()
	if _, err := firstDoor(dir); err == nil {
		t.Error("an empty folder has a door")
	}
	if _, err := firstDoor(filepath.Join(dir, "x")); err == nil ||
		!strings.Contains(err.Error(), "RemoveIPC") {
		t.Errorf("a folder that is gone: %v", err)
	}
	for _, name := range []string{"r10", "r9", "python"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := firstDoor(dir); err != nil || got != filepath.Join(dir, "r9", session.DoorName) {
		t.Errorf("%s, %v", got, err)
	}
}
