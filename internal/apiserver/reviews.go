package apiserver

import (
	"fmt"
	"net/http"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/managedfields"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"operatord.io/operatord/internal/apiserver/discovery"
	"operatord.io/operatord/internal/apiserver/rest"
)

// A review is a question in the form of an object: it is answered, never stored.

// reviewKinds are the reviews that are answered.
var reviewKinds = []discovery.Virtual{
	review(authenticationv1.SchemeGroupVersion, "SelfSubjectReview", "selfsubjectreview", false),
	review(authenticationv1.SchemeGroupVersion, "TokenReview", "tokenreview", false),
	review(authorizationv1.SchemeGroupVersion, "LocalSubjectAccessReview", "localsubjectaccessreview", true),
	review(authorizationv1.SchemeGroupVersion, "SelfSubjectAccessReview", "selfsubjectaccessreview", false),
	review(authorizationv1.SchemeGroupVersion, "SelfSubjectRulesReview", "selfsubjectrulesreview", false),
	review(authorizationv1.SchemeGroupVersion, "SubjectAccessReview", "subjectaccessreview", false),
}

func review(gv schema.GroupVersion, kind, singular string, namespaced bool) discovery.Virtual {
	return discovery.Virtual{GVK: gv.WithKind(kind), Plural: singular + "s", Singular: singular, Namespaced: namespaced, Verbs: []string{"create"}}
}

// reviewer decodes reviews and keeps their managed fields.
type reviewer struct {
	scheme *runtime.Scheme
	codecs serializer.CodecFactory
	types  managedfields.TypeConverter
}

func newReviewer() *reviewer {
	r := &reviewer{scheme: runtime.NewScheme(), types: managedfields.NewDeducedTypeConverter()}
	utilruntime.Must(authenticationv1.AddToScheme(r.scheme))
	utilruntime.Must(authorizationv1.AddToScheme(r.scheme))
	r.codecs = serializer.NewCodecFactory(r.scheme)
	return r
}

// decode reads a request body of a kind.
func (r *reviewer) decode(body []byte, media string, gvk schema.GroupVersionKind) (runtime.Object, error) {
	info, ok := runtime.SerializerInfoForMediaType(r.codecs.SupportedMediaTypes(), media)
	if !ok {
		return nil, unsupportedMediaType(mediaJSON, mediaYAML, mediaProtobuf)
	}
	obj, got, err := info.Serializer.Decode(body, &gvk, nil)
	if err != nil {
		if got != nil && got.Kind != "" {
			return nil, apierrors.NewBadRequest(fmt.Sprintf("%s in version %q cannot be handled as a %s: %v", got.Kind, got.Version, gvk.Kind, err))
		}
		return nil, apierrors.NewBadRequest(fmt.Sprintf("the object provided is unrecognized (must be of type %s): %v", gvk.Kind, err))
	}
	if *got != gvk {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("%s in version %q cannot be handled as a %s", got.Kind, got.Version, gvk.Kind))
	}
	return obj, nil
}

// own records who set which fields, as it is done for every object.
func (r *reviewer) own(obj runtime.Object, gvk schema.GroupVersionKind, manager string) (runtime.Object, error) {
	m, err := managedfields.NewDefaultFieldManager(r.types, r.scheme, r.scheme, r.scheme, gvk, gvk.GroupVersion(), "", nil)
	if err != nil {
		return nil, fmt.Errorf("apiserver: field manager of %s: %w", gvk.Kind, err)
	}
	empty, err := r.scheme.New(gvk)
	if err != nil {
		return nil, fmt.Errorf("apiserver: a new %s: %w", gvk.Kind, err)
	}
	empty.GetObjectKind().SetGroupVersionKind(gvk)
	return m.UpdateNoErrors(empty, obj, manager), nil
}

// serveReview answers a review; false when the path names none.
func (x *exchange) serveReview() bool {
	var kind *discovery.Virtual
	for i := range reviewKinds {
		if k := &reviewKinds[i]; k.GVK.Group == x.info.APIGroup && k.GVK.Version == x.info.APIVersion && k.Plural == x.info.Resource {
			kind = k
		}
	}
	if kind == nil || len(x.info.Parts) != 1 || (x.info.Namespace != "") != kind.Namespaced {
		return false
	}
	if x.r.Method != http.MethodPost {
		x.fail(errNoMethod())
		return true
	}
	obj, err := x.review(kind.GVK)
	if err != nil {
		x.fail(err)
		return true
	}
	x.encode(http.StatusCreated, x.accept, obj)
	return true
}

