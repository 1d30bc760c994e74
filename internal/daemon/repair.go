package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"operatord.io/operatord/internal/storage/bolt"
)

// RepairStore makes a store with a damaged log open again, without its history, and says what it has done. It is an error
// while a daemon runs on the data directory, and where acknowledged writes would be lost, unless that is accepted.
func RepairStore(ctx context.Context, dataDir string, acceptLoss bool) (string, error) {
	path, err := filepath.Abs(dataDir)
	if err != nil {
		return "", fmt.Errorf("daemon: %w", err)
	}
	if _, err := os.Stat(filepath.Join(path, storeDir)); err != nil {
		return "", fmt.Errorf("daemon: there is no store to repair: %w: give the daemon's --data-dir", err)
	}
	dir, err := openDataDir(path, slog.Default())
	if err != nil {
		return "", err
	}
	defer dir.release()
	done, err := bolt.DropHistory(ctx, dir.file(storeDir), acceptLoss)
	if errors.Is(err, bolt.ErrWhole) {
		return "The store is whole. Nothing was changed.\n", nil
	}
	if err != nil {
		return "", fmt.Errorf("daemon: repair the store in %s: %w", dir.file(storeDir), err)
	}
	var says strings.Builder
	says.WriteString("Repaired: history is given up, watches start again.\n")
	if done.Keys > 0 {
		fmt.Fprintf(&says, "%d objects are kept; the store is at revision %d.\n", done.Keys, done.Rev)
	}
	if done.Loss != "" {
		fmt.Fprintf(&says, "Lost: %s.\n", done.Loss)
	}
	if len(done.Kept) > 0 {
		fmt.Fprintf(&says, "The damaged files are now:\n  %s\n", strings.Join(done.Kept, "\n  "))
	}
	return says.String(), nil
}
