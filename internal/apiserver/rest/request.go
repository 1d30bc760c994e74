package rest

import (
	"context"
	"strings"
	"unicode"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	genericrequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/warning"

	"operatord.io/operatord/internal/resource"
	"operatord.io/operatord/internal/storage"
	"operatord.io/operatord/internal/watchcache"
)

// request is one write on its way through the verbs.
type request struct {
	*Verbs
	Attributes
	ctx context.Context // with what strategies look for: namespace, request info, a warning recorder

	verb       string
	dryRun     bool
	manager    string // field manager
	validation string // fieldValidation
	options    runtime.Object
	warnings   *warnings

	// hold are conditions on other keys under which a write is right: a new object's namespace isn't
	// terminating, the CRD is the one that was looked at.
	hold []storage.Guard
	crd  *watchcache.Object // that declares the kind; nil for others
}

func (v *Verbs) request(ctx context.Context, a Attributes, verb string, dryRun []string, manager, fieldValidation string, options runtime.Object) *request {
	r := &request{
		Verbs:      v,
		Attributes: a,
		verb:       verb,
		dryRun:     len(dryRun) > 0,
		manager:    manager,
		validation: fieldValidation,
		options:    options,
		warnings:   &warnings{},
	}
	if r.manager == "" {
		r.manager = ManagerOf(a.UserAgent)
	}
	ctx = genericrequest.WithNamespace(ctx, a.Namespace)
	ctx = genericrequest.WithRequestInfo(ctx, &genericrequest.RequestInfo{
		IsResourceRequest: true,
		Verb:              verb,
		APIPrefix:         "apis",
		APIGroup:          a.Kind.Group,
		APIVersion:        a.Version.Name,
		Namespace:         a.Namespace,
		Resource:          a.Kind.Plural,
		Subresource:       a.Subresource,
		Name:              a.Name,
	})
	if a.User != nil {
		ctx = genericrequest.WithUser(ctx, a.User)
	}
	r.ctx = warning.WithWarningRecorder(ctx, r.warnings)
	return r
}

// resource is how errors name the kind.
func (r *request) resource() schema.GroupResource { return r.Kind.GroupResource() }

// key is where the object lies.
func (r *request) key(name string) string { return resource.Key(r.Kind, r.Namespace, name) }

// decoding is how a body of this request is read.
func (r *request) decoding(mediaType string) resource.DecodeOptions {
	return resource.DecodeOptions{MediaType: mediaType, FieldValidation: r.validation, Subresource: r.Subresource}
}

// result puts the warnings into an answer. An error's answer has nothing else.
func (r *request) result(res *Result, err error) (*Result, error) {
	if err != nil || res == nil {
		if len(r.warnings.texts) == 0 {
			return nil, err
		}
		return &Result{Warnings: r.warnings.texts}, err
	}
	res.Warnings = r.warnings.texts
	return res, nil
}

// note says in the store's history who did what, and why if that is known.
func (r *request) note() string {
	var b strings.Builder
	if r.User != nil {
		b.WriteString(r.User.GetName())
	}
	b.WriteByte(' ')
	b.WriteString(r.verb)
	if r.Subresource != "" {
		b.WriteByte('/')
		b.WriteString(r.Subresource)
	}
	if r.cfg.Action != nil {
		if action := r.cfg.Action(r.ctx); action != "" {
			b.WriteByte(' ')
			b.WriteString(action)
		}
	}
	return cut(b.String(), storage.MaxNote)
}

// cut shortens s to at most n bytes of whole characters.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

// ManagerOf is the field manager of a client that names none: what stands before the first slash of its
// User-Agent, printable.
func ManagerOf(userAgent string) string {
	m, _, _ := strings.Cut(userAgent, "/")
	var b strings.Builder
	for _, c := range m {
		if !unicode.IsPrint(c) {
			continue
		}
		if b.Len()+utf8.RuneLen(c) > validation.FieldManagerMaxLength {
			break
		}
		b.WriteRune(c)
	}
	return b.String()
}

// maxWarnings is how many texts are kept: whoever shows them has no room for more.
const maxWarnings = 4096

// warnings collects the texts of Warning headers, each once.
type warnings struct {
	texts []string
	seen  map[string]bool
}

func (w *warnings) AddWarning(_, text string) {
	if w.seen[text] || len(w.texts) == maxWarnings {
		return
	}
	if w.seen == nil {
		w.seen = map[string]bool{}
	}
	w.seen[text] = true
	w.texts = append(w.texts, text)
}

func (w *warnings) add(texts []string) {
	for _, t := range texts {
		w.AddWarning("", t)
	}
}

func optionsGVK(kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: metav1.SchemeGroupVersion.String(), Kind: kind}
}
