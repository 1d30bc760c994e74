package watchcache

import (
	"strings"
	"testing"

	"operatord.io/operatord/internal/storage"
)

// No token leads out of the list that it is given to, and the ones that were handed out lead back.
func FuzzContinue(f *testing.F) {
	f.Add(encodeContinue("/g/p/ns/name\x00", "/g/p/", 7, 3), "ns/name\x00", uint64(7))
	f.Add(continueToken{tokenVersion, -1, "../x", 0}.encode(), "..", uint64(1))
	f.Add("!", "/", uint64(0))
	f.Fuzz(func(t *testing.T, token, key string, rev uint64) {
		const prefix = "/g/p/"
		if from, _, left, err := decodeContinue(token, prefix); err == nil && (left < 0 || !strings.HasPrefix(from, prefix)) {
			t.Errorf("%q leads to %q", token, from)
		}
		if key == "" || strings.Contains(key, "/") || key == "." || key == ".." || rev == 0 || rev > 1<<62 || !strings.HasSuffix(key, "\x00") {
			return
		}
		from, at, _, err := decodeContinue(encodeContinue(prefix+key, prefix, storage.Rev(rev), 1), prefix)
		if err != nil || at != int64(rev) || from != prefix+key && strings.ToValidUTF8(key, "") == key {
			t.Errorf("%q at %d comes back as %q at %d, %v", key, rev, from, at, err)
		}
	})
}
