package namespace

import (
	"fmt"
	"strings"
	"testing"
)

func TestFailuresAreBounded(t *testing.T) {
	var errs []error
	for i := range 10_000 {
		errs = append(errs, fmt.Errorf("object %05d can't be deleted", i))
	}
	got := failures(errs)
	if !strings.HasPrefix(got, "Failed to delete all resource types, 10000 remaining: object 00000 can't be deleted, ") ||
		!strings.HasSuffix(got, ", and 9990 more") || len(got) > 1000 {
		t.Errorf("%d bytes: %.200s", len(got), got)
	}
	if got := failures(errs[:2]); got != "Failed to delete all resource types, 2 remaining: object 00000 can't be deleted, object 00001 can't be deleted" {
		t.Error(got)
	}
	if got := failures(nil); got != "" {
		t.Error(got)
	}
}
