package auth

import (
	"context"
	"crypto/sha256"
	"errors"
	"net/http"
	"strings"

	"k8s.io/apiserver/pkg/authentication/user"
)

var errBadCredentials = errors.New("auth: the Authorization header holds no credentials that are known here")

// Tokens are fixed bearer tokens. Only their digests are kept, so that looking one up takes the same time
// whatever a guess has in common with it.
type Tokens struct {
	users map[[sha256.Size]byte]user.Info
}

// NewTokens makes an Authenticator of tokens and whom they stand for.
func NewTokens(users map[string]user.Info) *Tokens {
	t := &Tokens{users: make(map[[sha256.Size]byte]user.Info, len(users))}
	for token, u := range users {
		if token != "" {
			t.users[sha256.Sum256([]byte(token))] = Authenticated(u)
		}
	}
	return t
}

// Authenticate implements Authenticator: an unknown bearer token is an error.
func (t *Tokens) Authenticate(r *http.Request) (user.Info, bool, error) {
	token, ok := bearer(r.Header)
	if !ok {
		return nil, false, nil
	}
	u, ok, err := t.Token(r.Context(), token)
	if err == nil && !ok {
		err = errBadCredentials
	}
	return u, ok, err
}

// Token implements TokenAuthenticator.
func (t *Tokens) Token(_ context.Context, token string) (user.Info, bool, error) {
	u, ok := t.users[sha256.Sum256([]byte(token))]
	return u, ok, nil
}

func bearer(h http.Header) (string, bool) {
	scheme, token, _ := strings.Cut(strings.TrimSpace(h.Get("Authorization")), " ")
	token = strings.TrimSpace(token)
	return token, strings.EqualFold(scheme, "bearer") && token != ""
}
