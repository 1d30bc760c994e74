// Package daemon builds a server from a Config and runs it: the order in which the parts start and stop,
// and the wires between them. Nothing else decides anything here.
//
// Run takes the data directory (lock), makes or reads credentials, opens the store, teaches the registry
// what CRDs the store holds, puts the watch cache, the verbs and the API on top, starts informers and
// controllers, listens, and last of all writes endpoints.json and becomes ready. Stopping goes the other
// way round: not ready, watches and requests drained, controllers, cache, store; processes of Pods are
// left running, to be adopted by the next daemon.
package daemon

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Config is what `operatord serve` can be told.
type Config struct {
	DataDir    string        // everything the daemon keeps; made 0700
	Listen     string        // the API over TLS; port 0 picks a free one
	HTTP       string        // metrics and health, plain HTTP; port 0 picks a free one
	Operators  string        // which operators act; see operators.go
	Workers    int           // objects that one controller reconciles at once
	Resync     time.Duration // how often a controller looks at every object although nothing changed
	HostImages string        // image names that mean this machine's programs, comma-separated
	Storage    string        // "" is the embedded store in DataDir

	Version string       // operatord's own
	Log     *slog.Logger // nil: slog.Default
	// LogDropped is how many lines of Log nobody will read; nil: that isn't known.
	LogDropped func() int
}

// Defaults are the values of flags that were not given.
func Defaults() Config {
	return Config{
		DataDir:    DefaultDataDir(),
		Listen:     "127.0.0.1:7443",
		HTTP:       "127.0.0.1:7480",
		Operators:  "*",
		Workers:    4,
		Resync:     5 * time.Minute,
		HostImages: "host",
	}
}

// DefaultDataDir is /var/lib/operatord for root, and operatord below $XDG_STATE_HOME otherwise.
func DefaultDataDir() string {
	if os.Geteuid() == 0 {
		return "/var/lib/operatord"
	}
	state := os.Getenv("XDG_STATE_HOME")
	if state == "" {
		state = filepath.Join(os.Getenv("HOME"), ".local", "state")
	}
	return filepath.Join(state, "operatord")
}

var errNoDataDir = errors.New("no data directory: --data-dir (or OPERATORD_DATA_DIR) is empty")

// check completes c and says what can't be served as it was asked for.
func (c *Config) check() error {
	if c.Log == nil {
		c.Log = slog.Default()
	}
	if c.DataDir == "" {
		return fmt.Errorf("daemon: %w", errNoDataDir)
	}
	dir, err := filepath.Abs(c.DataDir)
	if err != nil {
		return fmt.Errorf("daemon: data directory: %w", err)
	}
	c.DataDir = dir
	for flag, addr := range map[string]string{"--listen": c.Listen, "--http": c.HTTP} {
		if _, _, err := net.SplitHostPort(addr); err != nil {
			return fmt.Errorf("daemon: %s %q is not HOST:PORT: %w", flag, addr, err)
		}
	}
	if c.Workers < 1 {
		return fmt.Errorf("daemon: --workers %d: at least one is needed", c.Workers)
	}
	if c.Resync <= 0 {
		return fmt.Errorf("daemon: --resync %s: it must be longer than nothing; it heals lost events", c.Resync)
	}
	if c.Storage != "" {
		return fmt.Errorf("daemon: --storage %q: only the embedded store is there (leave the flag out)", c.Storage)
	}
	return nil
}

// hostImages are the patterns in HostImages.
func (c *Config) hostImages() []string {
	var patterns []string
	for p := range strings.SplitSeq(c.HostImages, ",") {
		if p = strings.TrimSpace(p); p != "" {
			patterns = append(patterns, p)
		}
	}
	return patterns
}
