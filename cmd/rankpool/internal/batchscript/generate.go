package batchscript

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"text/template"
	"unicode"
)

// Options describe a batch script. Empty strings and zeros leave a line out, unless the field says
// otherwise.
type Options struct {
	Nodes       int      // at least 1
	GPUsPerNode int      // 0: no GPUs, and one training process per node
	GPUType     string   // of these, as sbatch names it (a100)
	CPUsPerTask int      // CPU cores per task, see TasksPerNode
	Data        []string // as for rankpool run --data; at least one
	Memory      string   // of the cache on each node, as for rankpool run --memory
	// the job's memory on each node, as for sbatch --mem; "0" is all of a node's
	Mem           string
	Time          string // as for sbatch --time
	Requeue       bool   // after its end, or a preemption, the job continues in a new one
	SignalSeconds int    // with Requeue: seconds between the signal and the end; 1 to 65535
	Partition     string
	Account       string
	JobName       string
	Array         string   // as for sbatch --array
	Modules       []string // for module load
	Command       []string // the training command; its words are passed on unchanged
}

// TasksPerNode returns how many training processes srun starts on a node: one per GPU, or a single
// one if the training command starts the others itself (torchrun, accelerate launch, deepspeed),
// also within sh -c.
func (o Options) TasksPerNode() int {
	if o.Launcher() != "" {
		return 1
	}
	return max(1, o.GPUsPerNode)
}

// Launcher returns what starts the training processes of a node instead of srun, "" if srun does.
func (o Options) Launcher() string {
	name, _ := launcherOf(o.Command)
	return name
}

// GPUs returns the GPUs of a node in sbatch's syntax.
func (o Options) GPUs() string {
	if o.GPUType == "" {
		return strconv.Itoa(o.GPUsPerNode)
	}
	return o.GPUType + ":" + strconv.Itoa(o.GPUsPerNode)
}

// Generate returns a batch script that is ready to submit, with a comment wherever the reason for a
// line is not obvious.
//
// The error names an option with an impossible value.
func Generate(o Options) (string, error) {
	if err := o.check(); err != nil {
		return "", fmt.Errorf("batchscript: %w", err)
	}
	var text strings.Builder
	if err := scriptTemplate.Execute(&text, o); err != nil {
		return "", fmt.Errorf("batchscript: %w", err)
	}
	return text.String(), nil
}

var (
	memory = regexp.MustCompile(`^[0-9]+[KMGT]?$`)
	tasks  = regexp.MustCompile(`^[0-9][0-9,:-]*(%[0-9]+)?$`)
	model  = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_.-]*$`)
)

// check validates the options. Quotes cannot protect a line feed in a directive.
func (o Options) check() error {
	limitSeconds, isTime := timeSeconds(o.Time)
	switch {
	case o.Nodes < 1:
		return fmt.Errorf("the number of nodes must be at least 1, not %d", o.Nodes)
	case o.GPUsPerNode < 0:
		return fmt.Errorf("the number of GPUs must be at least 0, not %d", o.GPUsPerNode)
	case o.GPUType != "" && !model.MatchString(o.GPUType):
		return fmt.Errorf("%q is not a type of GPU such as a100", o.GPUType)
	case o.CPUsPerTask < 0:
		return fmt.Errorf("the number of CPU cores must be at least 0, not %d", o.CPUsPerTask)
	case len(o.Data) == 0:
		return errors.New("the batch script needs a data set (--data)")
	case len(o.Command) == 0:
		return errors.New("the batch script needs a training command")
	case o.Time != "" && !isTime:
		return fmt.Errorf("%q is not a time: write minutes, HH:MM:SS or D-HH:MM:SS", o.Time)
	case o.Mem != "" && !memory.MatchString(o.Mem):
		return fmt.Errorf(
			"%q is not a size of memory as Slurm has it: write 400G, or 0 for all of a node's", o.Mem)
	case o.Array != "" && !tasks.MatchString(o.Array):
		return fmt.Errorf("%q is not a job array such as 0-9%%2", o.Array)
	case o.Requeue && (o.SignalSeconds < 1 || o.SignalSeconds > 65535):
		return fmt.Errorf("a signal %d s before the end cannot be had: write 1 to 65535", o.SignalSeconds)
	case o.Requeue && comesAtOnce(limitSeconds, int64(o.SignalSeconds)):
		return fmt.Errorf("a job of %d s would be ended as soon as it begins, since the signal comes "+
			"%d s before its end and up to %d s earlier: "+
			"it would be requeued forever; give it more time, or the signal less", limitSeconds,
			o.SignalSeconds, signalEarlySeconds)
	}
	for _, text := range slices.Concat(o.Data, o.Modules, o.Command,
		[]string{o.Memory, o.Partition, o.Account, o.JobName}) {
		if strings.ContainsRune(text, 0) {
			return fmt.Errorf("%q has a zero byte", text)
		}
	}
	for _, text := range []string{o.Partition, o.Account, o.JobName} {
		if strings.ContainsFunc(text, unicode.IsControl) || strings.ContainsAny(text, `"\`) {
			return fmt.Errorf("%q cannot stand in a batch script", text)
		}
	}
	return nil
}

