package cluster

import (
	"cmp"
	"maps"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"operatord.io/operatord/api/v1alpha1"
)

// crashes is status.crashes as it is after what was observed: each death is counted once, by its Pod's uid.
// removing is the uid of the unready leader that is being removed, which counts as a death; empty otherwise.
//
// An entry whose name has no Pod makes that name taken: its member is created again when it is due. Of these
// no more are kept than there are members missing, the lowest first.
func crashes(cl *v1alpha1.Cluster, o *Observation, removing types.UID) []v1alpha1.Crash {
	if cl.DeletionTimestamp != nil {
		return cl.Status.Crashes
	}
	known := make(map[int]v1alpha1.Crash, len(cl.Status.Crashes))
	for _, c := range cl.Status.Crashes {
		if n, ok := ordinalOf(cl.Name, c.Name); ok {
			known[n] = c
		}
	}
	members := o.ours()
	taken := make(map[int]bool, len(members))
	for _, m := range members {
		taken[m.Ordinal] = true
		c, counted := known[m.Ordinal], known[m.Ordinal].UID == m.Pod.UID
		c.Name = m.Name()
		switch {
		case m.Pod.UID == removing:
			if !counted {
				c = count(c, m, o.Now)
			}
		case m.Leaving: // whoever deletes it, that is no death (nor is a reboot, after which a Pod lives on)
		case !m.Living:
			if !counted {
				c = count(c, m, m.Died)
			}
		case counted: // the removal of a leader that was counted did not come about
			c.UID = ""
			c.Count--
		}
		if c.Count > 0 || c.UID == m.Pod.UID {
			known[m.Ordinal] = c
		} else {
			delete(known, m.Ordinal)
		}
	}
	missing := wanted(cl) - len(members)
	var out []v1alpha1.Crash
	for _, n := range slices.Sorted(maps.Keys(known)) {
		if !taken[n] {
			if missing--; missing < 0 {
				continue
			}
		}
		out = append(out, known[n])
	}
	return out
}

// count adds one death to what is known of a member. One that had lived long starts again.
func count(c v1alpha1.Crash, m *Member, at time.Time) v1alpha1.Crash {
	if at.Sub(m.Started) >= stableAfter {
		c.Count = 0
	}
	c.Count = max(c.Count, 0) + 1
	c.UID = m.Pod.UID
	c.NotBefore = seconds(at.Add(backOff(c.Count)))
	return c
}

// backOff is 0, 10, 20, 40 … 300 s after the first, second, … death in a row.
func backOff(count int32) time.Duration {
	if count <= 1 {
		return 0
	}
	d := firstBackOff
	for ; count > 2 && d < longestBackOff; count-- {
		d *= 2
	}
	return min(d, longestBackOff)
}

// seconds is a time as the API keeps it.
func seconds(t time.Time) metav1.Time { return metav1.NewTime(t.Truncate(time.Second)) }

// waiting is a member without a Pod, to be created again when it is due.
type waiting struct {
	ordinal int
	crash   v1alpha1.Crash
}

// due tells whether the time has come. A wait longer than the longest means that the clock was set back.
func (w waiting) due(now time.Time) bool {
	left := w.crash.NotBefore.Sub(now)
	return left <= 0 || left > longestBackOff
}

// waitingOf are the entries of crashes that have no Pod, by ordinal.
func waitingOf(cl *v1alpha1.Cluster, crashes []v1alpha1.Crash, members []*Member) []waiting {
	var out []waiting
	for _, c := range crashes {
		n, ok := ordinalOf(cl.Name, c.Name)
		if ok && first(members, func(m *Member) bool { return m.Ordinal == n }) == nil {
			out = append(out, waiting{n, c})
		}
	}
	slices.SortFunc(out, func(a, b waiting) int { return cmp.Compare(a.ordinal, b.ordinal) })
	return out
}
