package watchcache

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"operatord.io/operatord/internal/storage"
)

// continueToken is what a continue parameter says, in the form that kube-apiserver uses.
type continueToken struct {
	APIVersion      string `json:"v"`
	ResourceVersion int64  `json:"rv"`    // -1: at the latest revision
	StartKey        string `json:"start"` // relative to the list's prefix
	// Left is how many objects the page begins with, of a list without selectors; 0: not known. It goes along so
	// that nobody has to count them again for each page. It is a hint: nothing but remainingItemCount rests on it.
	Left int64 `json:"left,omitempty"`
}

const tokenVersion = "meta.k8s.io/v1"

var errContinue = errors.New("continue key is not valid")

func encodeContinue(key, prefix string, rev storage.Rev, left int64) string {
	return continueToken{tokenVersion, int64(rev), strings.TrimPrefix(key, prefix), left}.encode()
}

func (t continueToken) encode() string {
	b, err := json.Marshal(t)
	if err != nil { // a struct of strings and a number
		panic(err)
	}
	return base64.RawURLEncoding.EncodeToString(b)
}

// decodeContinue returns the key that a page begins at, its revision, and how many objects are left, as far as that
// is known. A revision of -1 is the latest.
func decodeContinue(token, prefix string) (from string, rev, left int64, err error) {
	data, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil {
		return "", 0, 0, fmt.Errorf("%w: %v", errContinue, err)
	}
	var t continueToken
	if err := json.Unmarshal(data, &t); err != nil {
		return "", 0, 0, fmt.Errorf("%w: %v", errContinue, err)
	}
	switch {
	case t.APIVersion != tokenVersion:
		return "", 0, 0, fmt.Errorf("%w: server does not recognize this encoded version %v", errContinue, t.APIVersion)
	case t.ResourceVersion == 0:
		return "", 0, 0, fmt.Errorf("%w: incorrect encoded start resourceVersion (version meta.k8s.io/v1)", errContinue)
	case t.StartKey == "":
		return "", 0, 0, fmt.Errorf("%w: encoded start key empty (version meta.k8s.io/v1)", errContinue)
	}
	// A key that climbs out of the prefix is somebody's invention.
	key := t.StartKey
	if !strings.HasPrefix(key, "/") {
		key = "/" + key
	}
	if path.Clean(key) != key {
		return "", 0, 0, fmt.Errorf("%w: %v", errContinue, t.StartKey)
	}
	return prefix + key[1:], t.ResourceVersion, max(t.Left, 0), nil
}

// expiredPage is the 410 for a page whose revision is gone, with a token for the rest at the latest one.
func expiredPage(from, prefix string) error {
	err := apierrors.NewResourceExpired("The provided continue parameter is too old " +
		"to display a consistent list result. You can start a new list without " +
		"the continue parameter, or use the continue token in this response to " +
		"retrieve the remainder of the results. Continuing with the provided " +
		"token results in an inconsistent list - objects that were created, " +
		"modified, or deleted between the time the first chunk was returned " +
		"and now may show up in the list.")
	err.ErrStatus.ListMeta.Continue = continueToken{tokenVersion, -1, strings.TrimPrefix(from, prefix), 0}.encode()
	return err
}
