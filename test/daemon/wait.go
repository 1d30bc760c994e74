package daemon

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// Poll runs f until it returns nil, every so often, for as long as ctx allows. It is for conditions that
// nothing announces.
func Poll(ctx context.Context, every time.Duration, f func() error) error {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		err := f()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w; last: %w", ctx.Err(), err)
		case <-ticker.C:
		}
	}
}

// WaitFile waits until ok says yes, asking it whenever something in the file's directory is renamed,
// until ctx or ended ends.
func WaitFile(ctx context.Context, path string, ended <-chan struct{}, ok func() bool) error {
	fd, err := syscall.InotifyInit1(syscall.IN_CLOEXEC | syscall.IN_NONBLOCK)
	if err != nil {
		return os.NewSyscallError("inotify_init1", err)
	}
	f := os.NewFile(uintptr(fd), "inotify")
	defer f.Close()
	if _, err := syscall.InotifyAddWatch(fd, filepath.Dir(path), syscall.IN_MOVED_TO|syscall.IN_CLOSE_WRITE); err != nil {
		return os.NewSyscallError("inotify_add_watch", err)
	}
	stop := make(chan struct{})
	defer close(stop)
	go func() {
		select {
		case <-ctx.Done():
		case <-ended:
		case <-stop:
		}
		f.SetReadDeadline(time.Now())
	}()
	events := make([]byte, 4096)
	for !ok() {
		if _, err := f.Read(events); err != nil {
			select {
			case <-ended:
				return errors.New("the process has ended")
			default:
			}
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return err
		}
	}
	return nil
}