// signalEarlySeconds is how much earlier than requested Slurm may send the signal.
//
// Source: SchedMD, sbatch(1), --signal.
const signalEarlySeconds = 60

// comesAtOnce reports whether an early signal comes when a job has hardly begun. A limit of 0 means
// none.
func comesAtOnce(limitSeconds, signalSeconds int64) bool {
	return limitSeconds > 0 && limitSeconds <= signalSeconds+signalEarlySeconds
}

// timeSeconds parses a time as sbatch does: minutes, M:S, H:M:S, D-H, D-H:M or D-H:M:S. 0 is no
// limit.
//
// Source: SchedMD, sbatch(1), --time.
func timeSeconds(text string) (seconds int64, ok bool) {
	days, clock, hasDays := strings.Cut(text, "-")
	units := []int64{3600, 60, 1}
	if !hasDays {
		days, clock = "0", days
	}
	parts := strings.Split(clock, ":")
	if !hasDays && len(parts) < 3 {
		units = units[1:]
	}
	if len(parts) > len(units) {
		return 0, false
	}
	n, err := strconv.ParseUint(days, 10, 16)
	seconds, ok = int64(n)*24*3600, err == nil
	for i, part := range parts {
		n, err := strconv.ParseUint(part, 10, 31)
		seconds, ok = seconds+int64(n)*units[i], ok && err == nil
	}
	return seconds, ok
}

// quoteDirective quotes a value for sbatch.
func quoteDirective(text string) string {
	if strings.ContainsAny(text, " '#") {
		return `"` + text + `"`
	}
	return text
}

var plainWord = regexp.MustCompile(`^[A-Za-z0-9_@%+=:,./-]+$`)

// quote quotes a word for bash, so that nothing in it is expanded.
func quote(word string) string {
	if plainWord.MatchString(word) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

func quoteAll(words []string) string {
	quoted := make([]string, len(words))
	for i, word := range words {
		quoted[i] = quote(word)
	}
	return strings.Join(quoted, " ")
}

// PerGPU reports whether there is a training process for each GPU.
func (o Options) PerGPU() bool { return o.GPUsPerNode > 0 && o.Launcher() == "" }

var scriptTemplate = template.Must(template.New("script").Funcs(template.FuncMap{
	"directive": quoteDirective, "quote": quote, "quoteAll": quoteAll,
}).Parse(`#!/bin/bash
{{- if .JobName}}
#SBATCH --job-name={{directive .JobName}}
{{- end}}
{{- if .Account}}
#SBATCH --account={{directive .Account}}
{{- end}}
{{- if .Partition}}
#SBATCH --partition={{directive .Partition}}
{{- end}}
{{- if .PerGPU}}
# A training process for each GPU.
{{- else if .GPUsPerNode}}
# One task a node: {{.Launcher}} starts a training process for each GPU.
{{- else}}
# One training process a node.
{{- end}}
#SBATCH --nodes={{.Nodes}} --ntasks-per-node={{.TasksPerNode}}
{{- if .GPUsPerNode}} --gpus-per-node={{.GPUs}}{{end}}
{{- if .CPUsPerTask}}
# CPU cores of a task, for its training and its DataLoader workers.
#SBATCH --cpus-per-task={{.CPUsPerTask}}
{{- end}}
{{- if eq .Mem "0"}}
# All memory of each node, for training and the cache.
#SBATCH --mem=0
{{- else if .Mem}}
# Memory of each node, for training and the cache.
#SBATCH --mem={{.Mem}}
{{- end}}
{{- if .Time}}
#SBATCH --time={{.Time}}
{{- end}}
{{- if .Array}}
#SBATCH --array={{.Array}}
{{- end}}
{{- if .Requeue}}
# The job may restart, and its output then continues in the same file.
#SBATCH --requeue --open-mode=append
# {{.SignalSeconds}} s before the end, or up to a minute earlier, the batch shell (B:) gets SIGUSR1.
#SBATCH --signal=B:USR1@{{.SignalSeconds}}
{{- end}}

set -euo pipefail
{{- if .Modules}}

module load {{quoteAll .Modules}}
{{- end}}

{{if .Requeue -}}
# exec replaces the shell by rankpool, which gets the signal: training writes its checkpoint, and
# the job is requeued. The training script must call rankpool.Stop() after each step, and end when
# it returns True: see docs/slurm.md.
{{- else -}}
# exec replaces the shell by rankpool, which gets the signals that Slurm sends.
{{- end}}
exec rankpool run{{range .Data}} --data {{quote .}}{{end}}
{{- if .Memory}} --memory {{quote .Memory}}{{end}} --log run-$SLURM_JOB_ID.jsonl \
{{- if .Requeue}}
    --requeue --state scores-$SLURM_JOB_ID.state \
{{- end}}
    -- {{quoteAll .Command}}
`))
