package daemon

import (
	"context"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

// The collector's target by live heap: a small server may double, a large one should not.
const (
	smallHeap, smallPercent = 64 << 20, 100
	largeHeap, largePercent = 512 << 20, 25
)

// gcPercent is the GOGC for a live heap: between the two marks it falls evenly.
func gcPercent(live uint64) int {
	switch {
	case live <= smallHeap:
		return smallPercent
	case live >= largeHeap:
		return largePercent
	}
	return smallPercent - int(uint64(smallPercent-largePercent)*(live-smallHeap)/(largeHeap-smallHeap))
}

// pauseGC turns the collector off while the store is loaded. GOGC or GOMEMLIMIT in the environment win:
// then both this and tendGC leave it alone.
func pauseGC() {
	if !environmentDecides() {
		debug.SetGCPercent(-1)
	}
}

// tendGC turns the collector on and sets its target after every cycle, until ctx ends.
func tendGC(ctx context.Context) {
	if environmentDecides() {
		return
	}
	percent := gcPercent(liveHeap())
	debug.SetGCPercent(percent)
	afterGC(ctx, func() {
		// Setting it stops the world, so small changes are not worth it.
		if p := gcPercent(liveHeap()); p > percent+5 || p < percent-5 {
			percent = p
			debug.SetGCPercent(p)
		}
	})
}

func environmentDecides() bool {
	return os.Getenv("GOGC") != "" || os.Getenv("GOMEMLIMIT") != ""
}

// afterGC calls f after each cycle: an object that nobody holds is collected in it, and says so.
func afterGC(ctx context.Context, f func()) {
	type sentinel struct{ _ [16]byte }
	runtime.AddCleanup(new(sentinel), func(struct{}) {
		if ctx.Err() == nil {
			f()
			afterGC(ctx, f)
		}
	}, struct{}{})
}

func liveHeap() uint64 {
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}
