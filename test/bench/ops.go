package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"operatord.io/operatord/test/daemon"
)

const (
	widgetCRD = `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.bench.example.com}
spec:
  group: bench.example.com
  scope: Namespaced
  names: {kind: Widget, plural: widgets}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            required: [size]
            properties:
              size: {type: integer, minimum: 0}
              text: {type: string, maxLength: 4096}
          status: {type: object, x-kubernetes-preserve-unknown-fields: true}
`
	widgets     = "/apis/bench.example.com/v1/namespaces/default/widgets"
	measureFor  = 5 * time.Second
	objectBytes = 1024
)

// withWidgets starts a daemon that acts on nothing and serves Widgets.
func (b *bench) withWidgets(ctx context.Context) (*daemon.Daemon, func(), error) {
	d, stop, err := b.start(ctx, "--operators", "")
	if err != nil {
		return nil, nil, err
	}
	if err := d.Create(ctx, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", widgetCRD, nil); err != nil {
		stop()
		return nil, nil, err
	}
	err = daemon.Poll(ctx, 10*time.Millisecond, func() error { return d.Get(ctx, widgets, nil) })
	if err != nil {
		stop()
		return nil, nil, err
	}
	return d, stop, nil
}

func widget(name string) []byte {
	object := fmt.Sprintf(`{"apiVersion":"bench.example.com/v1","kind":"Widget","metadata":{"name":%q},"spec":{"size":1,"text":"`, name)
	return []byte(object + strings.Repeat("x", max(0, objectBytes-len(object)-3)) + `"}}`)
}

func measureOps(ctx context.Context, b *bench) error {
	d, stop, err := b.withWidgets(ctx)
	if err != nil {
		return err
	}
	defer stop()
	var serial atomic.Int64
	create := func(ctx context.Context) error {
		return expect(d.Do(ctx, "POST", widgets, "application/json", widget(fmt.Sprint("w", serial.Add(1)))))
	}
	get := func(ctx context.Context) error {
		return expect(d.Do(ctx, "GET", fmt.Sprint(widgets, "/w", 1+serial.Add(1)%100), "", nil))
	}
	apply := func(ctx context.Context) error {
		n := serial.Add(1)
		name := fmt.Sprint("a", n%256)
		body := strings.Replace(string(widget(name)), `"size":1`, fmt.Sprint(`"size":`, n), 1)
		return expect(d.Do(ctx, "PATCH", widgets+"/"+name+"?fieldManager=bench&force=true", "application/apply-patch+yaml", []byte(body)))
	}
	fmt.Printf("  %-8s %8s %10s %12s %12s %16s\n", "", "clients", "a second", "p50", "p99", "server CPU each")
	for _, op := range []struct {
		name string
		do   func(context.Context) error
	}{{"create", create}, {"get", get}, {"apply", apply}} {
		for _, clients := range []int{1, 16, 64} {
			r, err := load(ctx, d.PID(), clients, op.do)
			if err != nil {
				return fmt.Errorf("%s with %d clients: %w", op.name, clients, err)
			}
			fmt.Printf("  %-8s %8d %10.0f %12s %12s %13d µs\n", op.name, clients, r.rate, ms(r.p50), ms(r.p99), r.cpu.Microseconds())
		}
	}
	return nil
}

func expect(code int, body []byte, err error) error {
	if err == nil && code >= 300 {
		err = fmt.Errorf("%d %s", code, body)
	}
	return err
}

// result of one load.
type result struct {
	rate     float64 // operations a second
	p50, p99 time.Duration
	cpu      time.Duration // of the server, an operation
}

// load has so many clients do one thing after the other for a while.
func load(ctx context.Context, pid, clients int, do func(context.Context) error) (result, error) {
	end := time.Now().Add(measureFor)
	before, err := cpu(pid)
	if err != nil {
		return result{}, err
	}
	began := time.Now()
	took := make([][]time.Duration, clients)
	failed := make([]error, clients)
	var group sync.WaitGroup
	for i := range clients {
		group.Go(func() {
			for time.Now().Before(end) {
				start := time.Now()
				if failed[i] = do(ctx); failed[i] != nil {
					return
				}
				took[i] = append(took[i], time.Since(start))
			}
		})
	}
	group.Wait()
	elapsed := time.Since(began)
	after, err := cpu(pid)
	if err := errors.Join(append(failed, err)...); err != nil {
		return result{}, err
	}
	var all []time.Duration
	for _, t := range took {
		all = append(all, t...)
	}
	n := len(all)
	return result{
		rate: float64(n) / elapsed.Seconds(),
		p50:  quantile(all, 0.5), p99: quantile(all, 0.99),
		cpu: (after - before) / time.Duration(n),
	}, nil
}
