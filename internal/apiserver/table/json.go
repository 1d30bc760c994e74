package table

import (
	"bytes"
	"errors"
)

var errNoObject = errors.New("table: the value is not a JSON object")

// Field finds a field of a JSON object without decoding it. The result is part of obj; nil when there is no
// such field. obj must be valid JSON.
func Field(obj []byte, name string) ([]byte, error) {
	i := space(obj, 0)
	if i >= len(obj) || obj[i] != '{' {
		return nil, errNoObject
	}
	i = space(obj, i+1)
	for i < len(obj) && obj[i] != '}' {
		start := i
		i = skipString(obj, i)
		key := obj[start:i]
		i = space(obj, i)
		if i >= len(obj) || obj[i] != ':' {
			return nil, errNoObject
		}
		i = space(obj, i+1)
		value := i
		i = skipValue(obj, i)
		if i <= value {
			return nil, errNoObject
		}
		if len(key) == len(name)+2 && string(key[1:len(key)-1]) == name {
			return obj[value:i], nil
		}
		i = space(obj, i)
		if i < len(obj) && obj[i] == ',' {
			i = space(obj, i+1)
		}
	}
	return nil, nil
}

func space(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\n' || b[i] == '\t' || b[i] == '\r') {
		i++
	}
	return i
}

// skipString returns the index behind the string that starts at i.
func skipString(b []byte, i int) int {
	i++
	for i < len(b) {
		j := bytes.IndexByte(b[i:], '"')
		if j < 0 {
			break
		}
		escapes := 0
		for k := i + j - 1; k >= i && b[k] == '\\'; k-- {
			escapes++
		}
		i += j + 1
		if escapes%2 == 0 {
			return i
		}
	}
	return len(b)
}

// skipValue returns the index behind the value that starts at i.
func skipValue(b []byte, i int) int {
	depth := 0
	for i < len(b) {
		switch b[i] {
		case '"':
			i = skipString(b, i)
			if depth == 0 {
				return i
			}
		case '{', '[':
			depth++
			i++
		case '}', ']':
			if depth == 0 {
				return i
			}
			depth--
			i++
			if depth == 0 {
				return i
			}
		case ',', ':', ' ', '\n', '\t', '\r':
			if depth == 0 {
				return i
			}
			i++
		default:
			i++
		}
	}
	return i
}
