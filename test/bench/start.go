package main

import (
	"context"
	"fmt"
	"time"
)

const starts = 10

func measureStart(ctx context.Context, b *bench) error {
	var first, again []time.Duration
	for range starts {
		began := time.Now()
		d, stop, err := b.start(ctx)
		if err != nil {
			return err
		}
		first = append(first, time.Since(began))
		d.Kill()
		began = time.Now()
		if err := d.Start(ctx); err != nil {
			stop()
			return err
		}
		again = append(again, time.Since(began))
		stop()
	}
	fmt.Printf("  empty directory: p50 %s, slowest %s\n", ms(quantile(first, 0.5)), ms(quantile(first, 1)))
	fmt.Printf("  after kill -9:   p50 %s, slowest %s\n", ms(quantile(again, 0.5)), ms(quantile(again, 1)))
	d, stop, err := b.start(ctx)
	if err != nil {
		return err
	}
	defer stop()
	total, own, err := resident(d.PID())
	if err != nil {
		return err
	}
	fmt.Printf("  idle: %.0f MiB resident, %.0f of it anonymous\n", total, own)
	return nil
}
