package storage

import "time"

// Listener is told what a backend does: daemon fills it with metrics and logs. Each func may be nil;
// none may block or call the store, for some are called by the one goroutine that commits.
type Listener struct {
	// Committed: a batch of writes is durable; sync is how long making it so took.
	Committed func(batch int, sync time.Duration)
	// Checkpointed: the present was written to its own file, so that the log before it is only history.
	Checkpointed func(keys int, took time.Duration)
	// Compacted: history up to and including the revision is gone.
	Compacted func(upTo Rev)
	// CutOff: a watcher of the prefix lost its place in history and got ErrCompacted.
	CutOff func(prefix string)
	// Failed: the store can't write as it should, and why. It may get over a lack of room, but not over
	// a failed sync. nil: it has got over it.
	Failed func(err error)
}

// OrSilent is l with every func that is nil replaced by one that does nothing.
func (l Listener) OrSilent() Listener {
	if l.Committed == nil {
		l.Committed = func(int, time.Duration) {}
	}
	if l.Checkpointed == nil {
		l.Checkpointed = func(int, time.Duration) {}
	}
	if l.Compacted == nil {
		l.Compacted = func(Rev) {}
	}
	if l.CutOff == nil {
		l.CutOff = func(string) {}
	}
	if l.Failed == nil {
		l.Failed = func(error) {}
	}
	return l
}
