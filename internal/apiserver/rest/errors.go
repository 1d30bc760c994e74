package rest

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"operatord.io/operatord/internal/storage"
)

// Statuses that the API errors package has no constructor for.
const (
	statusUnsupportedMediaType = 415
	statusUnprocessableEntity  = 422
	statusInternal             = 500
	statusInsufficientStorage  = 507
)

// lockMessage is what a client with an old resourceVersion is told.
const lockMessage = "the object has been modified; please apply your changes to the latest version and try again"

// ConflictError is a 409 that also says where the object is now.
type ConflictError struct {
	*apierrors.StatusError
	present uint64
}

// PresentRevision is the object's present resourceVersion.
func (e *ConflictError) PresentRevision() string { return strconv.FormatUint(e.present, 10) }

// Unwrap is the API error itself.
func (e *ConflictError) Unwrap() error { return e.StatusError }

func conflict(gr schema.GroupResource, name string, present uint64, err error) error {
	return &ConflictError{StatusError: apierrors.NewConflict(gr, name, err), present: present}
}

// plain is a 500 with nothing but a message, as kube-apiserver answers errors that it doesn't know.
func plain(message string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status:  metav1.StatusFailure,
		Code:    statusInternal,
		Message: message,
	}}
}

// unprocessable is a 422 with a message.
func unprocessable(message string) error {
	return apierrors.NewGenericServerResponse(statusUnprocessableEntity, "", schema.GroupResource{}, "", message, 0, false)
}

// checkPreconditions compares preconditions with the object that is there. uid and rev are "" where there
// is none. Errors are 409s in the words of kube-apiserver's storage.
func checkPreconditions(gr schema.GroupResource, key, name string, want *metav1.Preconditions, uid types.UID, rev string) error {
	if want == nil {
		return nil
	}
	var what string
	switch {
	case want.UID != nil && *want.UID != uid:
		what = fmt.Sprintf("Precondition failed: UID in precondition: %v, UID in object meta: %v", *want.UID, uid)
	case want.ResourceVersion != nil && *want.ResourceVersion != rev:
		what = fmt.Sprintf("Precondition failed: ResourceVersion in precondition: %v, ResourceVersion in object meta: %v", *want.ResourceVersion, rev)
	default:
		return nil
	}
	present, _ := strconv.ParseUint(rev, 10, 64)
	return conflict(gr, name, present, fmt.Errorf("StorageError: invalid object, Code: 4, Key: %s, ResourceVersion: 0, AdditionalErrorMsg: %s", key, what))
}

// storeError makes an API error of what the store answered, conflicts and fences excepted.
func storeError(err error, gr schema.GroupResource, verb, name string) error {
	switch {
	case errors.Is(err, storage.ErrUnknown):
		return apierrors.NewTimeoutError(fmt.Sprintf("it is unknown whether the %s of %s %q was written; read it before trying again", verb, gr, name), 0)
	case errors.Is(err, storage.ErrTooLarge):
		return apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("%s %q would be over the limit of %d bytes", gr, name, storage.MaxValue))
	case errors.Is(err, storage.ErrFull):
		return &apierrors.StatusError{ErrStatus: metav1.Status{
			Status:  metav1.StatusFailure,
			Code:    statusInsufficientStorage,
			Reason:  "InsufficientStorage",
			Message: fmt.Sprintf("%s of %s %q refused: there is no room on the data directory's file system; deletes still work", verb, gr, name),
			Details: causes(gr, name, "InsufficientStorage", err.Error()),
		}}
	case errors.Is(err, storage.ErrReadOnly):
		e := apierrors.NewServiceUnavailable(fmt.Sprintf("%s of %s %q refused: the data directory can't be trusted with writes any more, so nothing is written until a restart; reads go on", verb, gr, name))
		e.ErrStatus.Details = causes(gr, name, "ReadOnlyStorage", err.Error())
		return e
	case errors.Is(err, storage.ErrUnavailable):
		e := apierrors.NewServiceUnavailable(fmt.Sprintf("%s of %s %q refused: the data directory can't be written for now; try again", verb, gr, name))
		e.ErrStatus.Details = causes(gr, name, "StorageUnavailable", err.Error())
		return e
	case errors.Is(err, storage.ErrClosed):
		return apierrors.NewServiceUnavailable("the server is shutting down")
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	}
	return apierrors.NewInternalError(err)
}

func causes(gr schema.GroupResource, name string, cause metav1.CauseType, message string) *metav1.StatusDetails {
	return &metav1.StatusDetails{
		Group:  gr.Group,
		Kind:   gr.Resource,
		Name:   name,
		Causes: []metav1.StatusCause{{Type: cause, Message: message}},
	}
}
