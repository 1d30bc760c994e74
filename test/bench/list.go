package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"operatord.io/operatord/test/daemon"
)

const listed = 10_000

// fill makes so many Widgets with many clients.
func fill(ctx context.Context, d *daemon.Daemon, n int) error {
	const clients = 64
	failed := make([]error, clients)
	var group sync.WaitGroup
	for c := range clients {
		group.Go(func() {
			for i := c; i < n && failed[c] == nil; i += clients {
				failed[c] = expect(d.Do(ctx, "POST", widgets, "application/json", widget(fmt.Sprint("l", i))))
			}
		})
	}
	group.Wait()
	return errors.Join(failed...)
}

func measureList(ctx context.Context, b *bench) error {
	d, stop, err := b.withWidgets(ctx)
	if err != nil {
		return err
	}
	defer stop()
	if err := fill(ctx, d, listed); err != nil {
		return err
	}
	var took []time.Duration
	var size int
	const times = 10
	before, err := cpu(d.PID())
	if err != nil {
		return err
	}
	for range times {
		began := time.Now()
		code, body, err := d.Do(ctx, "GET", widgets, "", nil)
		if err := expect(code, nil, err); err != nil {
			return err
		}
		took = append(took, time.Since(began))
		size = len(body)
	}
	after, err := cpu(d.PID())
	if err != nil {
		return err
	}
	fmt.Printf("  p50 %s for %.1f MiB, server CPU %s each\n", ms(quantile(took, 0.5)), float64(size)/(1<<20), ms((after-before)/times))
	total, own, err := resident(d.PID())
	if err != nil {
		return err
	}
	fmt.Printf("  with them: %.0f MiB resident, %.0f of it anonymous\n", total, own)
	began := time.Now()
	d.Kill()
	if err := d.Start(ctx); err != nil {
		return err
	}
	if err := d.Get(ctx, widgets+"/l1", nil); err != nil {
		return err
	}
	fmt.Printf("  kill -9 to the first get after the restart: %s\n", ms(time.Since(began)))
	return nil
}
