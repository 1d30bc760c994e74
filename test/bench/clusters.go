package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"operatord.io/operatord/test/daemon"
)

const clusters = "/apis/operatord.io/v1alpha1/namespaces/default/clusters"

type cluster struct {
	daemon.Meta
	Status struct {
		Phase  string
		Leader string
	}
}

// watchPhases tells every state of every Cluster to f until it returns false.
func watchPhases(ctx context.Context, d *daemon.Daemon, f func(cluster) bool) error {
	return d.Watch(ctx, clusters+"?watch=1", func(e daemon.Event) bool {
		var c cluster
		return json.Unmarshal(e.Object, &c) == nil && f(c)
	})
}

func declare(ctx context.Context, d *daemon.Daemon, name string, members int, more string) error {
	return d.Create(ctx, clusters, fmt.Sprintf("apiVersion: operatord.io/v1alpha1\nkind: Cluster\nmetadata: {name: %s}\nspec:\n  members: %d\n%s", name, members, more), nil)
}

// pidOf is the process of a member.
func pidOf(ctx context.Context, d *daemon.Daemon, pod string) (int, error) {
	var p struct {
		Status struct {
			ContainerStatuses []struct{ ContainerID string }
		}
	}
	if err := d.Get(ctx, "/api/v1/namespaces/default/pods/"+pod, &p); err != nil {
		return 0, err
	}
	if len(p.Status.ContainerStatuses) == 0 {
		return 0, fmt.Errorf("%s has no process", pod)
	}
	id, _, _ := strings.Cut(strings.TrimPrefix(p.Status.ContainerStatuses[0].ContainerID, "process://"), "/")
	return strconv.Atoi(id)
}

func measureRepair(ctx context.Context, b *bench) error {
	d, stop, err := b.start(ctx)
	if err != nil {
		return err
	}
	defer stop()
	const times = 10
	var follower, leader, elected []time.Duration
	for i := range times {
		name := fmt.Sprint("r", i)
		if err := declare(ctx, d, name, 3, ""); err != nil {
			return err
		}
		ready := func(c cluster) bool { return c.Metadata.Name != name || c.Status.Phase != "Ready" }
		if err := watchPhases(ctx, d, ready); err != nil {
			return err
		}
		for _, victim := range []string{name + "-2", name + "-0"} {
			repaired, newLeader, err := killAndWait(ctx, d, name, victim)
			if err != nil {
				return err
			}
			if victim == name+"-0" {
				leader, elected = append(leader, repaired), append(elected, newLeader)
			} else {
				follower = append(follower, repaired)
			}
		}
		if err := d.Delete(ctx, clusters+"/"+name); err != nil {
			return err
		}
	}
	fmt.Printf("  a follower: p50 %s, slowest %s\n", ms(quantile(follower, 0.5)), ms(quantile(follower, 1)))
	fmt.Printf("  the leader: p50 %s, slowest %s; another one leads after p50 %s\n", ms(quantile(leader, 0.5)), ms(quantile(leader, 1)), ms(quantile(elected, 0.5)))
	return nil
}

// killAndWait kills a member and tells how long it took until the Cluster was Ready again, and until
// another member led where the victim did.
func killAndWait(ctx context.Context, d *daemon.Daemon, name, victim string) (repaired, elected time.Duration, err error) {
	pid, err := pidOf(ctx, d, victim)
	if err != nil {
		return 0, 0, err
	}
	var began time.Time
	degraded := false
	err = watchPhases(ctx, d, func(c cluster) bool {
		if c.Metadata.Name != name {
			return true
		}
		if began.IsZero() { // the watch is open and has shown the present
			began = time.Now()
			err := syscall.Kill(pid, syscall.SIGKILL)
			return err == nil
		}
		degraded = degraded || c.Status.Phase == "Degraded"
		if elected == 0 && c.Status.Leader != "" && c.Status.Leader != victim {
			elected = time.Since(began)
		}
		return !degraded || c.Status.Phase != "Ready"
	})
	if err == nil && !degraded {
		err = errors.New("the kill was not noticed")
	}
	return time.Since(began), elected, err
}

const neverReady = `  template:
    spec:
      containers:
      - {name: main, image: host, command: [sleep, "100000"], readinessProbe: {periodSeconds: 1, exec: {command: ["false"]}}}
`

func measureMany(ctx context.Context, b *bench) error {
	without, err := many(ctx, b, 35, nil)
	if err != nil {
		return err
	}
	with, err := many(ctx, b, 35, []string{"  restoreFrom: missing\n", "  restoreFrom: missing\n", neverReady, neverReady, neverReady})
	if err != nil {
		return err
	}
	fmt.Printf("  35 alone: %s\n", ms(without))
	fmt.Printf("  beside five that can't be Ready: %s, %.2f times as long\n", ms(with), float64(with)/float64(without))
	return nil
}

// many submits Clusters together and waits until the good ones are Ready.
func many(ctx context.Context, b *bench, good int, bad []string) (time.Duration, error) {
	d, stop, err := b.start(ctx)
	if err != nil {
		return 0, err
	}
	defer stop()
	began := time.Now()
	failed := make([]error, good+len(bad))
	var group sync.WaitGroup
	for i := range failed {
		group.Go(func() {
			if i < len(bad) {
				failed[i] = declare(ctx, d, fmt.Sprint("bad", i), 1, bad[i])
			} else {
				failed[i] = declare(ctx, d, fmt.Sprint("good", i), 1, "")
			}
		})
	}
	group.Wait()
	if err := errors.Join(failed...); err != nil {
		return 0, err
	}
	ready := map[string]bool{}
	err = watchPhases(ctx, d, func(c cluster) bool {
		if strings.HasPrefix(c.Metadata.Name, "good") {
			ready[c.Metadata.Name] = c.Status.Phase == "Ready"
		}
		n := 0
		for _, r := range ready {
			if r {
				n++
			}
		}
		return n < good
	})
	return time.Since(began), err
}