func (x *exchange) review(gvk schema.GroupVersionKind) (runtime.Object, error) {
	var ok bool
	if x.accept, ok = negotiate(x.r, offer{protobuf: true}); !ok {
		return nil, errNotAcceptable(false)
	}
	media, err := bodyType(x.r)
	if err != nil {
		return nil, err
	}
	body, err := x.body()
	if err != nil {
		return nil, err
	}
	if err := x.boundYAML(media, body); err != nil {
		return nil, err
	}
	opts, err := x.createOptions()
	if err != nil {
		return nil, err
	}
	obj, err := x.s.reviews.decode(body, media, gvk)
	if err != nil {
		return nil, err
	}
	obj.GetObjectKind().SetGroupVersionKind(gvk)
	if _, self := obj.(*authenticationv1.SelfSubjectReview); !self {
		manager := opts.FieldManager
		if manager == "" {
			manager = rest.ManagerOf(x.r.UserAgent())
		}
		if obj, err = x.s.reviews.own(obj, gvk, manager); err != nil {
			return nil, err
		}
	}
	switch r := obj.(type) {
	case *authenticationv1.SelfSubjectReview:
		r.ObjectMeta = metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(time.Now().UTC().Truncate(time.Second))}
		r.Status.UserInfo = userInfo(x.user)
	case *authenticationv1.TokenReview:
		err = x.reviewToken(r)
	case *authorizationv1.SelfSubjectAccessReview:
		if err = validAccess(r.Spec.ResourceAttributes, r.Spec.NonResourceAttributes, nil); err == nil {
			r.Status = x.reviewAccess(x.user, r.Spec.ResourceAttributes, r.Spec.NonResourceAttributes)
		}
	case *authorizationv1.SelfSubjectRulesReview:
		r.Status, err = x.reviewRules(r.Spec.Namespace)
	case *authorizationv1.SubjectAccessReview:
		if err = validAccess(r.Spec.ResourceAttributes, r.Spec.NonResourceAttributes, validSubject(&r.Spec)); err == nil {
			r.Status = x.reviewAccess(subject(&r.Spec), r.Spec.ResourceAttributes, r.Spec.NonResourceAttributes)
		}
	case *authorizationv1.LocalSubjectAccessReview:
		if err = x.validLocal(r); err == nil {
			r.Status = x.reviewAccess(subject(&r.Spec), r.Spec.ResourceAttributes, nil)
		}
	}
	return obj, err
}

func (x *exchange) reviewToken(r *authenticationv1.TokenReview) error {
	if r.Spec.Token == "" {
		return apierrors.NewBadRequest("token is required for TokenReview in authentication")
	}
	r.Status = authenticationv1.TokenReviewStatus{}
	var u user.Info
	var ok bool
	var err error
	if x.s.cfg.Tokens != nil {
		u, ok, err = x.s.cfg.Tokens.Token(x.ctx, r.Spec.Token)
	}
	switch {
	case err != nil:
		r.Status.Error = err.Error()
	case !ok:
		r.Status.Error = "invalid bearer token"
	default:
		r.Status.Authenticated = true
		r.Status.User = userInfo(u)
		r.Status.Audiences = r.Spec.Audiences
	}
	return nil
}

// reviewAccess answers whether u may do what is described.
func (x *exchange) reviewAccess(u user.Info, res *authorizationv1.ResourceAttributes, path *authorizationv1.NonResourceAttributes) authorizationv1.SubjectAccessReviewStatus {
	a := authorizer.AttributesRecord{User: u}
	if res != nil {
		a.ResourceRequest = true
		a.Verb, a.Namespace, a.Name = res.Verb, res.Namespace, res.Name
		a.APIGroup, a.APIVersion, a.Resource, a.Subresource = res.Group, res.Version, res.Resource, res.Subresource
		if a.APIVersion == "" {
			a.APIVersion = "*"
		}
	} else {
		a.Verb, a.Path = path.Verb, path.Path
	}
	decision, reason, err := x.s.cfg.Authorizer.Authorize(x.ctx, a)
	status := authorizationv1.SubjectAccessReviewStatus{
		Allowed: decision == authorizer.DecisionAllow,
		Denied:  decision == authorizer.DecisionDeny,
		Reason:  reason,
	}
	if err != nil {
		status.EvaluationError = err.Error()
	}
	return status
}

