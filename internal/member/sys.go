package member

import "syscall"

func env(name, otherwise string) string {
	if v, ok := syscall.Getenv(name); ok && v != "" {
		return v
	}
	return otherwise
}

// now is the time in seconds since 1970.
func now() int64 {
	var tv syscall.Timeval
	syscall.Gettimeofday(&tv)
	return int64(tv.Sec)
}

// readFile reads a file of at most limit bytes; the rest of a larger one is left out.
func readFile(name string, limit int) ([]byte, error) {
	fd, err := syscall.Open(name, syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer syscall.Close(fd)
	var data []byte
	var buf [4096]byte
	for len(data) < limit {
		n, err := syscall.Read(fd, buf[:])
		if err == syscall.EINTR {
			continue
		}
		if err != nil || n == 0 {
			return data, err
		}
		data = append(data, buf[:n]...)
	}
	return data[:limit], nil
}

// readDir lists at most limit names in a directory, sorted; none if it can't be read.
func readDir(dir string, limit int) []string {
	fd, err := syscall.Open(dir, syscall.O_RDONLY|syscall.O_DIRECTORY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	defer syscall.Close(fd)
	var names []string
	buf := make([]byte, 4096)
	for len(names) < limit {
		n, err := syscall.ReadDirent(fd, buf)
		if err != nil || n <= 0 {
			break
		}
		_, _, names = syscall.ParseDirent(buf[:n], limit-len(names), names)
	}
	for i := 1; i < len(names); i++ {
		for j := i; j > 0 && names[j] < names[j-1]; j-- {
			names[j], names[j-1] = names[j-1], names[j]
		}
	}
	return names
}

func hasLine(data []byte, want string) bool {
	start := 0
	for i := 0; i <= len(data); i++ {
		if i == len(data) || data[i] == '\n' {
			if string(data[start:i]) == want {
				return true
			}
			start = i + 1
		}
	}
	return false
}

// quote writes a JSON string.
func quote(s string) string {
	const hex = "0123456789abcdef"
	out := []byte{'"'}
	for _, r := range s { // what is no UTF-8 becomes U+FFFD
		switch {
		case r == '"' || r == '\\':
			out = append(out, '\\', byte(r))
		case r < 0x20:
			out = append(out, '\\', 'u', '0', '0', hex[r>>4], hex[r&15])
		default:
			out = append(out, string(r)...)
		}
	}
	return string(append(out, '"'))
}

func parseIP(s string) (ip [4]byte, ok bool) {
	part, start := 0, 0
	for i := 0; i <= len(s); i++ {
		if i < len(s) && s[i] != '.' {
			continue
		}
		n, ok := atoi(s[start:i])
		if !ok || n > 255 || part > 3 {
			return ip, false
		}
		ip[part] = byte(n)
		part++
		start = i + 1
	}
	return ip, part == 4
}

func itoa(n int) string {
	var b [20]byte
	i := len(b)
	for {
		i--
		b[i] = byte('0' + n%10)
		if n /= 10; n == 0 {
			return string(b[i:])
		}
	}
}

func atoi(s string) (int, bool) {
	if s == "" || len(s) > 9 {
		return 0, false
	}
	n := 0
	for i := 0; i < len(s); i++ {
		if s[i] < '0' || s[i] > '9' {
			return 0, false
		}
		n = n*10 + int(s[i]-'0')
	}
	return n, true
}
