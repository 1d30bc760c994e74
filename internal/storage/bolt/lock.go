package bolt

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// lockWait is how long Open waits for another process to let go of the directory: one that was just
// told to stop.
const lockWait = time.Second

// lock takes the directory for this process. It goes with the process, however that ends.
func lock(ctx context.Context, path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := flock(ctx, f); err != nil {
		holder := ""
		if b, readErr := os.ReadFile(path); readErr == nil && len(b) > 0 {
			holder = " by process " + strings.TrimSpace(string(b))
		}
		f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("storage: %s is in use%s: stop it, or choose another data directory", path, holder)
		}
		return nil, fmt.Errorf("storage: lock %s: %w", path, err)
	}
	// Only for the message above: on a full disk there is none.
	pid := []byte(strconv.Itoa(os.Getpid()) + "\n")
	if _, err := f.WriteAt(pid, 0); err == nil {
		_ = f.Truncate(int64(len(pid)))
	}
	return f, nil
}

// flock tries until lockWait is over. Nothing tells when another process lets go, short of a thread
// that blocks for it and can't be called back.
func flock(ctx context.Context, f *os.File) error {
	deadline := time.NewTimer(lockWait)
	defer deadline.Stop()
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			return err
		}
		select {
		case <-again.C:
		case <-deadline.C:
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
