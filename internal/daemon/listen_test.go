package daemon

import (
	"log/slog"
	"net"
	"strings"
	"testing"
)

// at is a listener on an address that isn't listened on.
type at struct {
	net.Listener
	addr net.TCPAddr
}

func (l at) Addr() net.Addr { return &l.addr }

// An address that others reach is told, with the way back; clients of this machine get one that they can use.
func TestAddressesThatOthersReach(t *testing.T) {
	for ip, want := range map[string]struct {
		told      bool
		reachable string
	}{
		"127.0.0.1": {false, "127.0.0.1:1"}, "127.0.0.9": {false, "127.0.0.9:1"}, "::1": {false, "[::1]:1"},
		"0.0.0.0": {true, "127.0.0.1:1"}, "::": {true, "127.0.0.1:1"}, "192.0.2.1": {true, "192.0.2.1:1"},
	} {
		l := at{addr: net.TCPAddr{IP: net.ParseIP(ip), Port: 1}}
		var told strings.Builder
		(&listeners{api: l, plain: l}).sayWhoReaches(slog.New(slog.NewTextHandler(&told, nil)))
		for _, hint := range []string{"OPERATORD_LISTEN", "OPERATORD_HTTP"} {
			if strings.Contains(told.String(), hint) != want.told {
				t.Errorf("%s: %q", ip, &told)
			}
		}
		if got := reachable(l.Addr()); got != want.reachable {
			t.Errorf("%s is reached at %s, want %s", ip, got, want.reachable)
		}
	}
}
