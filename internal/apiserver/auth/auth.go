// Package auth says who sent a request and whether they may do what it asks for.
//
// An Authenticator looks at one kind of credentials; Chain asks several in turn, and the first that knows
// the sender decides: client certificate, peer of the unix socket, bearer token, and last Anonymous. Bad
// credentials are an error, never anonymity. A sender that may impersonate can then act as somebody else.
// An Authorizer gets the final user and the request's attributes. Names, groups and messages are those of
// Kubernetes, so that RBAC rules and clients' expectations carry over.
package auth

import (
	"context"
	"net/http"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// Authenticator tells who sent a request.
type Authenticator interface {
	// Authenticate returns ok false when the request carries no credentials of its kind, and an error when
	// it carries bad ones. The returned user is shared: copy before changing. Safe for concurrent use.
	Authenticate(r *http.Request) (u user.Info, ok bool, err error)
}

// TokenAuthenticator knows bearer tokens by themselves, as a TokenReview asks for.
type TokenAuthenticator interface {
	Token(ctx context.Context, token string) (u user.Info, ok bool, err error)
}

// Authorizer decides about a request. A reason without a decision for it is told to the client.
type Authorizer interface {
	Authorize(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error)
}

// Chain asks each Authenticator in turn until one knows the sender. Good credentials outweigh bad ones beside
// them; bad ones alone never make an anonymous request.
type Chain []Authenticator

// Authenticate implements Authenticator.
func (c Chain) Authenticate(r *http.Request) (user.Info, bool, error) {
	var failed error
	for _, a := range c {
		if _, last := a.(Anonymous); last && failed != nil {
			break
		}
		u, ok, err := a.Authenticate(r)
		if ok && err == nil {
			return u, true, nil
		}
		if err != nil && failed == nil {
			failed = err
		}
	}
	return nil, false, failed
}

// Anonymous takes a request without any credentials as system:anonymous. It stands last in a Chain and
// refuses a request whose credentials nobody before it understood.
type Anonymous struct{}

// Authenticate implements Authenticator.
func (Anonymous) Authenticate(r *http.Request) (user.Info, bool, error) {
	if r.Header.Get("Authorization") != "" {
		return nil, false, errBadCredentials
	}
	return &user.DefaultInfo{Name: user.Anonymous, Groups: []string{user.AllUnauthenticated}}, true, nil
}

// Authenticated returns u as a member of system:authenticated.
func Authenticated(u user.Info) user.Info {
	for _, g := range u.GetGroups() {
		if g == user.AllAuthenticated || g == user.AllUnauthenticated {
			return u
		}
	}
	return &user.DefaultInfo{
		Name:   u.GetName(),
		UID:    u.GetUID(),
		Groups: append(append([]string(nil), u.GetGroups()...), user.AllAuthenticated),
		Extra:  u.GetExtra(),
	}
}
