package apiserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// fail answers with an error. An API error tells its own status; anything else is a 500.
func (x *exchange) fail(err error) {
	if x.ctx.Err() != nil && x.r.Context().Err() == nil && errors.Is(err, context.DeadlineExceeded) {
		err = apierrors.NewTimeoutError("request did not complete within the allotted timeout", 0)
	}
	status := statusOf(err)
	switch {
	case status.Code < 500:
	case x.r.Context().Err() != nil:
		// The client has hung up, or the server ends: nothing has failed.
		x.s.cfg.Log.Debug("request abandoned", "method", x.r.Method, "path", x.r.URL.Path, "error", err)
	default:
		x.s.failures.add(failure{x.verb(), x.resourceName(), status.Code, string(status.Reason)},
			"method", x.r.Method, "path", x.r.URL.Path, "error", status.Message)
	}
	if x.code != 0 {
		return // the answer is on its way already
	}
	if status.Details != nil && status.Details.RetryAfterSeconds > 0 {
		x.w.Header().Set("Retry-After", strconv.Itoa(int(status.Details.RetryAfterSeconds)))
	}
	x.status(status)
}

// status answers with a Status in a type that the client takes, and in JSON if there is none: an error is
// never hidden behind a failed negotiation.
func (x *exchange) status(status *metav1.Status) {
	a, ok := negotiate(x.r, offer{protobuf: true})
	if !ok {
		b, err := json.MarshalIndent(status, "", "  ")
		if err != nil {
			x.text(http.StatusInternalServerError, err.Error())
			return
		}
		x.header(int(status.Code), mediaJSON)
		x.write(b)
		return
	}
	x.encode(int(status.Code), a, status)
}

// statusOf is the Status that an error is told as.
func statusOf(err error) *metav1.Status {
	var api apierrors.APIStatus
	if !errors.As(err, &api) {
		return &metav1.Status{
			TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
			Status:   metav1.StatusFailure,
			Code:     http.StatusInternalServerError,
			Message:  cut(err.Error(), maxMessage),
		}
	}
	status := bounded(api.Status())
	status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	if status.Status == "" {
		status.Status = metav1.StatusFailure
	}
	if status.Code == 0 {
		status.Code = http.StatusInternalServerError
	}
	return &status
}

// Limits of what an error says: validation quotes what it refuses, and names every place.
const (
	maxMessage      = 32 << 10 // bytes of a Status's message
	maxCauses       = 256
	maxCauseMessage = 1 << 10 // bytes of one cause
)

// bounded shortens a Status to what helps a reader.
func bounded(s metav1.Status) metav1.Status {
	s.Message = cut(s.Message, maxMessage)
	if s.Details == nil {
		return s
	}
	d := *s.Details
	d.Name = cut(d.Name, maxCauseMessage)
	if more := len(d.Causes) - maxCauses; more > 0 {
		d.Causes = append(slices.Clone(d.Causes[:maxCauses]), metav1.StatusCause{
			Type: d.Causes[maxCauses].Type, Message: fmt.Sprintf("and %d more", more),
		})
	} else {
		d.Causes = slices.Clone(d.Causes)
	}
	for i := range d.Causes {
		c := &d.Causes[i]
		c.Message, c.Field = cut(c.Message, maxCauseMessage), cut(c.Field, maxCauseMessage)
	}
	s.Details = &d
	return s
}

// cut shortens a text to about n bytes of whole characters, and says by how much.
func cut(text string, n int) string {
	if len(text) <= n {
		return text
	}
	for n > 0 && !utf8.RuneStart(text[n]) {
		n--
	}
	return fmt.Sprintf("%s… (%d bytes more)", text[:n], len(text)-n)
}

// generic is the answer of the real server's router, which knows only methods and paths.
func generic(code int32, reason metav1.StatusReason, message string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: code, Reason: reason, Message: message, Details: &metav1.StatusDetails{},
	}}
}

func errNoResource() error {
	return generic(http.StatusNotFound, metav1.StatusReasonNotFound, "the server could not find the requested resource")
}

func errNoMethod() error {
	return generic(http.StatusMethodNotAllowed, metav1.StatusReasonMethodNotAllowed, "the server does not allow this method on the requested resource")
}

// unsupportedMediaType says which types a body may have.
func unsupportedMediaType(accepted ...string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure,
		Code:   http.StatusUnsupportedMediaType,
		Reason: metav1.StatusReasonUnsupportedMediaType,
		Message: "the body of the request was in an unknown format - accepted media types include: " +
			strings.Join(accepted, ", "),
	}}
}

// notAcceptable says in which types an answer can be had.
func notAcceptable(message string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusNotAcceptable, Reason: metav1.StatusReasonNotAcceptable, Message: message,
	}}
}
