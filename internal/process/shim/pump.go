package shim

import "syscall"

// pump moves the main process's output into log files. It always reads, whatever happens to the files,
// so that the process never blocks on its output; what can't be written is dropped and counted.
//
// A line of a log is "2006-01-02T15:04:05.000000Z stdout F text"; P instead of F says that the line goes
// on in the next entry of the same stream.
type pump struct {
	out, err            int // our ends
	childOut, childErr  int // the child's
	wakeRead, wakeWrite int
	done                chan bool

	limit, keep int
	fd          int // the open log; -1: none
	size        int
	ino         uint64
	lost        int    // bytes dropped since the last success
	reason      string // why; what log.error says
	retry       int64  // second at which a broken log is tried again

	buf, line []byte
}

const pumpBuffer = 32 << 10

// newPump makes the pipes.
func newPump(spec *Spec) (*pump, error) {
	p := &pump{fd: -1, limit: 10 << 20, keep: 5, done: make(chan bool)}
	if n, ok := atoi(spec.LogBytes); ok && n > 0 {
		p.limit = n
	}
	if n, ok := atoi(spec.LogFiles); ok && n > 0 {
		p.keep = n
	}
	var fds [2]int
	for _, ends := range [][2]*int{{&p.out, &p.childOut}, {&p.err, &p.childErr}, {&p.wakeRead, &p.wakeWrite}} {
		if err := syscall.Pipe2(fds[:], syscall.O_CLOEXEC); err != nil {
			return nil, err
		}
		*ends[0], *ends[1] = fds[0], fds[1]
		if err := syscall.SetNonblock(fds[0], true); err != nil {
			return nil, err
		}
	}
	return p, nil
}

func (p *pump) closeChildEnds() {
	syscall.Close(p.childOut)
	syscall.Close(p.childErr)
}

// run opens the log, so that one without output is there and empty, and goes on in the background.
func (p *pump) run() {
	if !p.open() {
		var tv syscall.Timeval
		syscall.Gettimeofday(&tv)
		p.broken(int64(tv.Sec))
	}
	go p.loop()
}

// finish takes in what is left in the pipes and ends the pump. The group is gone by then; a stranger
// that was handed a pipe's end can't hold it up.
func (p *pump) finish() {
	syscall.Close(p.wakeWrite)
	<-p.done
}

func (p *pump) loop() {
	defer close(p.done)
	p.buf = make([]byte, pumpBuffer)
	p.line = make([]byte, 0, pumpBuffer+4096)
	epoll, err := syscall.EpollCreate1(syscall.EPOLL_CLOEXEC)
	if err != nil {
		complain("epoll", err)
		return
	}
	for _, fd := range []int{p.out, p.err, p.wakeRead} {
		e := syscall.EpollEvent{Events: syscall.EPOLLIN, Fd: int32(fd)}
		if err := syscall.EpollCtl(epoll, syscall.EPOLL_CTL_ADD, fd, &e); err != nil {
			complain("epoll", err)
			return
		}
	}
	var events [3]syscall.EpollEvent
	for {
		n, err := syscall.EpollWait(epoll, events[:], -1)
		if err == syscall.EINTR {
			continue
		}
		if err != nil {
			complain("epoll", err)
			return
		}
		for _, e := range events[:n] {
			switch fd := int(e.Fd); fd {
			case p.wakeRead:
				for _, fd := range []int{p.out, p.err} {
					for budget := 1 << 20; budget > 0; budget -= pumpBuffer {
						if p.take(fd) <= 0 {
							break
						}
					}
				}
				return
			default:
				if p.take(fd) == 0 {
					syscall.EpollCtl(epoll, syscall.EPOLL_CTL_DEL, fd, nil)
				}
			}
		}
	}
}

// take reads once from a pipe and logs what came. 0 is the end, -1 means that there is nothing now.
func (p *pump) take(fd int) int {
	n, err := syscall.Read(fd, p.buf)
	if err == syscall.EINTR || err == syscall.EAGAIN {
		return -1
	}
	if err != nil || n == 0 {
		return 0
	}
	stream := " stdout "
	if fd == p.err {
		stream = " stderr "
	}
	p.log(p.buf[:n], stream)
	return n
}

func (p *pump) log(data []byte, stream string) {
	var tv syscall.Timeval
	syscall.Gettimeofday(&tv)
	var stamp [27]byte
	timestamp(&stamp, int64(tv.Sec), int(tv.Usec))
	for len(data) > 0 {
		end, tag := 0, byte('F')
		for end < len(data) && data[end] != '\n' {
			end++
		}
		if end == len(data) {
			tag = 'P'
		}
		p.line = append(p.line, stamp[:]...)
		p.line = append(p.line, stream...)
		p.line = append(p.line, tag, ' ')
		p.line = append(p.line, data[:end]...)
		p.line = append(p.line, '\n')
		if end < len(data) {
			end++
		}
		data = data[end:]
		if len(p.line) > pumpBuffer {
			p.flush(int64(tv.Sec))
		}
	}
	p.flush(int64(tv.Sec))
}

