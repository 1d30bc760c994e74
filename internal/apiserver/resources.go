package apiserver

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validation/path"
	"k8s.io/apimachinery/pkg/types"

	"operatord.io/operatord/internal/apiserver/auth"
	"operatord.io/operatord/internal/apiserver/rest"
)

// answer is the last step.
func (s *Server) answer(x *exchange) bool {
	if x.info.IsResourceRequest {
		x.serveResource()
	} else {
		x.servePath()
	}
	return true
}

// unknown is the answer for a resource that isn't served at this path. In a group of built-in kinds the real
// server's router answers, elsewhere nobody does.
func (x *exchange) unknown() {
	doc, err := x.s.discovery.Document()
	if err != nil {
		x.fail(err)
		return
	}
	if doc.Builtin[x.info.APIGroup] {
		x.fail(errNoResource())
		return
	}
	x.notFound()
}

// namespace is that of the request; "" for kinds that have none. (The path of a Namespace says its name twice.)
func (x *exchange) namespace() string {
	if !x.kind.Namespaced {
		return ""
	}
	return x.info.Namespace
}

// rest says to the verbs what the request is about.
func (x *exchange) rest(name string) rest.Attributes {
	return rest.Attributes{
		User: x.user, Kind: x.kind, Version: x.version,
		Namespace: x.namespace(), Name: name, Subresource: x.info.Subresource,
		UserAgent: x.r.UserAgent(),
	}
}

func (x *exchange) serveResource() {
	if x.kind == nil {
		if !x.serveReview() {
			x.unknown()
		}
		return
	}
	if !x.scopeFits() {
		x.unknown()
		return
	}
	if x.servePlan() {
		return
	}
	if err := x.allowed(); err != nil {
		x.fail(err)
		return
	}
	x.warn(x.version.DeprecationNotice)
	if err := x.perform(); err != nil {
		x.fail(err)
	}
}

// perform does what is asked and answers, or returns why not, unanswered.
func (x *exchange) perform() error {
	if x.info.Verb == "patch" {
		// The type of a patch is looked at before anything else.
		return x.patch()
	}
	var ok bool
	x.accept, ok = negotiate(x.r, offer{protobuf: !x.kind.Custom, transform: true})
	if !ok {
		return errNotAcceptable(false)
	}
	switch x.info.Verb {
	case "get":
		return x.get()
	case "list":
		return x.list()
	case "watch":
		return x.watch()
	case "create":
		return x.create()
	case "update":
		return x.update()
	case "delete":
		return x.delete()
	case "deletecollection":
		return x.deleteCollection()
	}
	return errNoMethod()
}

// scopeFits tells whether the path has a namespace where the kind wants one.
func (x *exchange) scopeFits() bool {
	k, info := x.kind, x.info
	switch {
	case !k.Namespaced:
		// The path of a Namespace names it as a namespace, too.
		return info.Namespace == "" || k.Group == "" && k.Plural == "namespaces" && len(info.Parts) > 1 && info.Parts[1] == info.Namespace
	case info.Namespace != "":
		return true
	case k.Custom:
		return info.Verb == "list" || info.Verb == "watch"
	}
	return len(info.Parts) == 1
}

// allowed tells whether the resource has the request's verb at its path.
func (x *exchange) allowed() error {
	k, info := x.kind, x.info
	verbs := k.Verbs
	if info.Subresource != "" {
		if connects(k.GroupResource(), info.Subresource) {
			return errConnect(k.GroupResource(), info.Subresource)
		}
		sub := k.Subresource(x.version, info.Subresource)
		switch {
		case sub == nil && k.Custom:
			return apierrors.NewNotFound(k.GroupResource(), info.Name)
		case sub == nil || !k.Custom && len(info.Parts) > 3:
			return errNoResource()
		}
		verbs = sub.Verbs
	}
	if k.Custom {
		if !slices.Contains(verbs, info.Verb) {
			return apierrors.NewMethodNotSupported(k.GroupResource(), info.Verb)
		}
		return nil
	}
	if !slices.Contains(verbs, info.Verb) || x.r.Method == http.MethodHead {
		return errNoMethod()
	}
	atName := len(info.Parts) > 1
	switch info.Verb {
	case "create":
		if atName && info.Subresource == "" || k.Namespaced && info.Namespace == "" {
			return errNoMethod()
		}
	case "deletecollection":
		if k.Namespaced && info.Namespace == "" {
			return errNoMethod()
		}
	case "update", "patch", "delete":
		if !atName {
			return errNoMethod()
		}
	case "watch":
		if x.r.Method != http.MethodGet {
			return errNoMethod()
		}
	}
	return nil
}

// name is the name in the path, which must be there and be one.
func (x *exchange) name() (string, error) {
	name := x.info.Name
	if name == "" {
		return "", apierrors.NewBadRequest("name must be provided")
	}
	if msgs := path.IsValidPathSegmentName(name); len(msgs) > 0 {
		return "", apierrors.NewBadRequest(fmt.Sprintf("Name parameter invalid: %q: %s", name, strings.Join(msgs, ";")))
	}
	return name, nil
}

