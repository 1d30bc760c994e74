package controller

import (
	"errors"
	"net/http"
	"slices"
	"syscall"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
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
	var status apierrors.APIStatus
	return errors.As(err, &status) && slices.Contains([]int32{
		http.StatusInsufficientStorage, http.StatusTooManyRequests, http.StatusServiceUnavailable, http.StatusGatewayTimeout,
	}, status.Status().Code)
}
