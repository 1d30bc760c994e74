package apiserver

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"unicode"
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
	if status.Code >= 500 {
		x.s.cfg.Log.Warn("request failed", "method", x.r.Method, "path", x.r.URL.Path, "code", status.Code, "error", err)
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
			Message:  err.Error(),
		}
	}
	status := api.Status()
	status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	if status.Status == "" {
		status.Status = metav1.StatusFailure
	}
	if status.Code == 0 {
		status.Code = http.StatusInternalServerError
	}
	return &status
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

// warningHeader is the value of a Warning header, as RFC 7234 wants it.
func warningHeader(text string) string {
	var b strings.Builder
	b.WriteString(`299 - "`)
	for _, r := range text {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r == utf8.RuneError || !unicode.IsPrint(r):
			b.WriteByte(' ')
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return b.String()
}
