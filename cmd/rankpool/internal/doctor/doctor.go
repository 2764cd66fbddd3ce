// Package doctor checks whether a node, or all nodes of an allocation, are fit for rankpool:
// "rankpool doctor".
//
// A check is a small function of an Env, which holds what the command knows and the Machine that it
// may examine. It returns findings: what was found, whether that is good, and what to do. A Group
// gathers the findings of all ranks at rank 0.
package doctor

import (
	"context"
	"fmt"
	"time"
)

// A Status is the status of a finding.
type Status string

// The statuses, from best to worst.
const (
	Good    Status = "good"
	Warning Status = "warning" // rankpool works, but slower or less safely than it could
	Bad     Status = "bad"     // rankpool or training will fail
)

// A Finding is one line of the list: the result of a check.
//
// Detail may contain "{}" for each of Sizes, in order; Combine fills them in, so that the same
// finding with other sizes on each node stays one line, and leaves Sizes out. Advice is "" if there
// is nothing to do.
type Finding struct {
	Check  string  `json:"check"`
	Status Status  `json:"status"`
	Detail string  `json:"detail"`
	Advice string  `json:"advice"`
	Node   string  `json:"node,omitempty"` // a hostlist; "": not about a node, or there is only one
	Sizes  []int64 `json:"sizes,omitempty"`
}

// good, warning and bad return one finding: most checks have no more.

func good(detail string, sizes ...int64) []Finding {
	return []Finding{{Status: Good, Detail: detail, Sizes: sizes}}
}

func warning(detail, advice string, sizes ...int64) []Finding {
	return []Finding{{Status: Warning, Detail: detail, Advice: advice, Sizes: sizes}}
}

func bad(detail, advice string, sizes ...int64) []Finding {
	return []Finding{{Status: Bad, Detail: detail, Advice: advice, Sizes: sizes}}
}

// A Scope determines where a check runs.
type Scope string

// The scopes.
const (
	EachNode Scope = "each node"
	Once     Scope = "once" // on rank 0: the answer is the same everywhere, or comes from a server
	// Between checks run on rank 0, on all ranks' results or by messages between them. A lone rank has
	// none.
	Between Scope = "all ranks"
)

// A Check checks one thing. Its name is the value of --only.
type Check struct {
	Name  string
	Scope Scope
	find  func(*Env) []Finding
	About string // what it checks, in a few words
}

const (
	// usualPatience is how long a check may take: far longer than a working file system needs, and
	// less than what makes people press Ctrl-C.
	usualPatience = 15 * time.Second
	// pythonPatience is for starting Python with PyTorch from a file system without cached pages: half
	// a minute is usual on Lustre.
	pythonPatience = 90 * time.Second
)

// Run runs the checks that examine this machine, one after the other, and returns their
// findings in order.
//
// A check that does not answer in time is abandoned, and is a bad finding itself: a process cannot
// cancel a system call that hangs. When ctx ends, Run returns what it has found so far, and ctx's
// cause.
func Run(ctx context.Context, env *Env, checks []Check) ([]Finding, error) {
	var all []Finding
	for _, check := range checks {
		if check.Scope == Between || check.Scope == Once && env.Rank != 0 {
			continue
		}
		found, err := await(ctx, env, check)
		if err != nil {
			return all, err
		}
		for _, f := range found {
			f.Check = check.Name
			all = append(all, f)
		}
	}
	return all, nil
}

// await runs one check, within its time.
func await(ctx context.Context, env *Env, check Check) ([]Finding, error) {
	patience := usualPatience
	if check.Name == "python" {
		patience += pythonPatience
	}
	done := make(chan []Finding, 1)
	go func() { done <- check.find(env) }()
	select {
	case found := <-done:
		return found, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-time.After(patience):
		return bad(fmt.Sprintf("the check has not answered in %v", patience),
			"something it checks hangs: see whether \"ls\" of the data and \"python3 -c 'import torch'\" "+
				"end on this node"), nil
	}
}

// Worst returns the worst status of findings, Good for none.
func Worst(findings []Finding) Status {
	worst := Good
	for _, f := range findings {
		if f.Status == Bad || f.Status == Warning && worst == Good {
			worst = f.Status
		}
	}
	return worst
}
