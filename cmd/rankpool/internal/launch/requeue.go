package launch

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"rankpool/cmd/internal/exit"
	"rankpool/cmd/rankpool/internal/messages"
	"rankpool/cmd/rankpool/internal/rank"
	"rankpool/cmd/rankpool/internal/session"
	"rankpool/slurm"
)

// requeueSignal is the signal that sbatch scripts commonly ask for.
const requeueSignal = "USR1"

// endedBySlurmWithin bounds how long run waits for Slurm to end it after the job was requeued;
// Slurm does so within a second or two.
const endedBySlurmWithin = time.Minute

// handlerWithin is how long training may take to load its libraries; after that it handles signals
// if it ever will.
const handlerWithin = 2 * time.Minute

// A requeue is run's part in restarting a Slurm job: a signal announces the end of the job's time,
// training ends, and Slurm starts the job again. The zero value never requeues.
type requeue struct {
	signal  syscall.Signal // announces that the job's time is over; 0: run does not requeue
	job     slurm.Job
	begin   time.Time      // of this life
	here    bool           // of several launchers of the job, this one asks Slurm
	told    bool           // the signal arrived before training had ended
	ending  bool           // SIGTERM did
	signals chan os.Signal // signals sent to run
}

// checkRequeue parses and validates the flag.
func (o *Options) checkRequeue() error {
	switch strings.TrimPrefix(strings.ToUpper(o.requeue), "SIG") {
	case "":
	case "USR1":
		o.requeueOn = unix.SIGUSR1
	case "USR2":
		o.requeueOn = unix.SIGUSR2
	default:
		return exit.Usagef("--requeue must be USR1 or USR2, as in #SBATCH --signal=B:USR1@120, not %q",
			o.requeue)
	}
	return nil
}

// wants reports whether s announces that the job's time is over.
func (q *requeue) wants(s os.Signal) bool { return q.signal != 0 && s == q.signal }

// note records a signal that arrived before training had ended.
func (q *requeue) note(s os.Signal) {
	q.told = q.told || q.wants(s)
	q.ending = q.ending || s == unix.SIGTERM
}

// noteMarks records the signal if a rank of this machine noted it: Slurm may send it to the steps
// and not to run.
func (q *requeue) noteMarks(folders []string) {
	for _, folder := range folders {
		if _, err := os.Stat(rank.SignalMark(folder, q.signal)); err == nil {
			q.note(q.signal)
		}
	}
}

// conclude asks Slurm to start the job again if its time was over before training ended, and then
// waits for Slurm to end this process. err is the result of run, which conclude returns.
func (q *requeue) conclude(err error) error {
	if q.signal == 0 || !q.here {
		return err
	}
	var ended exit.SignalError
	if errors.As(err, &ended) {
		q.note(ended.Signal) // nothing was trained yet
	}
	if !q.job.InJob() {
		if q.told {
			messages.Say("this is not a Slurm job, so it cannot be requeued; start the same command again")
		}
		return err
	}
	state, known := askJob(q.job)
	if !known && !q.told || known && !state.requeues(q.told, q.ending, q.job.RestartCount) {
		return err
	}
	if q.job.RestartCount > 0 && time.Since(q.begin) > handlerWithin &&
		diedOfUserSignal(trainingCode(err)) {
		messages.Say("job %s is not requeued: training died of the signal that it was to save a "+
			"checkpoint at, and this job was requeued before; give the training script a handler "+
			"(rankpool.Stop)", jobName(q.job))
		return err
	}
	for len(q.signals) > 0 {
		<-q.signals
	}
	text, failed := slurmCommand("scontrol", "requeue", jobName(q.job))
	if failed != nil && !endedBySignal(failed) {
		messages.Say("Slurm does not requeue job %s (%s); submit it again, and it continues where it was",
			jobName(q.job), text)
		return err
	}
	messages.Say("job %s is requeued%s", jobName(q.job), outlook(trainingCode(err)))
	select {
	case <-q.signals:
	case <-time.After(endedBySlurmWithin):
	}
	return err
}

// trainingCode returns the exit code of training, 0 where run ends by err before training began.
func trainingCode(err error) int {
	var status *exit.StatusError
	if !errors.As(err, &status) || status.Cause != nil {
		return 0
	}
	return status.Code
}

// diedOfUserSignal reports whether code is that of a training that SIGUSR1 or SIGUSR2 ended. It had
// no handler yet, or never has one: then the job would start over in every life.
func diedOfUserSignal(code int) bool {
	return slices.Contains(userSignals, syscall.Signal(code-exit.BySignal))
}

// outlook describes where the next life of the job begins.
func outlook(code int) string {
	if code == 0 {
		return ", and will continue where training left off"
	}
	return fmt.Sprintf(
		", but training ended with code %d after the signal: its checkpoint may be missing", code)
}