// flush writes the collected lines to the log, or drops them if that can't be done now.
func (p *pump) flush(second int64) {
	defer func() { p.line = p.line[:0] }()
	if p.reason != "" && second < p.retry {
		p.lost += len(p.line)
		return
	}
	var st syscall.Stat_t
	if p.fd >= 0 && (syscall.Lstat(LogFile, &st) != nil || uint64(st.Ino) != p.ino) {
		p.close() // somebody removed or replaced it
	}
	if p.fd >= 0 && p.size > 0 && p.size+len(p.line) > p.limit {
		p.rotate()
	}
	if p.fd < 0 && !p.open() {
		p.broken(second)
		return
	}
	if err := writeAll(p.fd, p.line); err != nil {
		p.reason = "write " + LogFile + ": " + err.Error()
		p.close()
		p.broken(second)
		return
	}
	p.size += len(p.line)
	if p.reason != "" {
		note := "operatord: " + itoa(p.lost) + " bytes of output could not be logged: " + p.reason + "\n"
		p.reason, p.lost = "", 0
		syscall.Unlink(LogErrorFile)
		p.line = p.line[:0]
		p.log([]byte(note), " stderr ")
	}
}

// broken drops the collected lines and says why where the daemon sees it.
func (p *pump) broken(second int64) {
	p.lost += len(p.line)
	p.retry = second + 1
	var r Record
	r.Add("error", p.reason)
	if err := writeRecord(LogErrorFile, r, false); err != nil {
		complain(p.reason+"; write "+LogErrorFile, err)
	}
}

// open opens the log for appending; on failure reason says why.
func (p *pump) open() bool {
	// Non-blocking, should somebody have put a FIFO there.
	fd, err := syscall.Open(LogFile, syscall.O_WRONLY|syscall.O_APPEND|syscall.O_CREAT|syscall.O_CLOEXEC|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0o600)
	if err != nil {
		p.reason = "open " + LogFile + ": " + err.Error()
		return false
	}
	var st syscall.Stat_t
	if err := syscall.Fstat(fd, &st); err != nil || st.Mode&syscall.S_IFMT != syscall.S_IFREG {
		syscall.Close(fd)
		p.reason = "open " + LogFile + ": not a regular file"
		return false
	}
	p.fd, p.size, p.ino = fd, int(st.Size), uint64(st.Ino)
	return true
}

func (p *pump) close() {
	if p.fd >= 0 {
		syscall.Close(p.fd)
		p.fd = -1
	}
}

// rotate renames log to log.1 and so on; the oldest goes.
func (p *pump) rotate() {
	p.close()
	if p.keep == 1 {
		syscall.Unlink(LogFile)
		return
	}
	for i := p.keep - 1; i > 1; i-- {
		syscall.Rename(LogFile+"."+itoa(i-1), LogFile+"."+itoa(i))
	}
	if err := syscall.Rename(LogFile, LogFile+".1"); err != nil {
		syscall.Unlink(LogFile) // the cap holds, whatever stands in the way of log.1
	}
}

// timestamp writes seconds and microseconds since 1970 as RFC 3339 in UTC.
func timestamp(b *[27]byte, sec int64, usec int) {
	days, rest := sec/86400, int(sec%86400)
	// Civil date from days: Howard Hinnant's algorithm, for dates after 1970.
	z := days + 719468
	era := z / 146097
	doe := z - era*146097
	yoe := (doe - doe/1460 + doe/36524 - doe/146096) / 365
	doy := doe - (365*yoe + yoe/4 - yoe/100)
	mp := (5*doy + 2) / 153
	day := int(doy - (153*mp+2)/5 + 1)
	month := int(mp + 3)
	year := int(yoe + era*400)
	if month > 12 {
		month -= 12
		year++
	}
	copy(b[:], "0000-00-00T00:00:00.000000Z")
	digits := func(at, width, n int) {
		for i := at + width - 1; i >= at; i-- {
			b[i] = byte('0' + n%10)
			n /= 10
		}
	}
	digits(0, 4, year)
	digits(5, 2, month)
	digits(8, 2, day)
	digits(11, 2, rest/3600)
	digits(14, 2, rest/60%60)
	digits(17, 2, rest%60)
	digits(20, 6, usec)
}
