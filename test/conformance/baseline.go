package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
)

// baseline is the set of cases that a server is known to pass, as area/name. It is kept in a file beside the
// cases, one case a line, so that a change shows in review which rules it gained; losing one is a failure.
type baseline map[string]bool

// loadBaseline reads a file; one that doesn't exist is an empty baseline.
func loadBaseline(file string) (baseline, error) {
	f, err := os.Open(file)
	if errors.Is(err, fs.ErrNotExist) {
		return baseline{}, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b := baseline{}
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		line, _, _ := strings.Cut(lines.Text(), "#")
		if line = strings.TrimSpace(line); line != "" {
			b[line] = true
		}
	}
	return b, lines.Err()
}

const baselineHead = "# Cases that pass. CI fails when one of them no longer does; see README.md.\n"

func (b baseline) save(file string) error {
	return os.WriteFile(file, []byte(baselineHead+strings.Join(slices.Sorted(maps.Keys(b)), "\n")+"\n"), 0o644)
}

// verdict compares a run with the baseline: passed tells each case that ran. It returns an error when a case
// of the baseline failed, and says which passing cases are missing from it.
func (b baseline) verdict(out io.Writer, passed map[string]bool) error {
	var lost, gained []string
	for _, name := range slices.Sorted(maps.Keys(passed)) {
		switch {
		case b[name] && !passed[name]:
			lost = append(lost, name)
		case !b[name] && passed[name]:
			gained = append(gained, name)
		}
	}
	if len(gained) > 0 {
		fmt.Fprintf(out, "%d cases pass that are not in the baseline; add them with --save-baseline:\n", len(gained))
		for _, name := range gained {
			fmt.Fprintf(out, "    %s\n", name)
		}
	}
	if len(lost) > 0 {
		fmt.Fprintf(out, "%d cases of the baseline no longer pass:\n", len(lost))
		for _, name := range lost {
			fmt.Fprintf(out, "    %s\n", name)
		}
		return errFailed
	}
	return nil
}

// add takes in the cases that passed and takes out those that failed.
func (b baseline) add(passed map[string]bool) {
	for name, ok := range passed {
		if ok {
			b[name] = true
		} else {
			delete(b, name)
		}
	}
}
