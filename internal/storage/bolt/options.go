package bolt

import (
	"log/slog"

	"operatord.io/operatord/internal/storage"
)

// Options of a store. Everything but Dir may be left out.
type Options struct {
	// Dir holds everything the store keeps. It is made if it isn't there, and only its owner may enter.
	Dir string

	// Existing: a store was served from Dir before, so none is created where it isn't there any more.
	Existing bool

	// HistoryRevisions is how many of the newest revisions can be watched from and viewed; 100,000.
	// HistoryBytes bounds what the log may take for them, which may end history earlier; 128 MiB. This and
	// the next two are less on a file system below 2 GiB: see sizing.go.
	HistoryRevisions uint64
	HistoryBytes     int64

	// CheckpointBytes is how much is written to the log before the present is brought up to it; 32 MiB.
	// At four times that much, writers wait for the checkpoint.
	CheckpointBytes int64

	// SegmentBytes is the size of a file of the log; 16 MiB. A batch that is larger gets a larger one.
	SegmentBytes int64

	// RingEvents and RingBytes bound the events kept in memory; 8192 and 16 MiB. Watchers further back
	// read the log.
	RingEvents int
	RingBytes  int64

	// Publishing is called with each batch, in order of revision, after it is durable and before anyone
	// can see it. It may not call the store, and not for what is found at open.
	Publishing func([]storage.Event)

	Listener storage.Listener
	Log      *slog.Logger

	// Tests put faults in between.
	openLog func(path string, create bool) (file, error)
	room    func(dir string, n int64) error
	syncDir func(dir string) error
}

func (o Options) orDefaults() Options {
	if o.HistoryRevisions == 0 {
		o.HistoryRevisions = 100_000
	}
	if o.Publishing == nil {
		o.Publishing = func([]storage.Event) {}
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.openLog == nil {
		o.openLog = openOS
	}
	if o.room == nil {
		o.room = needRoom
	}
	if o.syncDir == nil {
		o.syncDir = syncDir
	}
	o.Listener = o.Listener.OrSilent()
	return o
}

// sized fills in what follows from the size of the file system.
func (o Options) sized(total int64) Options {
	segment := segmentFor(total)
	if o.SegmentBytes == 0 {
		o.SegmentBytes = segment
	}
	o.SegmentBytes = aligned(int(o.SegmentBytes))
	if o.HistoryBytes == 0 {
		o.HistoryBytes = historySegments * segment
	}
	if o.CheckpointBytes == 0 {
		o.CheckpointBytes = checkpointSegments * segment
	}
	return o
}
