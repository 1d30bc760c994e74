package auth

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// Impersonate returns the user that a request asks to be treated as, or by itself when it asks for none.
// Each name, group, uid and extra asked for must be allowed to by under the verb impersonate. Errors are API
// errors: 400 for headers without a user, 403.
func Impersonate(ctx context.Context, by user.Info, h http.Header, authz Authorizer) (user.Info, error) {
	want, err := wanted(h)
	if err != nil || want == nil {
		return by, err
	}
	check := func(a authorizer.AttributesRecord) error {
		a.User, a.Verb, a.ResourceRequest = by, "impersonate", true
		if a.APIVersion == "" {
			a.APIVersion = "v1"
		}
		return Check(ctx, authz, a)
	}
	namespace, name, err := serviceaccount.SplitUsername(want.Name)
	if err == nil {
		err = check(authorizer.AttributesRecord{Resource: "serviceaccounts", Namespace: namespace, Name: name})
		if len(want.Groups) == 0 {
			want.Groups = serviceaccount.MakeGroupNames(namespace)
		}
	} else {
		err = check(authorizer.AttributesRecord{Resource: "users", Name: want.Name})
	}
	if err != nil {
		return nil, err
	}
	if want.UID != "" {
		err = check(authorizer.AttributesRecord{APIGroup: authenticationv1.GroupName, Resource: "uids", Name: want.UID})
		if err != nil {
			return nil, err
		}
	}
	for _, g := range h.Values(authenticationv1.ImpersonateGroupHeader) {
		if err := check(authorizer.AttributesRecord{Resource: "groups", Name: g}); err != nil {
			return nil, err
		}
	}
	for key, values := range want.Extra {
		for _, v := range values {
			err := check(authorizer.AttributesRecord{APIGroup: authenticationv1.GroupName, Resource: "userextras", Subresource: key, Name: v})
			if err != nil {
				return nil, err
			}
		}
	}
	switch {
	case want.Name == user.Anonymous:
		if !slices.Contains(want.Groups, user.AllUnauthenticated) {
			want.Groups = append(want.Groups, user.AllUnauthenticated)
		}
	case !slices.Contains(want.Groups, user.AllUnauthenticated) && !slices.Contains(want.Groups, user.AllAuthenticated):
		want.Groups = append(want.Groups, user.AllAuthenticated)
	}
	return want, nil
}

// wanted reads the impersonation headers; nil when there is none.
func wanted(h http.Header) (*user.DefaultInfo, error) {
	asked := false
	for name := range h {
		asked = asked || strings.HasPrefix(name, "Impersonate-")
	}
	if !asked {
		return nil, nil
	}
	want := &user.DefaultInfo{
		Name:   h.Get(authenticationv1.ImpersonateUserHeader),
		UID:    h.Get(authenticationv1.ImpersonateUIDHeader),
		Groups: slices.Clone(h.Values(authenticationv1.ImpersonateGroupHeader)),
	}
	for name, values := range h {
		key, ok := strings.CutPrefix(name, authenticationv1.ImpersonateUserExtraHeaderPrefix)
		if !ok {
			continue
		}
		key = strings.ToLower(key)
		if plain, err := url.PathUnescape(key); err == nil {
			key = plain
		}
		if want.Extra == nil {
			want.Extra = map[string][]string{}
		}
		want.Extra[key] = append(want.Extra[key], values...)
	}
	if want.Name != "" {
		return want, nil
	}
	if want.UID != "" || len(want.Groups) > 0 || len(want.Extra) > 0 {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("requested %#v without impersonating a user name", want))
	}
	return nil, nil
}
