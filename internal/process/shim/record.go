package shim

import "syscall"

// Record is the text form of everything in an attempt's directory: lines "key value", in which newline
// and backslash are written \n and \\. Keys may repeat. Unknown keys are ignored by readers, so that
// versions of the daemon can add some.
type Record struct{ Fields []Field }

// Field is one line of a Record.
type Field struct{ Key, Value string }

// Add appends a field. An empty value is left out: absent and empty mean the same.
func (r *Record) Add(key, value string) {
	if value != "" {
		r.Fields = append(r.Fields, Field{key, value})
	}
}

// Get is the first value of a key, empty if there is none.
func (r *Record) Get(key string) string {
	for _, f := range r.Fields {
		if f.Key == key {
			return f.Value
		}
	}
	return ""
}

// Format writes the record down.
func (r *Record) Format() []byte {
	var b []byte
	for _, f := range r.Fields {
		b = append(b, f.Key...)
		b = append(b, ' ')
		for i := 0; i < len(f.Value); i++ {
			switch c := f.Value[i]; c {
			case '\n':
				b = append(b, '\\', 'n')
			case '\\':
				b = append(b, '\\', '\\')
			default:
				b = append(b, c)
			}
		}
		b = append(b, '\n')
	}
	return b
}

// ParseRecord reads what Format wrote. Empty lines and a last line without an end are ignored.
func ParseRecord(data []byte) Record {
	var r Record
	start := 0
	for i := 0; i < len(data); i++ {
		if data[i] != '\n' {
			continue
		}
		line := data[start:i]
		start = i + 1
		space := 0
		for space < len(line) && line[space] != ' ' {
			space++
		}
		if space == 0 || space == len(line) {
			continue
		}
		value := make([]byte, 0, len(line)-space)
		for j := space + 1; j < len(line); j++ {
			c := line[j]
			if c == '\\' && j+1 < len(line) {
				j++
				if c = line[j]; c == 'n' {
					c = '\n'
				}
			}
			value = append(value, c)
		}
		r.Fields = append(r.Fields, Field{string(line[:space]), string(value)})
	}
	return r
}

// reserved is the size set aside for a record that must be writable on a full disk.
const reserved = 1024

func temporary(name string) string { return "." + name + ".tmp" }

// reserve sets disk space aside for a later record, so that an exit code isn't lost to a full disk.
func reserve(name string) error {
	fd, err := syscall.Open(temporary(name), syscall.O_WRONLY|syscall.O_CREAT|syscall.O_TRUNC|syscall.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	defer syscall.Close(fd)
	blank := make([]byte, reserved)
	for i := range blank {
		blank[i] = '\n'
	}
	return writeAll(fd, blank)
}

// writeRecord replaces a record in the current directory: write, sync, rename, sync the directory.
// Without durable the syncs are left out: a reader still sees all of it or nothing.
func writeRecord(name string, r Record, durable bool) error {
	fd, err := syscall.Open(temporary(name), syscall.O_WRONLY|syscall.O_CREAT|syscall.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	data := r.Format()
	err = writeAll(fd, data)
	if err == nil {
		// What is left of a reserved file is newlines, which readers skip; anything else goes.
		var st syscall.Stat_t
		if err = syscall.Fstat(fd, &st); err == nil && st.Size != reserved {
			err = syscall.Ftruncate(fd, int64(len(data)))
		}
	}
	if err == nil && durable {
		err = syscall.Fsync(fd)
	}
	syscall.Close(fd)
	if err == nil {
		err = syscall.Rename(temporary(name), name)
	}
	if err != nil || !durable {
		return err
	}
	return syncDir()
}

func syncDir() error {
	fd, err := syscall.Open(".", syscall.O_RDONLY|syscall.O_DIRECTORY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer syscall.Close(fd)
	return syscall.Fsync(fd)
}

func writeAll(fd int, data []byte) error {
	for len(data) > 0 {
		n, err := syscall.Write(fd, data)
		if err == syscall.EINTR {
			continue
		}
		if err != nil {
			return err
		}
		data = data[n:]
	}
	return nil
}

// readFile reads a whole file of at most 16 MiB.
func readFile(name string) ([]byte, error) {
	fd, err := syscall.Open(name, syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer syscall.Close(fd)
	buf := make([]byte, 0, 4096)
	for len(buf) < 16<<20 {
		if len(buf) == cap(buf) {
			grown := make([]byte, len(buf), 2*cap(buf))
			copy(grown, buf)
			buf = grown
		}
		n, err := syscall.Read(fd, buf[len(buf):cap(buf)])
		if err == syscall.EINTR {
			continue
		}
		if err != nil {
			return nil, err
		}
		if n == 0 {
			return buf, nil
		}
		buf = buf[:len(buf)+n]
	}
	return nil, syscall.EFBIG
}
