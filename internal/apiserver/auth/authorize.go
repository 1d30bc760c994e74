package auth

import (
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// Check returns nil when authz allows what a describes, and otherwise the API error for the client.
func Check(ctx context.Context, authz Authorizer, a authorizer.AttributesRecord) error {
	decision, reason, err := authz.Authorize(ctx, a)
	if decision == authorizer.DecisionAllow {
		return nil
	}
	if err != nil {
		return apierrors.NewInternalError(err)
	}
	return forbidden(a, reason)
}

// sanitizer keeps a message from looking like HTML.
var sanitizer = strings.NewReplacer(`&`, "&amp;", `<`, "&lt;", `>`, "&gt;")

// forbidden is the 403 for a request, in Kubernetes' words.
func forbidden(a authorizer.AttributesRecord, reason string) error {
	msg := sanitizer.Replace(refusal(a))
	if reason != "" {
		msg += ": " + reason
	}
	gr := schema.GroupResource{Group: a.APIGroup, Resource: a.Resource}
	return apierrors.NewForbidden(gr, a.Name, fmt.Errorf("%s", msg))
}

func refusal(a authorizer.AttributesRecord) string {
	name := ""
	if a.User != nil {
		name = a.User.GetName()
	}
	if !a.ResourceRequest {
		return fmt.Sprintf("User %q cannot %s path %q", name, a.Verb, a.Path)
	}
	resource := a.Resource
	if a.Subresource != "" {
		resource += "/" + a.Subresource
	}
	if a.Namespace != "" {
		return fmt.Sprintf("User %q cannot %s resource %q in API group %q in the namespace %q", name, a.Verb, resource, a.APIGroup, a.Namespace)
	}
	return fmt.Sprintf("User %q cannot %s resource %q in API group %q at the cluster scope", name, a.Verb, resource, a.APIGroup)
}

// Builtin are the rules that hold without any RBAC object: members of system:masters may do everything,
// whoever is authenticated may see what is served and what they may do, and everybody may ask whether the
// server is well.
type Builtin struct{}

var (
	openToAll           = []string{"/healthz", "/livez", "/readyz", "/version"}
	openToAuthenticated = []string{"/", "/api", "/apis", "/openapi"}
)

// Authorize implements Authorizer.
func (Builtin) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	groups := a.GetUser().GetGroups()
	if slices.Contains(groups, user.SystemPrivilegedGroup) {
		return authorizer.DecisionAllow, "", nil
	}
	authenticated := slices.Contains(groups, user.AllAuthenticated)
	var allowed bool
	switch {
	case a.IsResourceRequest():
		allowed = authenticated && a.GetVerb() == "create" && a.GetSubresource() == "" && selfReview(a.GetAPIGroup(), a.GetResource())
	case a.GetVerb() != "get" && a.GetVerb() != "head":
	case under(a.GetPath(), openToAll):
		allowed = true
	case authenticated:
		allowed = under(a.GetPath(), openToAuthenticated)
	}
	if allowed {
		return authorizer.DecisionAllow, "", nil
	}
	return authorizer.DecisionNoOpinion, "", nil
}

// RulesFor implements authorizer.RuleResolver.
func (Builtin) RulesFor(_ context.Context, u user.Info, _ string) ([]authorizer.ResourceRuleInfo, []authorizer.NonResourceRuleInfo, bool, error) {
	groups := u.GetGroups()
	if slices.Contains(groups, user.SystemPrivilegedGroup) {
		all := []string{"*"}
		return []authorizer.ResourceRuleInfo{&authorizer.DefaultResourceRuleInfo{Verbs: all, APIGroups: all, Resources: all}},
			[]authorizer.NonResourceRuleInfo{&authorizer.DefaultNonResourceRuleInfo{Verbs: all, NonResourceURLs: all}}, false, nil
	}
	get := []string{"get"}
	paths := withChildren(openToAll)
	if !slices.Contains(groups, user.AllAuthenticated) {
		return nil, []authorizer.NonResourceRuleInfo{&authorizer.DefaultNonResourceRuleInfo{Verbs: get, NonResourceURLs: paths}}, false, nil
	}
	paths = append(paths, withChildren(openToAuthenticated)...)
	create := []string{"create"}
	return []authorizer.ResourceRuleInfo{
		&authorizer.DefaultResourceRuleInfo{Verbs: create, APIGroups: []string{"authorization.k8s.io"}, Resources: []string{"selfsubjectaccessreviews", "selfsubjectrulesreviews"}},
		&authorizer.DefaultResourceRuleInfo{Verbs: create, APIGroups: []string{"authentication.k8s.io"}, Resources: []string{"selfsubjectreviews"}},
	}, []authorizer.NonResourceRuleInfo{&authorizer.DefaultNonResourceRuleInfo{Verbs: get, NonResourceURLs: paths}}, false, nil
}

func withChildren(roots []string) []string {
	var out []string
	for _, root := range roots {
		out = append(out, root)
		if root != "/" {
			out = append(out, root+"/*")
		}
	}
	return out
}

// selfReview names the kinds by which a user asks about itself.
func selfReview(group, resource string) bool {
	switch group {
	case "authorization.k8s.io":
		return resource == "selfsubjectaccessreviews" || resource == "selfsubjectrulesreviews"
	case "authentication.k8s.io":
		return resource == "selfsubjectreviews"
	}
	return false
}

// under tells whether path is one of the roots or below it. The root "/" stands for itself alone.
func under(path string, roots []string) bool {
	for _, root := range roots {
		if path == root || root != "/" && strings.HasPrefix(path, root+"/") {
			return true
		}
	}
	return false
}