// jobState is the state of a job as reported by Slurm.
type jobState struct {
	state, reason string // JobState and Reason, as in RUNNING and TimeLimit
	nodes         string // NodeList: the nodes that it still has
	preempted     bool   // the job is being preempted: its grace time runs
	restarts      int
}

// requeues reports whether run must ask Slurm to restart the job: because the signal came before
// training ended (told), because the job is being preempted, or because it reached its time limit
// after the signal or SIGTERM (ending). run must not if the job was cancelled or is already being
// requeued.
//
// Source: measured with Slurm 22.05: in its grace time a job is RUNNING and has a PreemptTime, and
// if it ends by itself it is completed. At the time limit, and when it is cancelled or requeued, it
// is COMPLETING while processes end; "scontrol requeue" takes effect even then.
func (s jobState) requeues(told, ending bool, restarts int) bool {
	switch {
	case s.restarts > restarts:
		return false
	case s.runs():
		return told || s.preempted
	}
	return s.reason == "TimeLimit" && (told || ending)
}

// runs reports whether the job has not begun to end. While Slurm sends a signal to a job, as for
// --signal and preemption, its state is briefly SIGNALING, and then RUNNING again.
func (s jobState) runs() bool { return s.state == "RUNNING" || s.state == "SIGNALING" }

// askJob queries Slurm for the state of the job; known is false if Slurm does not report it.
func askJob(job slurm.Job) (s jobState, known bool) {
	text, err := slurmCommand("scontrol", "show", "job", "--oneliner", jobName(job))
	if err != nil {
		return s, false
	}
	return parseJob(text), true
}

// parseJob reads a line of "scontrol show job --oneliner".
func parseJob(line string) (s jobState) {
	for field := range strings.FieldsSeq(line) {
		switch key, value, _ := strings.Cut(field, "="); key {
		case "JobState":
			s.state = value
		case "NodeList":
			s.nodes = value
		case "Reason":
			s.reason = value
		case "PreemptTime":
			s.preempted = value != "None"
		case "Restarts":
			s.restarts, _ = strconv.Atoi(value) // 0 if it is not a number
		}
	}
	return s
}

// slurmCommand runs one of Slurm's commands and returns its output, on one line.
func slurmCommand(args ...string) (string, error) {
	cmd := exec.Command(args[0], args[1:]...)
	cmd.WaitDelay = time.Second
	text, err := cmd.CombinedOutput()
	return string(bytes.Join(bytes.Fields(text), []byte(" "))), err
}

// endedBySignal reports whether a signal ended scontrol. Slurm obeys a request at once: it ends the
// processes of the job, scontrol among them, often before scontrol has read the answer.
func endedBySignal(err error) bool {
	var ended *exec.ExitError
	return errors.As(err, &ended) && !ended.Exited()
}

// jobName returns the job's name for scontrol. In an array it includes the number of the task: one
// of the tasks has the number of the whole array.
func jobName(job slurm.Job) string {
	if job.InArray() {
		return fmt.Sprintf("%s_%d", job.ArrayJobID, job.ArrayTaskID)
	}
	return job.JobID
}

// logRestart prints which life of a requeued job this is, and where it resumes.
func (o *Options) logRestart(job slurm.Job) {
	if job.RestartCount == 0 {
		return
	}
	from := "without --state, importance scores are not kept"
	switch {
	case session.Exists(o.cache.State):
		from = "importance scores continue from " + o.cache.State
	case o.cache.State != "":
		from = o.cache.State + " does not exist yet"
	}
	messages.Say("restart %d of job %s: %s", job.RestartCount, jobName(job), from)
}

// killStep asks Slurm to kill the cache's step on all nodes: killing srun would leave its tasks
// running.
func killStep(folder string, job slurm.Job) {
	if step, err := os.ReadFile(filepath.Join(folder, session.CacheStepName)); err == nil {
		// A process that survives this counts as unkillable.
		_, _ = slurmCommand("scancel", "--signal=KILL", job.JobID+"."+string(step))
	}
}

// signalSteps asks Slurm to send s to all training steps of a session, of which there are
// trainings. It reports whether one of them got it, or Slurm has signalled them already because the
// job ends. Signals to srun would not do: it reacts to one that ends it by killing its tasks at
// once.
//
// Source: measured with Slurm 22.05.
func signalSteps(folder string, trainings int, job slurm.Job, s syscall.Signal) (sent bool) {
	steps := session.TrainingSteps(folder)
	if len(steps) < trainings {
		return false // not all have started
	}
	if state, known := askJob(job); known && !state.runs() {
		return true
	}
	for _, step := range steps {
		_, err := slurmCommand("scancel", "--signal="+strconv.Itoa(int(s)), job.JobID+"."+step)
		sent = sent || err == nil // a step may be over
	}
	return sent
}
