// Command operatord is the Kubernetes operator pattern in one binary: an API, its store, operators, and
// the processes they run. This package is flags and printing; internal/daemon does the work.
package main

import (
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"operatord.io/operatord/internal/daemon"
	"operatord.io/operatord/internal/interrupt"
	// Before anything larger is initialised, this binary may be the parent of a process, or a member.
	_ "operatord.io/operatord/internal/member"
	_ "operatord.io/operatord/internal/process/shim"
)

// version is set by the linker.
var version = "dev"

func main() { os.Exit(run()) }

func run() int {
	// A reader of its output that goes away doesn't end it. Not ignored: what it starts would ignore it too.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	stderr := daemon.NewOutput(os.Stderr)
	defer stderr.Close()
	if err := rootCommand(stderr).ExecuteContext(interrupt.Context()); err != nil {
		fmt.Fprintln(stderr, "operatord:", err)
		return 1
	}
	return 0
}

func rootCommand(stderr *daemon.Output) *cobra.Command {
	root := &cobra.Command{
		Use:           "operatord",
		Short:         "The Kubernetes operator pattern in one binary, without Kubernetes",
		Version:       version,
		SilenceErrors: true,
		SilenceUsage:  true,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			return fromEnvironment(cmd.Flags())
		},
	}
	root.SetVersionTemplate(versionLine())
	root.AddCommand(
		serveCommand(stderr),
		kubeconfigCommand(),
		tokenCommand(),
		planCommand(),
		stepCommand(),
		storeCommand(),
		versionCommand(),
	)
	root.AddCommand(kubectlCommands()...)
	return root
}

// fromEnvironment takes a flag that was not given from OPERATORD_ and its name in capitals.
func fromEnvironment(flags *pflag.FlagSet) error {
	var failed error
	flags.VisitAll(func(f *pflag.Flag) {
		name := envName(f.Name)
		value, ok := os.LookupEnv(name)
		if f.Changed || !ok || f.Name == "help" || f.Name == "version" || failed != nil {
			return
		}
		if err := flags.Set(f.Name, value); err != nil {
			failed = fmt.Errorf("%s: %w", name, err)
		}
	})
	return failed
}

func envName(flag string) string {
	return "OPERATORD_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// goVersion is the compiler's.
func goVersion() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		return info.GoVersion
	}
	return "unknown"
}
