// Command conformance replays recorded conversations with the real kube-apiserver against any
// server that claims its API, and says where the answers differ. See README.md.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	err := run(ctx, os.Args[1:], os.Stdout)
	if err != nil && !errors.Is(err, errFailed) {
		fmt.Fprintln(os.Stderr, "conformance:", err)
	}
	if err != nil {
		stop()
		os.Exit(1)
	}
}

const usage = `usage: conformance run|record [flags] DIR|FILE...`

var errFailed = errors.New("some cases failed")

func run(ctx context.Context, args []string, out io.Writer) error {
	if len(args) == 0 || args[0] != "run" && args[0] != "record" {
		return errors.New(usage)
	}
	record := args[0] == "record"
	fs := flag.NewFlagSet(args[0], flag.ContinueOnError)
	fs.Usage = func() { fmt.Fprintln(fs.Output(), usage); fs.PrintDefaults() }
	var (
		config   = fs.String("kubeconfig", os.Getenv("KUBECONFIG"), "kubeconfig `file` whose current context names server and user")
		server   = fs.String("server", "", "server `URL`, in place of the kubeconfig's")
		token    = fs.String("token", "", "bearer `token`, in place of the kubeconfig's user")
		insecure = fs.Bool("insecure", false, "do not verify the server's certificate")
		filter   = fs.String("filter", "", "only cases whose area/name matches this `regexp`")
		parallel = fs.Int("parallel", 4, "cases at a time")
		timeout  = fs.Duration("timeout", 10*time.Second, "limit for one case")
		drop     = fs.String("drop", "", "do not compare fields with these `names`, wherever they stand (comma-separated; e.g. managedFields)")
		verbose  = fs.Bool("v", false, "name passing cases too and show every difference")
		base     = fs.String("baseline", "", "`file` of the cases that are known to pass: fail only if one of them fails")
		save     = fs.Bool("save-baseline", false, "write what passed into the baseline")
	)
	if err := fs.Parse(args[1:]); err != nil {
		return err
	}
	if fs.NArg() == 0 {
		return errors.New(usage)
	}
	match, err := regexp.Compile(*filter)
	if err != nil {
		return err
	}
	cases, err := loadCases(fs.Args())
	if err != nil {
		return err
	}
	cases = slices.DeleteFunc(cases, func(c *Case) bool { return !match.MatchString(c.Area + "/" + c.Name) })

	a := access{}
	if *server == "" {
		if a, err = loadKubeconfig(*config); err != nil {
			return fmt.Errorf("--kubeconfig or --server is needed: %w", err)
		}
	}
	a.server = cmp.Or(*server, a.server)
	if *token != "" {
		a.token, a.cert, a.key = *token, nil, nil
	}
	if *insecure {
		a.insecure, a.ca = true, nil
	}
	cl, err := newClient(a)
	if err != nil {
		return err
	}
	if err := reachable(ctx, cl); err != nil {
		return err
	}
	known, err := loadBaseline(*base)
	if err != nil {
		return err
	}
	r := &runner{client: cl, timeout: *timeout}
	rep := &reporter{out: out, verbose: *verbose, areas: map[string]*tally{}, passed: map[string]bool{}}
	each(ctx, cases, *parallel, func(c *Case) {
		if record {
			rep.done(c, nil, r.record(ctx, c))
			return
		}
		ds, err := r.check(ctx, c, strings.Split(*drop, ","))
		rep.done(c, ds, err)
	})
	err = rep.summary()
	if *base == "" || record || len(rep.passed) == 0 {
		return err
	}
	if *save {
		known.add(rep.passed)
		return known.save(*base)
	}
	return known.verdict(out, rep.passed)
}

func reachable(ctx context.Context, cl *client) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	resp, err := cl.do(ctx, request{method: "GET", path: "/version"})
	if err != nil {
		return fmt.Errorf("no server to test: %w", err)
	}
	if resp.status != 200 {
		return fmt.Errorf("GET /version: status %d: %s", resp.status, short(resp.body))
	}
	return nil
}

// each calls f for every case, n at a time, until the context ends.
func each(ctx context.Context, cases []*Case, n int, f func(*Case)) {
	queue := make(chan *Case)
	var workers sync.WaitGroup
	for range max(n, 1) {
		workers.Go(func() {
			for c := range queue {
				f(c)
			}
		})
	}
	for _, c := range cases {
		if ctx.Err() != nil {
			break
		}
		queue <- c
	}
	close(queue)
	workers.Wait()
}

// check plays a case and compares the answers with the recorded ones.
func (r *runner) check(ctx context.Context, c *Case, drop []string) ([]difference, error) {
	want, err := c.loadExpect()
	if err != nil {
		return nil, err
	}
	got, err := r.play(ctx, c)
	return compareSteps(got, want, drop), err
}

// record plays a case twice and saves the answers if they agree.
func (r *runner) record(ctx context.Context, c *Case) error {
	first, err := r.play(ctx, c)
	if err != nil {
		return err
	}
	second, err := r.play(ctx, c)
	if err != nil {
		return err
	}
	if ds := compareSteps(second, first, nil); len(ds) > 0 {
		return fmt.Errorf("two runs differ, not recorded: %v", ds[0])
	}
	return c.saveExpect(first)
}

func compareSteps(got, want []Expect, drop []string) (ds []difference) {
	for i := range got {
		for _, d := range want[i].compare(got[i]) {
			if slices.ContainsFunc(drop, func(name string) bool { return name != "" && strings.Contains(d.path, name) }) {
				continue
			}
			d.path = fmt.Sprintf("step %d: %s: %s", i+1, want[i].Step, d.path)
			ds = append(ds, d)
		}
	}
	return ds
}

// reporter prints results as they come and counts them.
type reporter struct {
	out     io.Writer
	verbose bool

	mu     sync.Mutex
	areas  map[string]*tally
	passed map[string]bool // area/name of every case that ran
}

type tally struct{ passed, failed int }

const shownDifferences = 4 // a case, unless verbose

func (r *reporter) done(c *Case, ds []difference, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	t := r.areas[c.Area]
	if t == nil {
		t = &tally{}
		r.areas[c.Area] = t
	}
	r.passed[c.Area+"/"+c.Name] = err == nil && len(ds) == 0
	if err == nil && len(ds) == 0 {
		t.passed++
		if r.verbose {
			fmt.Fprintf(r.out, "ok   %s/%s\n", c.Area, c.Name)
		}
		return
	}
	t.failed++
	fmt.Fprintf(r.out, "FAIL %s/%s: %s\n", c.Area, c.Name, c.Doc)
	for i, d := range ds {
		if i == shownDifferences && !r.verbose {
			fmt.Fprintf(r.out, "    … and %d more\n", len(ds)-i)
			break
		}
		fmt.Fprintf(r.out, "    %v\n", d)
	}
	if err != nil {
		fmt.Fprintf(r.out, "    %v\n", err)
	}
}

// summary prints the totals and returns errFailed if a case failed.
func (r *reporter) summary() error {
	var total tally
	for _, area := range slices.Sorted(maps.Keys(r.areas)) {
		t := r.areas[area]
		total.passed += t.passed
		total.failed += t.failed
		fmt.Fprintf(r.out, "%-12s %4d passed, %d failed\n", area, t.passed, t.failed)
	}
	fmt.Fprintf(r.out, "%d passed, %d failed\n", total.passed, total.failed)
	if total.failed > 0 || total.passed == 0 {
		return errFailed
	}
	return nil
}
