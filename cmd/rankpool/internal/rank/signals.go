package rank

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"rankpool/cmd/rankpool/internal/exit"
	"rankpool/cmd/rankpool/internal/outlet"
	"rankpool/cmd/rankpool/internal/session"
	"rankpool/mpicache"
	"rankpool/mpicache/liveness"
	"rankpool/slurm"
)

// lameDuckPatience is how long a rank that is asked to end continues for connected trainers.
// Everything that must be on disk is there within 10 s after the signal, a third of Slurm's
// KillWait (30 s by default).
const lameDuckPatience = 8 * time.Second

// serveUntilTold serves until the door is asked to end, or a signal arrives.
func (r *process) serveUntilTold() error {
	signals := r.signals
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	node := r.node
	r.node = nil
	missed := false // a rank that does not answer; it may again, but is not waited for
	for {
		select {
		case <-node.Stopped():
			// not asked by run, which will restart the rank
			if r.opt.Launch != "" && !node.TrainersLeave() {
				r.logger.Warn("this rank was asked to end during training")
				return node.Abandon()
			}
			r.told = true
			if r.together != nil && !missed {
				r.together.await(signals, r.lost, OthersPatience)
			}
			return node.Close()
		case err := <-r.blocks:
			return errors.Join(cancelStep(slurm.Detect(os.Getenv), err), node.Abandon())
		case rank := <-r.lost:
			if r.together == nil {
				return errors.Join(r.silence(rank), node.Abandon())
			}
			missed = true
			r.logger.Error("another rank does not answer; training reads storage, and waits for "+
				"its next plan until that rank continues", "peer", rank)
		case s := <-signals:
			if exit.EndsRun(s) {
				return r.drainAndEnd(node)
			}
			r.noteSignal(s.(syscall.Signal))
		}
	}
}

// rankTimeout is how long another rank may be silent. The launcher, which can end a rank on its
// machine and report it, acts first.
func (r *process) rankTimeout() time.Duration {
	return r.opt.RankTimeout + min(r.opt.RankTimeout/8, math.MaxInt64-r.opt.RankTimeout)
}

// lose records a rank that has been silent for too long; only the first one matters.
func (r *process) lose(rank int) {
	select {
	case r.lost <- rank:
	default:
	}
}

// silence is the error of a rank that ends because another one does not answer: so all ranks end,
// and can be restarted.
func (r *process) silence(rank int) error {
	return fmt.Errorf("rank %d: rank %d has not answered for %v: its process is stopped or "+
		"hangs, its node is lost, or the network to it is cut",
		r.transport.Rank(), rank, r.rankTimeout())
}

// liveUntil shows the launcher that this rank lives while it reads its index and takes its memory,
// which may take minutes: from then on its door does. When another rank is lost meanwhile, this one
// ends, though its storage may not answer.
func (r *process) liveUntil(opened <-chan struct{}) {
	tick := time.NewTicker(liveness.Every(r.opt.RankTimeout))
	defer tick.Stop()
	for {
		select {
		case <-opened:
			return
		case rank := <-r.lost:
			r.logger.Error(r.silence(rank).Error())
			r.endAtOnce()
		case now := <-tick.C:
			// where it cannot be done, the rank cannot say that it is ready either
			_ = os.Chtimes(filepath.Join(r.dir, session.MetName), now, now)
		}
	}
}

// endSpoilt ends the process, where what it has in memory is not what it put there. It can be
// restarted, and begins with empty memory.
func (r *process) endSpoilt(why error) {
	r.logger.Error("this rank ends, and can begin again with empty memory", "error", why)
	r.endAtOnce()
}

func (r *process) endAtOnce() {
	flushLog(r.logger)
	outlet.Stderr.Close(outlet.Patience)
	os.Exit(exit.Failure)
}

// drainAndEnd ends the rank after a signal: when training here has ended, soon if that takes long,
// and at once if another rank has died.
func (r *process) drainAndEnd(node *mpicache.Node) error {
	training := node.Training()
	ctx, cancel := context.WithTimeout(context.Background(), lameDuckPatience)
	defer cancel()
	go r.watchParent(ctx, cancel)
	if !node.LameDuck(ctx) {
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			save, cancel := context.WithTimeout(context.Background(),
				10*time.Second-lameDuckPatience)
			defer cancel()
			node.SaveImportance(save)
		}
		return node.Abandon()
	}
	r.told = training // and has ended
	// Training may have ended before this rank was asked to, when the job ends. Without a sign of
	// life from all peers the cache may be restarted.
	if slurm.Detect(os.Getenv).InJob() && (training || node.Trained() && node.PeersLive(ctx)) {
		defer r.leaveNothing()
	}
	if end, _ := ctx.Deadline(); r.together != nil {
		r.together.await(nil, r.lost, time.Until(end))
	}
	r.endLaunch()
	return node.Close()
}

// watchParent calls orphaned when the process that started this one is dead: not the job ends, and
// a launcher may start the ranks again. Its threads die one after the other, and the first has the
// signal sent (see endWithParent): the others may live for a moment.
func (r *process) watchParent(ctx context.Context, orphaned func()) {
	look := time.NewTicker(session.PollEvery)
	defer look.Stop()
	for os.Getppid() == r.parent {
		select {
		case <-ctx.Done():
			return
		case <-look.C:
		}
	}
	orphaned()
}

// noteSignal leaves a mark of a signal in the rank's folder: Slurm signals steps, and the launcher
// in the batch script does not get the signal.
func (r *process) noteSignal(s syscall.Signal) {
	if err := os.WriteFile(SignalMark(r.dir, s), nil, 0o600); err != nil {
		r.logger.Warn("a signal was not noted", "signal", s, "error", err)
	}
}

// SignalMark is the file that records that a rank got a signal.
func SignalMark(folder string, s syscall.Signal) string {
	return filepath.Join(folder, "signal-"+strconv.Itoa(int(s)))
}
