package daemon

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"strings"
	"time"
)

// podsJudgedSince is when daemons that keep back Pods which ask for what can't be obeyed began to work on this
// directory; zero: from its beginning. Pods and Clusters that are older run as they always have, so it is written down
// before anything is served, and before there is a store. What can't be written, on a full disk say, is tried again
// at the next start: until then it is this one.
func (d *dataDir) podsJudgedSince(now time.Time, log *slog.Logger) (time.Time, error) {
	data, err := os.ReadFile(d.file(judgedFile))
	if err == nil {
		since, err := time.Parse(time.RFC3339Nano, strings.TrimSpace(string(data)))
		if err == nil {
			return since, nil
		}
		log.Warn("can't tell which Pods are older than the judging of Pods, so that all that there are go on as they are", "file", d.file(judgedFile), "error", err)
	} else if !errors.Is(err, fs.ErrNotExist) {
		return time.Time{}, fmt.Errorf("daemon: %w", err)
	}
	since := now.UTC()
	if _, err := os.Lstat(d.file(storeDir)); errors.Is(err, fs.ErrNotExist) {
		since = time.Time{}
	}
	if err := d.write(judgedFile, 0o600, []byte(since.Format(time.RFC3339Nano)+"\n"), true); err != nil {
		log.Warn("can't write down since when Pods are judged; trying again at the next start", "error", err)
	}
	return since, nil
}
