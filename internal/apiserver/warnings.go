package apiserver

import (
	"net/http"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Limits of an answer's Warning headers, in runes. Nothing is shortened while all of it fits.
const (
	maxWarnings = 4 << 10
	maxWarning  = 256 // of one warning, once they have to be shortened
)

// warnings writes Warning headers, each text once.
type warnings struct {
	seen    map[string]bool
	texts   []string
	written int
	shorten bool
}

// add adds texts to an answer's header.
func (w *warnings) add(h http.Header, texts ...string) {
	for _, t := range texts {
		if t == "" || w.seen[t] || w.shorten && w.written >= maxWarnings {
			continue
		}
		if w.seen == nil {
			w.seen = map[string]bool{}
		}
		w.seen[t] = true
		w.texts = append(w.texts, t)
		if !w.shorten && w.written+utf8.RuneCountInString(t) > maxWarnings {
			// All over again, shortened.
			w.shorten, w.written = true, 0
			h.Del("Warning")
			for _, t := range w.texts {
				w.write(h, t)
			}
			continue
		}
		w.write(h, t)
	}
}

func (w *warnings) write(h http.Header, text string) {
	n := utf8.RuneCountInString(text)
	if w.shorten && n > maxWarning {
		text, n = string([]rune(text)[:maxWarning]), maxWarning
	}
	w.written += n
	h.Add("Warning", warningHeader(text))
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
