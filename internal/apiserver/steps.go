package apiserver

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"operatord.io/operatord/internal/apiserver/auth"
)

// parse takes the path apart and finds what it names.
func (s *Server) parse(x *exchange) bool {
	info, err := s.info.NewRequestInfo(x.r)
	if err != nil {
		x.text(http.StatusInternalServerError, fmt.Sprintf("failed to create RequestInfo: %v\n", err))
		return false
	}
	x.info = info
	if info.IsResourceRequest {
		x.kind, x.version, _ = s.cfg.Registry.Lookup(info.APIGroup, info.APIVersion, info.Resource)
	}
	return true
}

// authenticate finds out who is asking. Bad credentials are a 401 even where none are needed.
func (s *Server) authenticate(x *exchange) bool {
	u, ok, err := s.cfg.Authenticator.Authenticate(x.r)
	if err != nil || !ok {
		if err != nil {
			s.cfg.Log.Debug("request refused", "remote", x.r.RemoteAddr, "error", err)
		}
		x.fail(apierrors.NewUnauthorized("Unauthorized"))
		return false
	}
	x.r.Header.Del("Authorization")
	x.user = u
	return true
}

// impersonate lets those who may stand for somebody else.
func (s *Server) impersonate(x *exchange) bool {
	u, err := auth.Impersonate(x.ctx, x.user, x.r.Header, s.cfg.Authorizer)
	if err != nil {
		x.fail(err)
		return false
	}
	x.user = u
	return true
}

// authorize asks whether the user may, before anything of the body is read.
func (s *Server) authorize(x *exchange) bool {
	if err := auth.Check(x.ctx, s.cfg.Authorizer, x.attributes()); err != nil {
		x.w.Header().Set("X-Content-Type-Options", "nosniff")
		x.fail(err)
		return false
	}
	return true
}

func (x *exchange) attributes() authorizer.AttributesRecord {
	a := authorizer.AttributesRecord{
		User:            x.user,
		Verb:            x.info.Verb,
		Namespace:       x.info.Namespace,
		APIGroup:        x.info.APIGroup,
		APIVersion:      x.info.APIVersion,
		Resource:        x.info.Resource,
		Subresource:     x.info.Subresource,
		Name:            x.info.Name,
		ResourceRequest: x.info.IsResourceRequest,
		Path:            x.info.Path,
	}
	if x.info.FieldSelector != "" {
		sel, err := fields.ParseSelector(x.info.FieldSelector)
		if err != nil {
			a.FieldSelectorParsingErr = err
		} else {
			a.FieldSelectorRequirements = sel.Requirements()
		}
	}
	if x.info.LabelSelector != "" {
		sel, err := labels.Parse(x.info.LabelSelector)
		if err != nil {
			a.LabelSelectorParsingErr = err
		} else {
			a.LabelSelectorRequirements, _ = sel.Requirements()
		}
	}
	return a
}

// admit bounds what is in flight. Watches don't count; members of system:masters are always served.
func (s *Server) admit(x *exchange) bool {
	if x.longRunning() {
		return true
	}
	room := s.writes
	switch x.info.Verb {
	case "get", "list", "watch", "head":
		room = s.reads
	}
	select {
	case room <- struct{}{}:
		x.finally(func() { <-room })
		return true
	default:
	}
	if slices.Contains(x.user.GetGroups(), user.SystemPrivilegedGroup) {
		return true
	}
	x.w.Header().Set("Retry-After", "1")
	x.fail(apierrors.NewTooManyRequests("Too many requests, please try again later.", 1))
	return false
}

func (x *exchange) longRunning() bool {
	return x.info.IsResourceRequest && x.info.Verb == "watch"
}

// limitTime sets the time by which the answer must be ready: the server's, or a shorter one that the client
// asks for with ?timeout=.
func (s *Server) limitTime(x *exchange) bool {
	if x.longRunning() {
		return true
	}
	limit := s.cfg.Timeout
	if given := x.query.Get("timeout"); given != "" {
		d, err := time.ParseDuration(given)
		if err != nil {
			x.fail(apierrors.NewBadRequest(fmt.Sprintf("invalid timeout specified in the request URL - %v", err)))
			return false
		}
		if d > 0 && d < limit {
			limit = d
		}
	}
	ctx, cancel := context.WithTimeout(x.ctx, limit)
	x.ctx = ctx
	x.finally(cancel)
	return true
}
