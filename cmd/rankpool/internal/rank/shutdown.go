package rank

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"rankpool/cmd/internal/exit"
	"rankpool/cmd/internal/outlet"
	"rankpool/cmd/rankpool/internal/session"
	"rankpool/mpicache"
	"rankpool/mpicache/liveness"
	"rankpool/mpicache/transport/ranks"
)

// lameDuckPatience is how long a rank that is asked to end continues for connected trainers.
// Everything that must be on disk is there within 10 s after the signal, a third of Slurm's
// KillWait (30 s by default).
const lameDuckPatience = 8 * time.Second

// OthersPatience is how long a rank whose training is over waits for that of the others: one of
// them may still be writing its last checkpoint, and under most launchers the end of one task ends
// all.
const OthersPatience = 10 * time.Minute

// A shutdown is what may end the rank, and how.
type shutdown struct {
	signals  chan os.Signal
	lost     chan int     // gets the ranks that have been silent for too long
	parent   int          // the process that started this one
	together *endTogether // nil unless ranks end together
	told     bool         // the door was asked to end, or training ended after a signal
}

// serveUntilTold serves until the door is asked to end, or a signal arrives.
func (r *process) serveUntilTold() error {
	signals := r.end.signals
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	node := r.node
	r.node = nil
	missed := false // whether a rank did not answer; it may again, but is not waited for
	for {
		select {
		case <-node.Stopped():
			// run did not ask, and will restart the rank
			if !node.TrainersLeave() {
				r.logger.Warn("this rank was asked to end during training")
				return node.Abandon()
			}
			r.end.told = true
			if r.end.together != nil && !missed {
				r.end.together.await(signals, r.end.lost, OthersPatience)
			}
			return node.Close()
		case rank := <-r.end.lost:
			if r.end.together == nil {
				return errors.Join(fmt.Errorf("rank %d: %w", r.transport.Rank(), r.silence(rank)),
					node.Abandon())
			}
			missed = true
			r.logger.Error("another rank does not answer; training reads storage, and waits for "+
				"its next plan until that rank continues", "peer", rank)
		case s := <-signals:
			if exit.EndsRun(s) {
				return r.drainAndEnd(node)
			}
			r.folder.noteSignal(s.(syscall.Signal), r.logger)
		}
	}
}

// rankTimeout is how long another rank may be silent. It is longer than the launcher's timeout: the
// launcher can end a rank on its machine and report it, so it should act first.
func (r *process) rankTimeout() time.Duration {
	return r.opt.RankTimeout + min(r.opt.RankTimeout/8, math.MaxInt64-r.opt.RankTimeout)
}

// lose records a rank that has been silent for too long; only the first one matters.
func (s *shutdown) lose(rank int) {
	select {
	case s.lost <- rank:
	default:
	}
}

// silence returns the error of a rank that ends because another one does not answer: all ranks end
// that way, and can be restarted.
func (r *process) silence(rank int) error {
	return fmt.Errorf("rank %d has not answered for %v: its process is stopped or hangs, its node "+
		"is lost, or the network to it is cut", rank, r.rankTimeout())
}

// live shows the launcher that this rank is alive, whatever its storage, plans and disks are doing:
// that needs nothing but a live process. If another rank is lost while this one reads its index and
// allocates its memory, which may take minutes, this one ends, even if its storage does not
// respond.
func (r *process) live(ctx context.Context, opened <-chan struct{}) {
	tick := time.NewTicker(liveness.Every(r.opt.RankTimeout))
	defer tick.Stop()
	lost := r.end.lost
	for {
		select {
		case <-ctx.Done():
			return
		case <-opened:
			opened, lost = nil, nil
		case rank := <-lost:
			r.logger.Error(r.silence(rank).Error())
			r.endAtOnce()
		case now := <-tick.C:
			// if this fails, the rank cannot report that it is ready either
			_ = os.Chtimes(filepath.Join(r.folder.dir, session.MetName), now, now)
		}
	}
}

// endSpoilt ends the process if its memory does not hold what it put there. It can be restarted,
// and begins with empty memory.
func (r *process) endSpoilt(why error) {
	r.logger.Error("this rank ends, and can begin again with empty memory", "error", why)
	r.endAtOnce()
}

func (r *process) endAtOnce() {
	outlet.Stderr.Close(outlet.Patience)
	os.Exit(exit.Failure)
}

// drainAndEnd ends the rank after a signal: when training here has ended, after a short time if
// that takes long, and at once if another rank has died.
func (r *process) drainAndEnd(node *mpicache.Node) error {
	training := node.Training()
	ctx, cancel := context.WithTimeout(context.Background(), lameDuckPatience)
	defer cancel()
	go r.end.watchParent(ctx, cancel)
	if !node.LameDuck(ctx) {
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			save, cancel := context.WithTimeout(context.Background(),
				10*time.Second-lameDuckPatience)
			defer cancel()
			node.SaveImportance(save)
		}
		return node.Abandon()
	}
	r.end.told = training // and has ended
	// Training may have ended before this rank was asked to, when the job ends. Without a sign of
	// life from all peers the cache may be restarted.
	if r.job.InJob() && (training || node.Trained() && node.PeersLive(ctx)) {
		defer r.folder.leaveNothing()
	}
	if end, _ := ctx.Deadline(); r.end.together != nil {
		r.end.together.await(nil, r.end.lost, time.Until(end))
	}
	return node.Close()
}

// watchParent calls orphaned when the parent process is dead: then it is not the job that ends, and
// a launcher may start the ranks again. The parent's threads die one after the other, and the
// signal of the first (see endWithParent) may arrive while others are alive.
func (s *shutdown) watchParent(ctx context.Context, orphaned func()) {
	look := time.NewTicker(session.PollEvery)
	defer look.Stop()
	for os.Getppid() == s.parent {
		select {
		case <-ctx.Done():
			return
		case <-look.C:
		}
	}
	orphaned()
}

// noteSignal records a signal in the rank's folder: Slurm signals steps, and the launcher in the
// batch script does not get the signal.
func (f *ownFolder) noteSignal(s syscall.Signal, logger *slog.Logger) {
	if err := os.WriteFile(SignalMark(f.dir, s), nil, 0o600); err != nil {
		logger.Warn("a signal was not noted", "signal", s, "error", err)
	}
}

// SignalMark is the file that records that a rank got a signal.
func SignalMark(folder string, s syscall.Signal) string {
	return filepath.Join(folder, "signal-"+strconv.Itoa(int(s)))
}

// endTogether lets ranks end at the same time if each has its own launcher, which asks only its own
// rank to end.
type endTogether struct {
	tell func()        // announces, once, that this rank was asked to end
	all  chan struct{} // closed when all ranks were
}

func newEndTogether(m *ranks.Mux) *endTogether {
	all := make(chan struct{})
	return &endTogether{all: all, tell: sync.OnceFunc(func() {
		go func() {
			if ranks.Barrier(context.Background(), m, channelTold) == nil {
				close(all)
			}
		}()
	})}
}

// await announces that this rank was asked to end. It returns when all ranks were, when a signal
// arrives that ends a run, when a rank is lost, since it can no longer be asked, or after patience.
func (t *endTogether) await(signals <-chan os.Signal, lost <-chan int, patience time.Duration) {
	t.tell()
	late := time.After(patience)
	for {
		select {
		case <-t.all:
			return
		case s := <-signals:
			if exit.EndsRun(s) {
				return
			}
		case <-lost:
			return
		case <-late:
			return
		}
	}
}
