package resource

// span is a range of bytes to leave out; end 0 means none.
type span struct{ start, end int }

// splice finds where `"resourceVersion":"N",` goes into an object's JSON, and the resourceVersion to
// cut out of it if there is one. The offset is right behind metadata's opening brace, or behind the
// object's own where there is no metadata, and so lies before the cut. What isn't a JSON object is
// taken as it is.
func splice(json []byte) (offset int, flags byte, cut span) {
	s := scanner{b: json}
	if !s.token('{') {
		return 0, flagAlone, span{}
	}
	start := s.i
	members := 0
	for {
		key, _, ok := s.member(members)
		if !ok {
			break
		}
		if string(key) == "metadata" && s.token('{') {
			offset = s.i
			cut, alone := s.revision()
			if alone {
				flags = flagAlone
			}
			return offset, flags, cut
		}
		if !s.value() {
			break
		}
		members++
	}
	if members == 0 {
		flags = flagAlone
	}
	return start, flags | flagNoMetadata, span{}
}

// revision looks through metadata's members, from behind its brace, for the resourceVersion and tells
// whether there is nothing else.
func (s *scanner) revision() (cut span, alone bool) {
	others := 0
	for n := 0; ; n++ {
		key, start, ok := s.member(n)
		if !ok {
			return cut, others == 0
		}
		if !s.value() {
			return cut, false
		}
		if string(key) != "resourceVersion" {
			others++
			continue
		}
		cut = span{start: start, end: s.i}
		if n == 0 {
			// The first member takes the comma behind it along, others the one before.
			after := *s
			if after.token(',') {
				cut.end = after.i
			}
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
