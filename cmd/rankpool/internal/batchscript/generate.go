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

// check validates the options. Quotes cannot protect a line feed in a directive.
func (o Options) check() error {
	minutes, _ := strconv.Atoi(o.Time) // else it is long, or sbatch refuses it
	switch {
	case o.Nodes < 1:
		return fmt.Errorf("the number of nodes must be at least 1, not %d", o.Nodes)
	case o.GPUsPerNode < 0:
		return fmt.Errorf("the number of GPUs must be at least 0, not %d", o.GPUsPerNode)
	case o.CPUsPerTask < 0:
		return fmt.Errorf("the number of CPU cores must be at least 0, not %d", o.CPUsPerTask)
	case len(o.Data) == 0:
		return errors.New("the batch script needs a data set (--data)")
	case len(o.Command) == 0:
		return errors.New("the batch script needs a training command")
	case o.Requeue && (o.SignalSeconds < 1 || o.SignalSeconds > 65535):
		return fmt.Errorf("the signal must come 1 to 65535 s before the end, not %d", o.SignalSeconds)
	case o.Requeue && minutes > 0 && minutes*60 <= o.SignalSeconds+signalEarlySeconds:
		return fmt.Errorf("a job of %d min would be ended as soon as it begins, since the signal comes "+
			"%d s before its end and up to %d s earlier: it would be requeued forever; give it more "+
			"time, or the signal less", minutes, o.SignalSeconds, signalEarlySeconds)
	}
	for _, text := range slices.Concat(o.Data, o.Modules, o.Command,
		[]string{o.Memory, o.Partition, o.Account, o.JobName}) {
		if strings.ContainsRune(text, 0) {
			return fmt.Errorf("%q has a zero byte", text)
		}
	}
	for _, text := range []string{
		o.Partition, o.Account, o.JobName, o.GPUType, o.Time, o.Mem, o.Array,
	} {
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