func (x *exchange) get() error {
	name, err := x.name()
	if err != nil {
		return err
	}
	opts, err := x.getOptions()
	if err != nil {
		return err
	}
	return x.result(x.s.cfg.Verbs.Get(x.ctx, x.rest(name), opts))
}

func (x *exchange) create() error {
	name := ""
	if x.info.Subresource != "" {
		var err error
		if name, err = x.name(); err != nil {
			return err
		}
	}
	body, err := x.typedBody()
	if err != nil {
		return err
	}
	opts, err := x.createOptions()
	if err != nil {
		return err
	}
	return x.result(x.s.cfg.Verbs.Create(x.ctx, x.rest(name), body, opts))
}

func (x *exchange) update() error {
	name, err := x.name()
	if err != nil {
		return err
	}
	body, err := x.typedBody()
	if err != nil {
		return err
	}
	opts, err := x.updateOptions()
	if err != nil {
		return err
	}
	about := x.rest(name)
	about.MayCreate = x.mayCreate
	return x.result(x.s.cfg.Verbs.Update(x.ctx, about, body, opts))
}

// patchTypes are what a PATCH may be, in the order in which they are told.
func (x *exchange) patchTypes() []string {
	if x.kind.Custom {
		return []string{string(types.JSONPatchType), string(types.MergePatchType), string(types.ApplyYAMLPatchType)}
	}
	return []string{string(types.JSONPatchType), string(types.MergePatchType), string(types.StrategicMergePatchType), string(types.ApplyYAMLPatchType)}
}

func (x *exchange) patch() error {
	contentType, _, _ := strings.Cut(x.r.Header.Get("Content-Type"), ";")
	pt := types.PatchType(strings.TrimSpace(contentType))
	if supported := x.patchTypes(); !slices.Contains(supported, string(pt)) {
		if x.kind.Custom {
			return unsupportedMediaType(supported...)
		}
		return generic(http.StatusUnsupportedMediaType, "UnsupportedMediaType", "415: Unsupported Media Type")
	}
	name, err := x.name()
	if err != nil {
		return err
	}
	var ok bool
	if x.accept, ok = negotiate(x.r, offer{protobuf: !x.kind.Custom, transform: true}); !ok {
		return errNotAcceptable(false)
	}
	body, err := x.body()
	if err != nil {
		return err
	}
	if err := x.boundYAML(string(pt), body); err != nil {
		return err
	}
	opts, err := x.patchOptions(pt)
	if err != nil {
		return err
	}
	about := x.rest(name)
	about.MayCreate = x.mayCreate
	return x.result(x.s.cfg.Verbs.Patch(x.ctx, about, pt, body, opts))
}

// mayCreate asks whether the user of an update or a patch may create the object, which isn't there.
func (x *exchange) mayCreate(ctx context.Context) error {
	a := x.attributes()
	a.Verb = "create"
	return auth.Check(ctx, x.s.cfg.Authorizer, a)
}

func (x *exchange) delete() error {
	name, err := x.name()
	if err != nil {
		return err
	}
	opts, err := x.deleteOptions()
	if err != nil {
		return err
	}
	return x.result(x.s.cfg.Verbs.Delete(x.ctx, x.rest(name), opts))
}

func (x *exchange) deleteCollection() error {
	list, _, err := x.listOptions(x.info.Name)
	if err != nil {
		return err
	}
	opts, err := x.deleteOptions()
	if err != nil {
		return err
	}
	deleted, err := x.s.cfg.Verbs.DeleteCollection(x.ctx, x.rest(""), opts, list)
	if err != nil {
		return err
	}
	x.writeList(deleted)
	return nil
}

func (x *exchange) list() error {
	opts, internal, err := x.listOptions(x.info.Name)
	if err != nil {
		return err
	}
	if internal.Watch {
		x.stream(opts)
		return nil
	}
	list, err := x.s.cfg.Verbs.List(x.ctx, x.rest(""), opts)
	if err != nil {
		return err
	}
	x.writeList(list)
	return nil
}

func (x *exchange) watch() error {
	opts, _, err := x.listOptions(x.info.Name)
	if err != nil {
		return err
	}
	x.stream(opts)
	return nil
}

// result answers with what a verb returned, or returns its error.
func (x *exchange) result(r *rest.Result, err error) error {
	if r != nil {
		x.warn(r.Warnings...)
	}
	if err != nil {
		return err
	}
	code := http.StatusOK
	switch {
	case r.Created:
		code = http.StatusCreated
	case r.Accepted:
		code = http.StatusAccepted
	}
	if r.Body != nil {
		x.writeBody(code, r.Body)
		return nil
	}
	x.writeObject(code, r.Object)
	return nil
}
