package daemon

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
)

func openNew(t *testing.T) *dataDir { return open(t, t.TempDir()) }

func open(t *testing.T, path string) *dataDir {
	t.Helper()
	d, err := openDataDir(path, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.release)
	return d
}

// private is an empty directory as openDataDir makes them.
func private(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "data")
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestDataDirIsPrivateAndHeldByOne(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a", "data")
	d := open(t, path)
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("mode of the data directory: %v %v, want 0700", info.Mode(), err)
	}
	if err := d.write(endpointsFile, 0o600, []byte("{}"), false); err != nil {
		t.Fatal(err)
	}
	_, err := openDataDir(path, slog.New(slog.DiscardHandler))
	if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("pid %d", os.Getpid())) {
		t.Fatalf("a second daemon: %v, want a refusal that names pid %d", err, os.Getpid())
	}
	if _, err := os.Stat(d.file(endpointsFile)); err != nil {
		t.Errorf("the one that was refused removed the holder's file: %v", err)
	}
}

func TestDataDirForgetsThePredecessor(t *testing.T) {
	path := private(t)
	for _, name := range []string{endpointsFile, socketFile} {
		if err := os.WriteFile(filepath.Join(path, name), []byte("old"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	d := open(t, path)
	for _, name := range []string{endpointsFile, socketFile} {
		if _, err := os.Stat(d.file(name)); !os.IsNotExist(err) {
			t.Errorf("%s of the last daemon is still there: %v", name, err)
		}
	}
}

func TestAuthorityPersistsAndSigns(t *testing.T) {
	d := open(t, t.TempDir())
	first, err := openAuthority(d, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ca, err := openAuthority(d, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if string(ca.pem) != string(first.pem) {
		t.Error("the second start made another authority: clients would no longer trust it")
	}
	if info, err := os.Stat(d.file(caKeyFile)); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%s: %v %v, want 0600", caKeyFile, info.Mode(), err)
	}
	s, err := newServerCertificate(ca, &net.TCPAddr{IP: net.IPv4(127, 0, 0, 9), Port: 1})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"localhost", "127.0.0.1", "127.0.0.9", "::1"} {
		if _, err := s.cert.Leaf.Verify(x509.VerifyOptions{Roots: ca.pool(), DNSName: name}); err != nil {
			t.Errorf("as %s: %v", name, err)
		}
	}
	before := s.cert
	s.cert.Leaf.NotAfter = time.Now().Add(renewBefore - time.Hour)
	after, err := s.get(nil)
	if err != nil || after == before {
		t.Errorf("a certificate that runs out soon was not renewed: %v", err)
	}
}

// An authority whose time is nearly over, is over, or has not come because its certificate was made while the clock was
// wrong, is valid after the next start. In a bubble it is the year 2000.
func TestAuthorityAfterYears(t *testing.T) {
	open := func(t *testing.T, d *dataDir) *authority {
		t.Helper()
		a, err := openAuthority(d, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := a.cert.Verify(x509.VerifyOptions{Roots: a.pool(), CurrentTime: time.Now()}); err != nil {
			t.Errorf("the authority: %v", err)
		}
		s, err := newServerCertificate(a, &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.cert.Leaf.Verify(x509.VerifyOptions{Roots: a.pool(), DNSName: "localhost", CurrentTime: time.Now()}); err != nil {
			t.Errorf("the server: %v", err)
		}
		return a
	}
	years := openNew(t)
	synctest.Test(t, func(t *testing.T) {
		old := open(t, years)
		time.Sleep(caLifetime - caRenewBefore + time.Hour)
		cert, _, err := old.client("alice", []string{"dev"}, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		block, _ := pem.Decode(cert)
		client, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			t.Fatal(err)
		}
		renewed := open(t, years)
		if renewed.cert.Equal(old.cert) {
			t.Error("it has a year left and wasn't renewed")
		}
		for name, a := range map[string]*authority{"old": old, "new": renewed} {
			if _, err := client.Verify(x509.VerifyOptions{Roots: a.pool(), CurrentTime: time.Now(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}); err != nil {
				t.Errorf("alice, by the %s certificate: %v", name, err)
			}
		}
	})
	past, future := openNew(t), openNew(t)
	synctest.Test(t, func(t *testing.T) { open(t, past) })
	open(t, past)
	open(t, future)
	synctest.Test(t, func(t *testing.T) { open(t, future) })
}

func TestAuthorityThatCannotBeReadIsNotReplaced(t *testing.T) {
	d := open(t, t.TempDir())
	if _, err := openAuthority(d, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(d.file(caKeyFile), []byte("torn"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := openAuthority(d, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), caKeyFile) {
		t.Errorf("a torn key: %v, want an error that names it", err)
	}
	if err := os.Remove(d.file(caKeyFile)); err != nil {
		t.Fatal(err)
	}
	if _, err := openAuthority(d, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), caKeyFile) {
		t.Errorf("a lost key: %v, want an error that names it", err)
	}
}

func TestTokenPersists(t *testing.T) {
	d := open(t, t.TempDir())
	first, err := openToken(d)
	if err != nil || len(first) < 20 {
		t.Fatalf("token %q: %v", first, err)
	}
	if second, err := openToken(d); err != nil || second != first {
		t.Errorf("the second start made another token: %v", err)
	}
	if info, err := os.Stat(d.file(tokenFile)); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%s: %v %v, want 0600", tokenFile, info.Mode(), err)
	}
}

func TestGCPercent(t *testing.T) {
	for _, c := range []struct {
		live uint64
		want int
	}{{0, 100}, {64 << 20, 100}, {288 << 20, 63}, {512 << 20, 25}, {8 << 30, 25}} {
		if got := gcPercent(c.live); got != c.want {
			t.Errorf("live heap %d MiB: GOGC %d, want %d", c.live>>20, got, c.want)
		}
	}
}

// TestDataDirOnAFullDisk: a daemon starts on a disk that another program filled while there was none, down to the last
// inode, and says where it listens.
func TestDataDirOnAFullDisk(t *testing.T) {
	disk := t.TempDir()
	if err := unix.Mount("tmpfs", disk, "tmpfs", 0, "size=256k,nr_inodes=16"); err != nil {
		t.Skipf("this needs a file system of its own: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(disk, 0); err != nil {
			t.Errorf("unmount: %v", err)
		}
	})
	path := filepath.Join(disk, "data")
	d := open(t, path)
	if err := d.announce(Endpoints{API: "https://127.0.0.1:1"}); err != nil {
		t.Fatal(err)
	}
	d.release()
	var full error
	for i := 0; full == nil; i++ {
		full = os.WriteFile(filepath.Join(disk, fmt.Sprint("filler", i)), make([]byte, 64<<10), 0o600)
	}
	if !noRoom(full) {
		t.Fatal(full)
	}
	d = open(t, path)
	if err := d.announce(Endpoints{API: "https://127.0.0.1:2"}); err != nil {
		t.Fatal(err)
	}
	if e, err := ReadEndpoints(path); err != nil || e.API != "https://127.0.0.1:2" {
		t.Fatalf("%+v, %v, want where the second daemon listens", e, err)
	}
	err := d.write(kubeconfigFile, 0o600, make([]byte, 8192), false)
	s := &server{cfg: Config{Log: slog.New(slog.DiscardHandler)}}
	if !noRoom(err) || s.withoutRoom(err, "") != nil {
		t.Fatalf("%v, want that there is no room, which doesn't end a start", err)
	}
}