// reviewRules lists what the user may do in a namespace, as far as the authorizer can tell.
func (x *exchange) reviewRules(namespace string) (authorizationv1.SubjectRulesReviewStatus, error) {
	status := authorizationv1.SubjectRulesReviewStatus{
		ResourceRules: []authorizationv1.ResourceRule{}, NonResourceRules: []authorizationv1.NonResourceRule{}, Incomplete: true,
	}
	if namespace == "" {
		return status, apierrors.NewBadRequest("no namespace on request")
	}
	resolver, ok := x.s.cfg.Authorizer.(authorizer.RuleResolver)
	if !ok {
		status.EvaluationError = "the authorizer does not support user rule resolution"
		return status, nil
	}
	resources, paths, incomplete, err := resolver.RulesFor(x.ctx, x.user, namespace)
	for _, r := range resources {
		status.ResourceRules = append(status.ResourceRules, authorizationv1.ResourceRule{
			Verbs: r.GetVerbs(), APIGroups: r.GetAPIGroups(), Resources: r.GetResources(), ResourceNames: r.GetResourceNames(),
		})
	}
	for _, p := range paths {
		status.NonResourceRules = append(status.NonResourceRules, authorizationv1.NonResourceRule{
			Verbs: p.GetVerbs(), NonResourceURLs: p.GetNonResourceURLs(),
		})
	}
	status.Incomplete = incomplete
	if err != nil {
		status.EvaluationError = err.Error()
	}
	return status, nil
}

func validAccess(res *authorizationv1.ResourceAttributes, path *authorizationv1.NonResourceAttributes, errs field.ErrorList) error {
	spec := field.NewPath("spec")
	switch {
	case res != nil && path != nil:
		errs = append(errs, field.Invalid(spec.Child("nonResourceAttributes"), path, "cannot be specified in combination with resourceAttributes"))
	case res == nil && path == nil:
		errs = append(errs, field.Invalid(spec, path, "exactly one of nonResourceAttributes or resourceAttributes must be specified"))
	}
	return invalidReview(errs)
}

func validSubject(spec *authorizationv1.SubjectAccessReviewSpec) field.ErrorList {
	if spec.User == "" && len(spec.Groups) == 0 {
		return field.ErrorList{field.Invalid(field.NewPath("spec", "user"), spec.User, "at least one of user or group must be specified")}
	}
	return nil
}

func (x *exchange) validLocal(r *authorizationv1.LocalSubjectAccessReview) error {
	spec := field.NewPath("spec")
	errs := validSubject(&r.Spec)
	if r.Namespace != "" && r.Namespace != x.info.Namespace {
		return apierrors.NewBadRequest("the namespace of the provided object does not match the namespace sent on the request")
	}
	r.Namespace = x.info.Namespace
	if r.Spec.ResourceAttributes != nil && r.Spec.ResourceAttributes.Namespace != r.Namespace {
		errs = append(errs, field.Invalid(spec.Child("resourceAttributes", "namespace"), r.Spec.ResourceAttributes.Namespace, "must match metadata.namespace"))
	}
	if r.Spec.NonResourceAttributes != nil {
		errs = append(errs, field.Invalid(spec.Child("nonResourceAttributes"), r.Spec.NonResourceAttributes, "disallowed on this kind of request"))
		return invalidReview(errs)
	}
	return validAccess(r.Spec.ResourceAttributes, nil, errs)
}

// invalidReview is the 422 of a review; the real server's names no kind.
func invalidReview(errs field.ErrorList) error {
	if len(errs) == 0 {
		return nil
	}
	return apierrors.NewInvalid(schema.GroupKind{Group: authorizationv1.GroupName}, "", errs)
}

func subject(spec *authorizationv1.SubjectAccessReviewSpec) user.Info {
	u := &user.DefaultInfo{Name: spec.User, UID: spec.UID, Groups: spec.Groups}
	for k, v := range spec.Extra {
		if u.Extra == nil {
			u.Extra = map[string][]string{}
		}
		u.Extra[k] = v
	}
	return u
}

func userInfo(u user.Info) authenticationv1.UserInfo {
	info := authenticationv1.UserInfo{Username: u.GetName(), UID: u.GetUID(), Groups: u.GetGroups()}
	for k, v := range u.GetExtra() {
		if info.Extra == nil {
			info.Extra = map[string]authenticationv1.ExtraValue{}
		}
		info.Extra[k] = v
	}
	return info
}
