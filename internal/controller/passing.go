package controller

import (
	"errors"
	"syscall"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// passingMax is the longest back-off after an error whose cause ends by itself: whoever makes room on a full disk
// doesn't wait for the five minutes that a wrong declaration is left alone.
const passingMax = 5 * time.Second

// Passes tells whether an error's cause ends without a change of any object: no room, no descriptors, no memory, a
// disk or a store that can't just now.
func Passes(err error) bool {
	for _, cause := range []syscall.Errno{
		syscall.ENOSPC, syscall.EDQUOT, syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.EAGAIN, syscall.EIO,
	} {
		if errors.Is(err, cause) {
			return true
		}
	}
	switch apierrors.ReasonForError(err) {
	case "InsufficientStorage", metav1.StatusReasonTooManyRequests, metav1.StatusReasonServiceUnavailable,
		metav1.StatusReasonTimeout, metav1.StatusReasonServerTimeout:
		return true
	}
	return false
}
