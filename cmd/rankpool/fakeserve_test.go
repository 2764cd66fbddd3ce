package main

import (
	"fmt"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"

	"rankpool/cmd/internal/exit"
	"rankpool/cmd/rankpool/internal/rank"
	"rankpool/cmd/rankpool/internal/session"
	"rankpool/cmd/rankpool/internal/world"
	"rankpool/mpicache/door"
	"rankpool/mpicache/door/doortest"
)

// fakeServe stands for "rankpool serve" in the launcher's tests, where FAKESERVE is set: a door
// that greets, reports a status and accepts SHUTDOWN. FAKESERVE=fail ends it with code 2 before its
// door is open; FAKESERVE=deaf makes it ignore SHUTDOWN and SIGTERM. Rank 0 logs two epochs when it
// is asked to end. Every start appends a line to the file $FAKESERVE_STARTS.
func fakeServe() {
	if os.Getenv("FAKESERVE") == "fail" {
		fmt.Fprintln(os.Stderr, "rankpool: the fake cache has no memory")
		os.Exit(exit.Misuse)
	}
	if err := serveFakeDoor(); err != nil {
		fmt.Fprintln(os.Stderr, "fakeserve:", err)
		os.Exit(exit.Failure)
	}
}

func serveFakeDoor() error {
	at := world.Find(os.Getenv)
	o, err := rank.Given(os.Getenv)
	if err != nil {
		return err
	}
	folder := session.RankFolder(o.Session, at.Task)
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return err
	}
	if _, err := session.LockFile(filepath.Join(folder, session.LockName)); err != nil {
		return err
	}
	_ = os.Remove(filepath.Join(folder, session.DoorName))
	listener, err := net.Listen("unix", filepath.Join(folder, session.DoorName))
	if err != nil {
		return err
	}
	if err := appendLine(os.Getenv("FAKESERVE_STARTS"), strconv.Itoa(os.Getpid())); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(folder, session.ReadyName), nil, 0o600); err != nil {
		return err
	}
	if os.Getenv("FAKESERVE") == "deaf" {
		signal.Ignore(syscall.SIGTERM)
	}
	for {
		conn, err := listener.Accept()
		if err != nil {
			return err
		}
		go answer(conn, at.Task, o.Log)
	}
}

// answer replies as a rank of a training would.
func answer(conn net.Conn, rank int, log string) {
	deaf := os.Getenv("FAKESERVE") == "deaf"
	doortest.Answer(conn, func(kind door.Kind) ([]byte, bool) {
		switch kind {
		case door.KindStatus:
			return []byte(doortest.Status), true
		case door.KindShutdown:
			return nil, !deaf
		}
		return nil, true
	}, func(kind door.Kind) {
		if kind == door.KindShutdown {
			endFake(rank, log)
		}
	})
}

// endFake logs two invented epochs if it is rank 0, and ends the process.
func endFake(rank int, log string) {
	for epoch := 0; epoch < 2 && rank == 0; epoch++ {
		if err := appendLine(log, fmt.Sprintf(`{"event":"epoch","data":"train","epoch":%d,"draws":1000,"hits_local":500,`+
			`"hits_remote":100,"storage_reads":400,"storage_bytes":1048576,"substituted":0,"fallback_reads":%d,`+
			`"stall_seconds":0.25,"seconds":2.5,"planned_hits":600,"metrics":{"accuracy":0.8%d}}`, epoch, epoch, epoch)); err != nil {
			os.Exit(exit.Failure)
		}
	}
	os.Exit(exit.OK)
}

func appendLine(path, line string) error {
	if path == "" {
		return nil
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintln(f, line); err != nil {
		return err
	}
	return f.Close()
}
