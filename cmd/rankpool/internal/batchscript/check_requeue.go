package batchscript

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// An earlySignal is the request of #SBATCH --signal.
type earlySignal struct {
	line    int
	name    string // without SIG
	toShell bool   // B: only the batch shell gets it
	seconds int64  // how long before the end
}

const (
	// signalEarlySeconds is how much earlier than requested Slurm may send the signal.
	//
	// Source: SchedMD, sbatch(1), --signal.
	signalEarlySeconds = 60
	// signalSeconds is the default time before the end. The same source.
	signalSeconds = 60
)

// comesAtOnce reports whether an early signal comes when a job has hardly begun. A limit of 0 means
// none.
func comesAtOnce(limitSeconds, signalSeconds int64) bool {
	return limitSeconds > 0 && limitSeconds <= signalSeconds+signalEarlySeconds
}

// signal returns the early signal, if the script requests one.
func (j *job) signal() (earlySignal, bool) {
	o, found := j.directive("signal")
	name := o.Value
	target, rest, targeted := strings.Cut(name, ":")
	if targeted {
		name = rest
	}
	name, before, _ := strings.Cut(name, "@")
	seconds, err := strconv.ParseInt(before, 10, 32)
	if err != nil {
		seconds = signalSeconds
	}
	return earlySignal{o.Line, signalName(name), targeted && strings.Contains(target, "B"), seconds},
		found
}

// signalName normalises a signal's name, as trap and sbatch may write it.
func signalName(name string) string {
	name = strings.TrimPrefix(strings.ToUpper(name), "SIG")
	if common, found := map[string]string{
		"1": "HUP", "2": "INT", "10": "USR1", "12": "USR2", "15": "TERM",
	}[name]; found {
		return common
	}
	return name
}

// trap returns the line of the first trap for a signal, 0 if there is none.
func (j *job) trap(signal string) int {
	for _, c := range j.script.Commands {
		if c.calls("trap") && len(c.Words) > 2 &&
			slices.ContainsFunc(c.Words[2:], func(w string) bool { return signalName(w) == signal }) {
			return c.Line
		}
	}
	return 0
}

// checkSignal looks for early signals that nothing in the script handles.
func (j *job) checkSignal() {
	sig, found := j.signal()
	// in the batch shell, where run starts the steps itself
	runs := slices.DeleteFunc(j.calls("run"), func(s *step) bool { return s.launcher != "" })
	if !found {
		for _, s := range runs {
			if requeues(s) {
				j.warn(s.Line, "rankpool run --requeue waits for a signal before the job ends, and the "+
					"script asks for none",
					"add #SBATCH --signal=B:USR1@120")
			}
		}
		return
	}
	j.checkSignalTime(sig)
	trap := j.trap(sig.name)
	switch {
	case !sig.toShell: // training gets it, and so do the ranks, which inform run
	case trap > 0:
		j.checkTrapped(trap)
	case slices.ContainsFunc(j.steps, func(s *step) bool { return s.exec }) ||
		slices.ContainsFunc(j.script.Commands, isExec):
	case len(runs) > 0:
		j.warn(runs[0].Line, fmt.Sprintf("the batch shell gets SIG%s (B:) and ends of it, and rankpool "+
			"does not get it", sig.name),
			"write exec before rankpool run, as the script's last line")
	case len(j.steps) > 0:
		j.warn(sig.line, fmt.Sprintf("the batch shell gets SIG%s (B:), ends of it, and training with it",
			sig.name),
			"handle it with trap, or leave B: out, so that training gets it")
	}
}

// checkSignalTime looks for jobs that receive the signal when they begin, and so are requeued
// forever.
func (j *job) checkSignalTime(sig earlySignal) {
	limit, _ := j.directive("time")
	if seconds, ok := timeSeconds(limit.Value); ok && comesAtOnce(seconds, sig.seconds) {
		j.warn(sig.line, fmt.Sprintf("a job of %d s gets SIG%s as soon as it begins, which comes %d s "+
			"before the end and up to %d s earlier",
			seconds, sig.name, sig.seconds, signalEarlySeconds),
			"raise --time, or the job ends, or is requeued, without training")
	}
}

// isExec reports whether a command replaces the shell.
func isExec(c Command) bool { return c.calls("exec") && len(c.Words) > 1 }

// requeues reports whether a call of run asks Slurm to start the job again.
func requeues(s *step) bool {
	value := s.tool.value("requeue")
	return value != "" && value != "false"
}

// checkTrapped looks for foreground commands that keep bash from running a trap.
//
// Source: GNU Bash manual, Signals: a trap waits until the command in the foreground has ended; the
// builtin wait does not.
func (j *job) checkTrapped(trap int) {
	for _, s := range j.steps {
		if s.Line > trap && !s.Background && !s.exec && !s.is("index", "stage", "pack") {
			j.warn(s.Line, fmt.Sprintf("bash runs the trap of line %d only when this command has ended",
				trap),
				"put & at its end and \"wait $!\" into the next line")
			return
		}
	}
}

// checkRequeue looks for jobs that would start over, or not at all, when they are requeued.
func (j *job) checkRequeue() {
	directive, asked := j.directive("requeue", "no-requeue")
	asked = asked && directive.Name == "requeue"
	cache, state := (*step)(nil), false
	for _, s := range j.calls("run", "serve") {
		if s.tool.value("requeue") == "false" {
			j.warn(s.Line, "rankpool run refuses --requeue=false: the flag takes a signal", "leave it out")
		}
		if s.is("run") && requeues(s) && !asked {
			j.warn(s.Line, "rankpool run --requeue asks Slurm to start the job again, which the script "+
				"does not allow", "add #SBATCH --requeue")
		}
		asked = asked || s.is("run") && requeues(s)
		cache, state = s, state || s.tool.value("state") != ""
	}
	if !asked || cache == nil {
		return
	}
	if !state {
		j.warn(cache.Line, "a requeued job begins without the importance scores, because there "+
			"is no --state",
			"add --state FILE, on shared storage")
	}
	if mode, found := j.directive("open-mode"); !found || !strings.HasPrefix(mode.Value, "a") {
		j.warn(max(directive.Line, mode.Line), "a requeued job overwrites its output",
			"add #SBATCH --open-mode=append")
	}
}
