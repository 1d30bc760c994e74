package process

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"strings"

	"operatord.io/operatord/internal/process/shim"
)

// tailRead is how much of a log Tail looks at.
const tailRead = 64 << 10

// Tail is the end of what an attempt has written: at most so many lines and bytes, without times and streams and
// without the values of its secret variables. Empty if there is no log.
func (r *Runtime) Tail(id ID, lines, size int) (string, error) {
	if err := id.validate(); err != nil {
		return "", err
	}
	f, err := os.Open(r.attempt(id).path(shim.LogFile))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return "", err
	}
	data, err := io.ReadAll(io.NewSectionReader(f, max(0, info.Size()-tailRead), tailRead))
	if err != nil {
		return "", err
	}
	if info.Size() > tailRead { // begins in the middle of an entry
		_, data, _ = bytes.Cut(data, []byte("\n"))
	}
	var text strings.Builder
	for entry := range bytes.Lines(data) {
		// TIME STREAM F|P TEXT
		if fields := bytes.SplitN(entry, []byte(" "), 4); len(fields) == 4 {
			said := fields[3]
			if string(fields[2]) == "P" {
				said = bytes.TrimSuffix(said, []byte("\n"))
			}
			text.Write(said)
		}
	}
	all := r.Redact(id, text.String())
	for at, n := len(all), 0; at > 0; n++ {
		if at = strings.LastIndexByte(all[:at-1], '\n') + 1; n == lines-1 {
			all = all[at:]
			break
		}
	}
	return all[max(0, len(all)-size):], nil
}
