package daemon

import (
	"context"
	"log"
	"log/slog"
	"regexp"
	"strings"
	"sync"
)

// causesKept bounds how many causes a causes remembers. What comes beyond is told like one seen before.
const causesKept = 100

// causes tells what net/http has to say about connections: each cause once, and from then on only at level debug,
// while counted goes on. A client that hangs up is no cause for anybody to look.
type causes struct {
	log     *slog.Logger
	counted func()

	mu   sync.Mutex
	seen map[string]bool
}

// logger is for http.Server.ErrorLog.
func (c *causes) logger() *log.Logger { return log.New(c, "", 0) }

// varying is what differs each time although the cause is the same: where somebody connected from, and how long it
// takes until accept is tried again.
var varying = regexp.MustCompile(`(\[[0-9a-zA-Z:.%]+\]|[0-9.]+):\d+|; retrying in .*`)

// Write implements io.Writer, for one line.
func (c *causes) Write(line []byte) (int, error) {
	c.counted()
	text := strings.TrimPrefix(strings.TrimSpace(string(line)), "http: ")
	level := slog.LevelWarn
	switch {
	case strings.HasPrefix(text, "panic serving"):
		level = slog.LevelError
	case hungUp(text), c.known(varying.ReplaceAllString(text, "")):
		level = slog.LevelDebug
	case strings.HasPrefix(text, "TLS handshake error"):
		level = slog.LevelInfo // the client's, as a rule: it doesn't trust the authority, or speaks no TLS
	}
	c.log.Log(context.Background(), level, "connection: "+text)
	return len(line), nil
}

// known tells whether a cause was told before, and remembers it.
func (c *causes) known(cause string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.seen[cause] || len(c.seen) == causesKept {
		return true
	}
	if c.seen == nil {
		c.seen = map[string]bool{}
	}
	c.seen[cause] = true
	return false
}

// hungUp tells whether an error is that a client, or who made room for others, ended its connection.
func hungUp(text string) bool {
	for _, end := range []string{": EOF", "connection reset by peer", "broken pipe", "i/o timeout", "use of closed network connection", "unexpected EOF"} {
		if strings.HasSuffix(text, end) {
			return true
		}
	}
	return false
}
