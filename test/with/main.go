// Command with runs another command against a fresh daemon and ends both:
//
//	with -bin bin/operatord -serve --operators= -- CMD ARGS…
//
// The command finds KUBECONFIG in its environment; its exit status becomes this one's. The daemon's log is
// printed when it has failed.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"

	"operatord.io/operatord/test/daemon"
)

// list is a flag that may be given again.
type list []string

func (l *list) String() string     { return strings.Join(*l, " ") }
func (l *list) Set(s string) error { *l = append(*l, s); return nil }

func main() {
	bin := flag.String("bin", "bin/operatord", "the daemon's binary")
	var serve list
	flag.Var(&serve, "serve", "an argument of serve; may be repeated")
	flag.Parse()
	if err := run(*bin, serve, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "with:", err)
		var exit *exec.ExitError
		if errors.As(err, &exit) && exit.ExitCode() > 0 {
			os.Exit(exit.ExitCode())
		}
		os.Exit(1)
	}
}

func run(bin string, serve, command []string) error {
	if len(command) == 0 {
		return errors.New("no command: with [flags] -- CMD ARGS…")
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	dir, err := os.MkdirTemp("", "operatord-with-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	d := daemon.New(daemon.Options{Bin: bin, Dir: dir, Args: serve, Env: []string{"GORACE=halt_on_error=1"}})
	defer d.Close()
	if err := d.Start(ctx); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+d.File("admin.kubeconfig"))
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	err = cmd.Run()
	if d.Running() {
		err = errors.Join(err, d.Stop())
	} else {
		err = errors.Join(err, errors.New("the daemon ended by itself"))
	}
	if err != nil {
		log := d.Log()
		fmt.Fprintf(os.Stderr, "log of the daemon:\n%s\n", log[max(0, len(log)-16000):])
	}
	return err
}
