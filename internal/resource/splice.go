package resource

// withoutRevision is an object's JSON without metadata.resourceVersion. It is json itself if there is none.
func withoutRevision(json []byte) []byte {
	s := scanner{b: json}
	if !s.metadata() {
		return json
	}
	for n := 0; ; n++ {
		name, start, ok := s.member(n)
		if !ok || !s.value() {
			return json
		}
		if string(name) != "resourceVersion" {
			continue
		}
		end := s.i
		if n == 0 && s.token(',') {
			end = s.i // the first member takes the comma behind it along, others the one before
		}
		out := make([]byte, 0, len(json)-(end-start))
		return append(append(out, json[:start]...), json[end:]...)
	}
}

// splice finds where `"resourceVersion":"N",` goes into an object's JSON: where Kubernetes has it, which
// is behind uid in objects encoded from Go types and before uid in those with sorted names, where uid comes
// last. Without a uid it goes right behind metadata's brace, and without metadata behind the object's. What
// isn't a JSON object is taken as it is.
func splice(json []byte) (offset int, flags byte) {
	s := scanner{b: json}
	if !s.metadata() {
		s = scanner{b: json}
		if !s.token('{') {
			return 0, flagAlone
		}
		flags, offset = flagNoMetadata, s.i
		if _, _, more := s.member(0); !more {
			flags |= flagAlone
		}
		return offset, flags
	}
	offset = s.i
	for n := 0; ; n++ {
		name, start, ok := s.member(n)
		if !ok || !s.value() {
			break
		}
		if string(name) != "uid" {
			continue
		}
		switch {
		case s.token(','):
			offset = s.i
		case n > 0:
			offset = start + 1 // behind the comma before it
		}
		return offset, 0
	}
	empty := scanner{b: json, i: offset}
	if empty.token('}') {
		flags = flagAlone
	}
	return offset, flags
}

// metadata goes behind the opening brace of the object's metadata, if it has any.
func (s *scanner) metadata() bool {
	if !s.token('{') {
		return false
	}
	for n := 0; ; n++ {
		name, _, ok := s.member(n)
		if !ok {
			return false
		}
		if string(name) == "metadata" && s.token('{') {
			return true
		}
		if !s.value() {
			return false
		}
	}
}

// scanner walks over JSON that is known to be valid; on other bytes it stops early, and never reads
// beyond their end.
type scanner struct {
	b []byte
	i int
}

func (s *scanner) space() {
	for s.i < len(s.b) {
		switch s.b[s.i] {
		case ' ', '\t', '\n', '\r':
			s.i++
		default:
			return
		}
	}
}

// token passes over c if it is what comes next.
func (s *scanner) token(c byte) bool {
	s.space()
	if s.i < len(s.b) && s.b[s.i] == c {
		s.i++
		return true
	}
	return false
}

// member passes over the n-th member's comma, name and colon. start is where its comma, or for the first
// one its name, begins. ok is false at the object's end.
func (s *scanner) member(n int) (name []byte, start int, ok bool) {
	s.space()
	start = s.i
	if n > 0 && !s.token(',') {
		return nil, 0, false
	}
	s.space()
	from := s.i
	if !s.str() {
		return nil, 0, false
	}
	name = s.b[from+1 : s.i-1]
	return name, start, s.token(':')
}

// str passes over a string.
func (s *scanner) str() bool {
	if s.i >= len(s.b) || s.b[s.i] != '"' {
		return false
	}
	for i := s.i + 1; i < len(s.b); i++ {
		switch s.b[i] {
		case '\\':
			i++
		case '"':
			s.i = i + 1
			return true
		}
	}
	return false
}

// value passes over one value of any kind.
func (s *scanner) value() bool {
	s.space()
	depth := 0
	for s.i < len(s.b) {
		switch c := s.b[s.i]; c {
		case '"':
			if !s.str() {
				return false
			}
			if depth == 0 {
				return true
			}
		case '{', '[':
			depth++
			s.i++
		case '}', ']':
			if depth == 0 {
				return true // the end of what surrounds a bare value
			}
			depth--
			s.i++
			if depth == 0 {
				return true
			}
		case ',':
			if depth == 0 {
				return true
			}
			s.i++
		default:
			s.i++
		}
	}
	return depth == 0
}
