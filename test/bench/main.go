// Command bench measures operatord from outside and prints the figures that README gives. It starts the
// binary itself, on free ports, in directories of its own, one daemon after the other.
//
// Client and server share the machine, so rates say as much about the client as about the server: the
// server's CPU time stands beside each, and compares better between machines.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"time"

	"operatord.io/operatord/test/daemon"
)

func main() {
	bin := flag.String("bin", "bin/operatord", "the binary to measure")
	only := flag.String("run", "", "comma-separated parts to run: "+strings.Join(names(), ", ")+"; empty for all")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	fmt.Printf("operatord, measured on %d cores, %s/%s, %s\n", runtime.NumCPU(), runtime.GOOS, runtime.GOARCH, time.Now().UTC().Format("2006-01-02"))
	for _, p := range parts() {
		if *only != "" && !strings.Contains(","+*only+",", ","+p.name+",") {
			continue
		}
		fmt.Printf("\n%s\n", p.title)
		if err := p.run(ctx, &bench{bin: *bin}); err != nil {
			fmt.Fprintf(os.Stderr, "bench: %s: %v\n", p.name, err)
			os.Exit(1)
		}
	}
}

// part is one thing that is measured.
type part struct {
	name, title string
	run         func(context.Context, *bench) error
}

// parts are all of them, in order.
func parts() []part {
	return []part{
		{"start", "start (from exec to /readyz 200) and resident memory", measureStart},
		{"ops", "custom resources of 1 KiB: operations by number of clients", measureOps},
		{"list", "list of 10,000 custom resources of 1 KiB", measureList},
		{"watch", "watch latency (from sending a create to having its event), by number of watchers", measureWatch},
		{"repair", "kill -9 of a member until the Cluster is Ready again", measureRepair},
		{"many", "40 one-member Clusters submitted together until 35 are Ready", measureMany},
	}
}

func names() []string {
	var out []string
	for _, p := range parts() {
		out = append(out, p.name)
	}
	return out
}

// bench starts daemons.
type bench struct{ bin string }

// start starts a daemon in a new directory; stop ends it and removes the directory.
func (b *bench) start(ctx context.Context, args ...string) (d *daemon.Daemon, stop func(), err error) {
	dir, err := os.MkdirTemp("", "operatord-bench-")
	if err != nil {
		return nil, nil, err
	}
	d = daemon.New(daemon.Options{Bin: b.bin, Dir: dir, Args: args})
	stop = func() {
		d.Close()
		os.RemoveAll(dir)
	}
	if err := d.Start(ctx); err != nil {
		stop()
		return nil, nil, err
	}
	return d, stop, nil
}
