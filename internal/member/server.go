package member

import "syscall"

const (
	maxConnections = 64      // one more ends the one that has waited longest
	maxRequest     = 8 << 10 // bytes of a request's head
	patience       = 5       // seconds for a request to arrive
)

// server answers one request on each connection and closes it.
type server struct {
	listener, epoll int
	answer          func(path string) (kind, body string, ok bool)
	open            []*connection // oldest first
}

type connection struct {
	fd    int
	since int64 // second of its arrival
	head  []byte
}

type failure string

func (f failure) Error() string { return string(f) }

func listen(address, port string, answer func(string) (string, string, bool)) (*server, error) {
	ip, ok := parseIP(address)
	if !ok {
		return nil, failure("not an IPv4 address")
	}
	n, ok := atoi(port)
	if !ok || n > 65535 {
		return nil, failure("not a port")
	}
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC|syscall.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	if err := syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1); err != nil {
		return nil, err
	}
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Port: n, Addr: ip}); err != nil {
		return nil, err
	}
	if err := syscall.Listen(fd, 128); err != nil {
		return nil, err
	}
	s := &server{listener: fd, answer: answer}
	if s.epoll, err = syscall.EpollCreate1(syscall.EPOLL_CLOEXEC); err != nil {
		return nil, err
	}
	return s, s.watch(fd)
}

func (s *server) watch(fd int) error {
	return syscall.EpollCtl(s.epoll, syscall.EPOLL_CTL_ADD, fd, &syscall.EpollEvent{Events: syscall.EPOLLIN, Fd: int32(fd)})
}

// serve goes on until the kernel refuses to.
func (s *server) serve() error {
	var events [maxConnections + 1]syscall.EpollEvent
	for {
		wait := -1
		if len(s.open) > 0 {
			wait = 1000
		}
		n, err := syscall.EpollWait(s.epoll, events[:], wait)
		if err == syscall.EINTR {
			continue
		}
		if err != nil {
			return err
		}
		// Connections first: accepting may close some and reuse their numbers.
		accept := false
		for _, e := range events[:n] {
			if int(e.Fd) == s.listener {
				accept = true
				continue
			}
			s.read(int(e.Fd))
		}
		for second := now(); len(s.open) > 0 && second-s.open[0].since > patience; {
			s.close(s.open[0])
		}
		if accept {
			s.accept()
		}
	}
}

func (s *server) accept() {
	for {
		fd, _, err := syscall.Accept4(s.listener, syscall.SOCK_CLOEXEC|syscall.SOCK_NONBLOCK)
		if err == syscall.EINTR || err == syscall.ECONNABORTED {
			continue
		}
		if err != nil {
			// None is waiting; or there is no descriptor left, and the oldest has to give way.
			if err != syscall.EAGAIN && len(s.open) > 0 {
				s.close(s.open[0])
			}
			return
		}
		if len(s.open) == maxConnections {
			s.close(s.open[0])
		}
		if s.watch(fd) != nil {
			syscall.Close(fd)
			continue
		}
		s.open = append(s.open, &connection{fd: fd, since: now()})
	}
}

func (s *server) close(c *connection) {
	syscall.Close(c.fd)
	for i := range s.open {
		if s.open[i] == c {
			s.open = append(s.open[:i], s.open[i+1:]...)
			return
		}
	}
}

// read takes what has arrived and answers once the head of a request is complete.
func (s *server) read(fd int) {
	var c *connection
	for _, o := range s.open {
		if o.fd == fd {
			c = o
		}
	}
	if c == nil {
		return
	}
	var buf [2048]byte
	for {
		n, err := syscall.Read(fd, buf[:])
		if err == syscall.EINTR {
			continue
		}
		if err == syscall.EAGAIN {
			return
		}
		if err != nil || n == 0 {
			s.close(c)
			return
		}
		c.head = append(c.head, buf[:n]...)
		switch {
		case complete(c.head):
			s.write(c, s.respond(c.head))
			return
		case len(c.head) > maxRequest:
			s.write(c, response("431 Request Header Fields Too Large", "text/plain", "the request is too large\n", true))
			return
		}
	}
}

// write sends an answer, which a socket's buffer has room for, and closes.
func (s *server) write(c *connection, data []byte) {
	for len(data) > 0 {
		n, err := syscall.Write(c.fd, data)
		if err == syscall.EINTR {
			continue
		}
		if err != nil {
			break
		}
		data = data[n:]
	}
	syscall.Shutdown(c.fd, syscall.SHUT_WR)
	s.close(c)
}

func (s *server) respond(head []byte) []byte {
	method, path, ok := requestLine(head)
	if !ok {
		return response("400 Bad Request", "text/plain", "this is not HTTP/1.1\n", true)
	}
	if method != "GET" && method != "HEAD" {
		return response("405 Method Not Allowed", "text/plain", "only GET and HEAD\n", true)
	}
	kind, body, ok := s.answer(path)
	status := "200 OK"
	if !ok {
		status = "404 Not Found"
	}
	return response(status, kind, body, method == "GET")
}

func response(status, kind, body string, withBody bool) []byte {
	r := "HTTP/1.1 " + status + "\r\nContent-Type: " + kind + "\r\nContent-Length: " + itoa(len(body)) + "\r\nConnection: close\r\n\r\n"
	if withBody {
		r += body
	}
	return []byte(r)
}

// complete tells whether a request's head has an end, an empty line.
func complete(head []byte) bool {
	for i := 0; i+1 < len(head); i++ {
		if head[i] == '\n' && (head[i+1] == '\n' || head[i+1] == '\r' && i+2 < len(head) && head[i+2] == '\n') {
			return true
		}
	}
	return false
}

// requestLine takes "GET /path?query HTTP/1.1" apart; the query is dropped.
func requestLine(head []byte) (method, path string, ok bool) {
	end := 0
	for head[end] != '\n' {
		end++
	}
	line := string(head[:end])
	if end > 0 && line[end-1] == '\r' {
		line = line[:end-1]
	}
	var fields []string
	start := 0
	for i := 0; i <= len(line); i++ {
		if i == len(line) || line[i] == ' ' {
			fields = append(fields, line[start:i])
			start = i + 1
		}
	}
	if len(fields) != 3 || len(fields[2]) < 7 || fields[2][:7] != "HTTP/1." || fields[1] == "" || fields[1][0] != '/' {
		return "", "", false
	}
	path = fields[1]
	for i := 0; i < len(path); i++ {
		if path[i] == '?' {
			path = path[:i]
		}
	}
	return fields[0], path, true
}
