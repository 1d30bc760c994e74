package main

import (
	"fmt"
	"log/slog"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/klog/v2"

	"operatord.io/operatord/internal/daemon"
)

func serveCommand(stderr *daemon.Output) *cobra.Command {
	c := daemon.Defaults()
	logLevel := "info"
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run the daemon",
		Long: fmt.Sprintf(`Run the daemon: the API over TLS, metrics and health on a second address, and the operators.

It serves until SIGTERM or SIGINT, and leaves the processes of Pods running; the next daemon on the same
data directory adopts them. Every flag can also be given in the environment: --data-dir is
OPERATORD_DATA_DIR, and so on. A flag wins.

The operators are %s. With --operators '' it is an API server and nothing else.`,
			strings.Join(daemon.OperatorNames(), ", ")),
		Example: `  operatord serve --data-dir ~/operatord
  operatord serve --operators '' --listen 127.0.0.1:0 --http 127.0.0.1:0   # for tests: endpoints.json says where`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var level slog.Level
			if err := level.UnmarshalText([]byte(logLevel)); err != nil {
				return fmt.Errorf("--log-level %q: use debug, info, warn or error", logLevel)
			}
			c.Version = version
			c.Log = slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: level}))
			c.LogDropped = stderr.Dropped
			klog.SetSlogLogger(c.Log) // Kubernetes' libraries log through it,
			slog.SetDefault(c.Log)    // others through this or package log
			return daemon.Run(cmd.Context(), c)
		},
	}
	f := cmd.Flags()
	f.StringVar(&c.DataDir, "data-dir", c.DataDir, "directory of everything it keeps; made 0700")
	f.StringVar(&c.Listen, "listen", c.Listen, "address of the API over TLS; port 0 picks a free one")
	f.StringVar(&c.HTTP, "http", c.HTTP, "address of metrics and health, plain HTTP; port 0 picks a free one")
	f.StringVar(&c.Operators, "operators", c.Operators, "operators that act: a list, '*' for all, '-name' for all but it, empty for none")
	f.IntVar(&c.Workers, "workers", c.Workers, "objects that one controller reconciles at once")
	f.DurationVar(&c.Resync, "resync", c.Resync, "how often a controller looks at every object although nothing changed")
	f.StringVar(&c.HostImages, "host-images", c.HostImages, "comma-separated image names, with * as wildcard, that mean this machine's own programs")
	f.StringVar(&c.Storage, "storage", c.Storage, "where objects are kept; empty is the embedded store in the data directory")
	f.StringVar(&logLevel, "log-level", logLevel, "debug, info, warn or error")
	return cmd
}
