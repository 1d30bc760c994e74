package controller

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// What ends by itself is tried again soon after it has ended, however long it lasted; what a person must change waits
// longer and longer.
func TestCausesThatEndByThemselves(t *testing.T) {
	on := func(errno syscall.Errno) error {
		return fmt.Errorf("create demo-0: %w", &os.PathError{Op: "mkdir", Path: "/data", Err: errno})
	}
	full := &apierrors.StatusError{ErrStatus: metav1.Status{Code: 507, Reason: "InsufficientStorage", Message: "no room"}}
	for name, tc := range map[string]struct {
		err     error
		longest time.Duration
	}{
		"no room":           {on(syscall.ENOSPC), passingMax},
		"over quota":        {on(syscall.EDQUOT), passingMax},
		"no descriptors":    {on(syscall.EMFILE), passingMax},
		"none in all":       {on(syscall.ENFILE), passingMax},
		"no memory":         {on(syscall.ENOMEM), passingMax},
		"the disk errs":     {on(syscall.EIO), passingMax},
		"the store is full": {fmt.Errorf("status: %w", full), passingMax},
		"the store is slow": {apierrors.NewTimeoutError("slow", 1), passingMax},
		"too much at once":  {apierrors.NewTooManyRequests("slow", 1), passingMax},
		"a wrong word":      {errors.New("spec.template is no Pod template"), 5 * time.Minute},
		"a wrong owner":     {on(syscall.EACCES), 5 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRuns()
				var over atomic.Bool
				l, stop := startLoop(LoopOptions[string]{Reconcile: func(_ context.Context, key string) (Result, error) {
					if r.add(key); over.Load() {
						return Result{}, nil
					}
					return Result{}, tc.err
				}}, r)
				defer stop()
				l.Add("a")
				time.Sleep(time.Hour)
				over.Store(true)
				ended := time.Since(r.start)
				time.Sleep(time.Hour)
				synctest.Wait()
				at := r.of("a")
				if waited := at[len(at)-1] - ended; waited > tc.longest || r.result("success") != 1 {
					t.Errorf("tried again %s after the cause had ended, want %s at most", waited, tc.longest)
				}
				if tc.longest > passingMax && at[len(at)-1]-at[len(at)-2] < time.Minute {
					t.Errorf("tried every %s for ever", at[len(at)-1]-at[len(at)-2])
				}
			})
		})
	}
}

// One cause is logged once, and its end.
func TestACauseIsLoggedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		n := 0
		l := NewLoop(LoopOptions[string]{
			Name: "test", Log: slog.New(slog.NewTextHandler(&log, nil)),
			Reconcile: func(context.Context, string) (Result, error) {
				switch n++; {
				case n <= 50:
					return Result{}, syscall.ENOSPC
				case n <= 60:
					return Result{}, syscall.EMFILE
				}
				return Result{}, nil
			},
		})
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan struct{})
		go func() { defer close(done); l.Run(ctx) }()
		l.Add("a")
		time.Sleep(time.Hour)
		cancel()
		<-done
		if lines := strings.Count(log.String(), "\n"); lines != 3 || !strings.Contains(log.String(), "failures=60") {
			t.Errorf("%d lines of two causes and their end:\n%s", lines, log.String())
		}
	})
}

// A key that waits for the views holds no worker: with one worker, another key goes on meanwhile.
func TestNoWorkerWaitsForTheViews(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		world, r := newWorld(), newRuns()
		world.lag = 3 * time.Second
		tracked := Tracked(world)
		l, stop := startLoop(LoopOptions[string]{
			Workers: 1, AtLeast: world.AtLeast,
			Reconcile: func(ctx context.Context, key string) (Result, error) {
				if r.add(key) == 1 && key == "a" {
					return Result{Again: true}, tracked.Create(ctx, configMap("x"))
				}
				return Result{}, nil
			},
		}, r)
		defer stop()
		l.Add("a")
		synctest.Wait()
		for range 5 {
			l.Add("a") // each look finds it waiting
			synctest.Wait()
		}
		l.Add("b")
		time.Sleep(time.Minute)
		synctest.Wait()
		if at := r.of("b"); len(at) != 1 || at[0] != 0 {
			t.Errorf("the other key ran at %v", at)
		}
		if at := r.of("a"); len(at) != 2 || at[1] != 3*time.Second {
			t.Errorf("the key that wrote ran at %v", at)
		}
	})
}

// Views that never catch up are an error after a while, and hold no worker either.
func TestViewsThatNeverCatchUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		world, r := newWorld(), newRuns()
		world.lag = 24 * time.Hour
		tracked := Tracked(world)
		l, stop := startLoop(LoopOptions[string]{
			Workers: 1, AtLeast: world.AtLeast,
			Reconcile: func(ctx context.Context, key string) (Result, error) {
				r.add(key)
				return Result{Again: key == "a"}, tracked.Create(ctx, configMap(key))
			},
		}, r)
		l.Add("a")
		time.Sleep(time.Minute)
		l.Add("b")
		synctest.Wait()
		if at := r.of("b"); len(at) != 1 || at[0] != time.Minute {
			t.Errorf("the other key ran at %v", at)
		}
		if n := r.result("error"); n < 2 || len(r.of("a")) != 1 {
			t.Errorf("%d errors, ran at %v", n, r.of("a"))
		}
		begin := time.Now()
		stop()
		if d := time.Since(begin); d != 0 {
			t.Errorf("the end waited %s for the views", d)
		}
	})
}
