package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"operatord.io/operatord/test/daemon"
)

const (
	watchedWrites = 200
	watchPace     = 10 * time.Millisecond // between two writes
)

func measureWatch(ctx context.Context, b *bench) error {
	d, stop, err := b.withWidgets(ctx)
	if err != nil {
		return err
	}
	defer stop()
	for _, watchers := range []int{1, 100, 1000} {
		if err := late(ctx, d, watchers); err != nil {
			return fmt.Errorf("%d watchers: %w", watchers, err)
		}
	}
	return nil
}

// late opens so many watches, writes at a steady pace, and prints how late events arrived.
func late(ctx context.Context, d *daemon.Daemon, n int) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var list struct {
		Metadata struct{ ResourceVersion string }
	}
	if err := d.Get(ctx, widgets+"?limit=1", &list); err != nil {
		return err
	}
	sent := make([]time.Time, watchedWrites)
	lateness := make([][]time.Duration, n)
	failed := make([]error, n)
	var opened, done sync.WaitGroup
	opened.Add(n)
	for i := range n {
		done.Go(func() {
			once := sync.OnceFunc(opened.Done)
			defer once()
			path := widgets + "?watch=1&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion=" + list.Metadata.ResourceVersion
			failed[i] = d.Watch(ctx, path, func(e daemon.Event) bool {
				now := time.Now()
				var object struct {
					Metadata struct {
						Name        string
						Annotations map[string]string
					}
				}
				if failed[i] = json.Unmarshal(e.Object, &object); failed[i] != nil {
					return false
				}
				if e.Type == "BOOKMARK" {
					once() // the initial events are through
					return true
				}
				var of, k int
				if _, err := fmt.Sscanf(object.Metadata.Name, "e%d-%d", &of, &k); err != nil || of != n {
					return true // of an earlier round
				}
				lateness[i] = append(lateness[i], now.Sub(sent[k]))
				return len(lateness[i]) < watchedWrites
			})
		})
	}
	opened.Wait()
	before, err := cpu(d.PID())
	if err != nil {
		return err
	}
	pace := time.NewTicker(watchPace)
	defer pace.Stop()
	for k := range watchedWrites {
		<-pace.C
		sent[k] = time.Now()
		if err := expect(d.Do(ctx, "POST", widgets, "application/json", widget(fmt.Sprintf("e%d-%d", n, k)))); err != nil {
			return err
		}
	}
	done.Wait()
	if err := errors.Join(failed...); err != nil {
		return err
	}
	after, err := cpu(d.PID())
	if err != nil {
		return err
	}
	var all []time.Duration
	for _, l := range lateness {
		all = append(all, l...)
	}
	fmt.Printf("  %5d watchers: p50 %s, p99 %s, server CPU %.1f µs an event (the writes' included)\n",
		n, ms(quantile(all, 0.5)), ms(quantile(all, 0.99)), float64((after-before).Microseconds())/float64(len(all)))
	return nil
}
