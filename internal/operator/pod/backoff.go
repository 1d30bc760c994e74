package pod

import (
	"strconv"
	"time"

	"operatord.io/operatord/internal/process"
)

// The back-off between restarts is kubelet's: at once after the first death, then 10 s, 20 s, … 5 min; a
// container that had run for 10 minutes starts over.
const (
	firstBackOff = 10 * time.Second
	maxBackOff   = 5 * time.Minute
	stableAfter  = 10 * time.Minute

	// beginAgain is the pause after a shim that could not begin: nothing died, so nothing is counted.
	beginAgain = 5 * time.Second
)

// deaths is how many deaths in a row came before an attempt: its note says so.
func deaths(p process.Process) int {
	n, err := strconv.Atoi(p.Note)
	if err != nil || n < 0 {
		return 0
	}
	return n
}

// backOff tells how long after an attempt's end the next may start, and how many deaths it then counts.
func backOff(p process.Process) (wait time.Duration, count int) {
	count = deaths(p)
	if !p.Started.IsZero() && p.Finished.Sub(p.Started) > stableAfter {
		count = 0
	}
	if count > 0 {
		wait = maxBackOff
		if shift := count - 1; shift < 6 {
			wait = min(wait, firstBackOff<<shift)
		}
	}
	return wait, count + 1
}
