package auth

import (
	"context"
	"net"
	"net/http"

	"golang.org/x/sys/unix"
	"k8s.io/apiserver/pkg/authentication/user"
)

type peerKey struct{}

// ConnContext is for http.Server.ConnContext: it notes which Unix user is at the other end of a unix socket.
func ConnContext(ctx context.Context, c net.Conn) context.Context {
	uc, ok := c.(*net.UnixConn)
	if !ok {
		return ctx
	}
	raw, err := uc.SyscallConn()
	if err != nil {
		return ctx
	}
	var cred *unix.Ucred
	if raw.Control(func(fd uintptr) {
		cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}) != nil || err != nil {
		return ctx
	}
	return context.WithValue(ctx, peerKey{}, cred.Uid)
}

// Peers knows users of this machine who have connected to the unix socket.
type Peers map[uint32]user.Info // by Unix user id

// Authenticate implements Authenticator. It needs ConnContext in the http.Server.
func (p Peers) Authenticate(r *http.Request) (user.Info, bool, error) {
	uid, ok := r.Context().Value(peerKey{}).(uint32)
	if !ok {
		return nil, false, nil
	}
	u, ok := p[uid]
	if !ok {
		return nil, false, nil
	}
	return Authenticated(u), true, nil
}
