package protocol

import (
	"slices"
	"time"
)

// missedAfter is how long a plan's request waits for missing trainers before it is answered with
// their names. The client then asks again.
const missedAfter = 10 * time.Second

// waitingPlans are the plan requests without an answer.
type waitingPlans []PlanWanted

// fail answers all of them with an error.
func (w *waitingPlans) fail(do func(Command), why string, retry bool) {
	for _, one := range *w {
		do(Refuse{one.Ticket, retry, why})
	}
	*w = nil
}

// refuseLate answers those that have waited for other trainers for too long. why is "" if none is
// missing.
func (w *waitingPlans) refuseLate(
	do func(Command), now time.Duration, why func(PlanWanted) string,
) {
	*w = slices.DeleteFunc(*w, func(one PlanWanted) bool {
		if now-one.Now < missedAfter {
			return false
		}
		text := why(one)
		if text != "" {
			do(Refuse{one.Ticket, true, text})
		}
		return text != ""
	})
}

func (w *waitingPlans) cancel(ticket uint64) {
	*w = slices.DeleteFunc(*w, func(one PlanWanted) bool { return one.Ticket == ticket })
}
