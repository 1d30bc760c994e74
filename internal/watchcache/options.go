package watchcache

import (
	"fmt"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"operatord.io/operatord/internal/resource"
	"operatord.io/operatord/internal/storage"
)

// ListOptions say what to list or watch. They are metav1.ListOptions with the selectors parsed.
type ListOptions struct {
	// Version is the one asked for: its field selectors hold. nil means the kind's preferred one.
	Version   *resource.Version
	Namespace string // "" means all

	Label labels.Selector // nil means everything
	Field fields.Selector // nil means everything

	ResourceVersion string
	Match           string // resourceVersionMatch: "", Exact, NotOlderThan
	Limit           int64
	Continue        string

	// For watches.
	SendInitialEvents *bool
	AllowBookmarks    bool
	Timeout           time.Duration // 0 means none; a last bookmark is sent before the end
	BookmarkEvery     time.Duration // 0 means the cache's
}

// validate checks the options as a request's; watch tells which rules hold. Errors are 422s.
func (o *ListOptions) validate(watch bool) error {
	errs := validation.ValidateListOptions(&internalversion.ListOptions{
		Watch:                watch,
		ResourceVersion:      o.ResourceVersion,
		ResourceVersionMatch: metav1.ResourceVersionMatch(o.Match),
		Continue:             o.Continue,
		SendInitialEvents:    o.SendInitialEvents,
	}, true)
	if len(errs) > 0 {
		return apierrors.NewInvalid(schema.GroupKind{Group: metav1.GroupName, Kind: "ListOptions"}, "", errs)
	}
	return nil
}

// ParseResourceVersion reads a resourceVersion; "" and "0" are 0. The error is kube-apiserver's 500.
func ParseResourceVersion(s string) (storage.Rev, error) {
	if s == "" || s == "0" {
		return 0, nil
	}
	rev, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		e := field.Invalid(field.NewPath("resourceVersion"), s, err.Error())
		return 0, &apierrors.StatusError{ErrStatus: metav1.Status{
			Status:  metav1.StatusFailure,
			Code:    500,
			Message: e.Error(),
		}}
	}
	return storage.Rev(rev), nil
}

// tooLarge is the answer to a resourceVersion that the store hasn't reached.
func tooLarge(wanted, present storage.Rev) error {
	err := apierrors.NewTimeoutError(fmt.Sprintf("Too large resource version: %d, current: %d", wanted, present), 1)
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{
		Type:    metav1.CauseTypeResourceVersionTooLarge,
		Message: "Too large resource version",
	}}
	return err
}
