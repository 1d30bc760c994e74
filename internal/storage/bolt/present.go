package bolt

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"iter"
	"os"
	"path/filepath"
	"runtime/debug"

	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"
	"golang.org/x/sys/unix"

	"operatord.io/operatord/internal/storage"
)

// present is the bbolt file: each present key by name, and how far into the log it reaches. Its value
// is: revision uint64, revision that created the key uint64, the value, CRC-32C over all that and the
// key, seeded with the salt. Integers are little-endian.
type present struct {
	db      *bbolt.DB
	path    string
	salt    salt
	reserve reserve
	empty   []byte // what a bbolt file begins with

	// doubtful: a write failed in a way that leaves open what the file holds. It is written anew then.
	doubtful bool
}

var (
	presentBucket = []byte("present")
	metaBucket    = []byte("meta")
)

// meta is what the file says of itself. It is written in the same transaction as the keys that it
// speaks of.
type meta struct {
	format    uint32 // as read; the newest is written
	id        storeID
	salt      salt
	sequence  uint64      // of the newest batch that is in the file
	rev       storage.Rev // of the newest event that is in the file
	compacted storage.Rev
	keys      uint64
	sum       uint64 // of all keys' checks
}

const metaKey = "meta" // one value: either all of it is of one transaction, or none verifies

// presentFormat is the file's. Format 1 was the same, beside a log whose batches had no id: it is raised before
// the first batch that has one is written, so that a program that can't read those refuses the store.
const presentFormat = 2

func (m meta) encode() []byte {
	b := binary.LittleEndian.AppendUint32(nil, presentFormat)
	b = append(b, m.id[:]...)
	b = append(b, m.salt[:]...)
	for _, n := range []uint64{m.sequence, uint64(m.rev), uint64(m.compacted), m.keys, m.sum} {
		b = binary.LittleEndian.AppendUint64(b, n)
	}
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

const metaSize = 4 + 16 + 16 + 5*8 + 4

func decodeMeta(b []byte) (m meta, err error) {
	le := binary.LittleEndian
	if len(b) >= 4 && le.Uint32(b) > presentFormat {
		return m, &FormatError{Format: le.Uint32(b), Known: presentFormat}
	}
	if len(b) != metaSize || crc32.Checksum(b[:metaSize-4], castagnoli) != le.Uint32(b[metaSize-4:]) {
		return m, errors.New("its description of itself does not verify")
	}
	if m.format = le.Uint32(b); m.format == 0 {
		return m, errors.New("there is no format 0")
	}
	copy(m.id[:], b[4:])
	copy(m.salt[:], b[20:])
	n := func(i int) uint64 { return le.Uint64(b[36+8*i:]) }
	m.sequence, m.rev, m.compacted, m.keys, m.sum = n(0), storage.Rev(n(1)), storage.Rev(n(2)), n(3), n(4)
	return m, nil
}

// check is what ends a stored value.
func (s salt) check(key, stored []byte) uint32 {
	return crc32.Update(crc32.Update(s.seed(0), castagnoli, key), castagnoli, stored)
}

func (s salt) encode(kv *storage.KV) []byte {
	b := make([]byte, 0, 16+len(kv.Value)+4)
	b = binary.LittleEndian.AppendUint64(b, uint64(kv.Rev))
	b = binary.LittleEndian.AppendUint64(b, uint64(kv.Created))
	b = append(b, kv.Value...)
	return binary.LittleEndian.AppendUint32(b, s.check([]byte(kv.Key), b))
}

func (s salt) decode(key, stored []byte) (*storage.KV, uint32, bool) {
	n := len(stored) - 4
	if n < 16 {
		return nil, 0, false
	}
	le := binary.LittleEndian
	check := le.Uint32(stored[n:])
	if s.check(key, stored[:n]) != check {
		return nil, 0, false
	}
	return &storage.KV{
		Key: string(key), Value: own(stored[16:n]),
		Rev: storage.Rev(le.Uint64(stored)), Created: storage.Rev(le.Uint64(stored[8:])),
	}, check, true
}

// boltOptions: the free list is written with each (large, rare) transaction, so that opening needs no
// scan; the map starts large, since growing it would wait for readers.
func boltOptions() *bbolt.Options {
	return &bbolt.Options{
		Timeout:         lockWait,
		FreelistType:    bbolt.FreelistMapType,
		InitialMmapSize: 1 << 30,
	}
}

// firstRev is the revision of an empty store. It isn't 0: a revision is also what clients send back,
// and to them 0 says "any".
const firstRev = 1

// createPresent makes the file of a new store.
func createPresent(path string) error {
	m := meta{rev: firstRev}
	if _, err := rand.Read(m.id[:]); err != nil {
		return err
	}
	if _, err := rand.Read(m.salt[:]); err != nil {
		return err
	}
	_, err := fillPresent(path, m, func(func(*storage.KV) bool) {})
	return err
}

// fillPresent writes a file with these keys, which are in order. It gets its name, and takes the place of
// what has it, when it is complete and durable; until then there is at most an unfinished file beside
// it.
func fillPresent(path string, m meta, keys iter.Seq[*storage.KV]) (meta, error) {
	unfinished := path + unfinishedSuffix
	if err := removeUnfinished(path); err != nil {
		return m, err
	}
	o := boltOptions()
	o.NoSync = true // once, at the end
	db, err := bbolt.Open(unfinished, 0o600, o)
	if err != nil {
		return m, err
	}
	db.AllocSize = allocSize
	m, err = fill(db, m, keys)
	if err == nil {
		err = db.Sync()
	}
	if err := errors.Join(err, db.Close()); err != nil {
		return m, errors.Join(err, os.Remove(unfinished))
	}
	if err := os.Rename(unfinished, path); err != nil {
		return m, err
	}
	return m, syncDir(filepath.Dir(path))
}

const unfinishedSuffix = ".new"

func removeUnfinished(path string) error {
	if err := os.Remove(path + unfinishedSuffix); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// transaction is how many bytes of keys and values fill writes at a time.
const transaction = 32 << 20

// fill writes keys in transactions of some size, the last of them with the meta. Each but the first writes
// the last pages of the one before again, elsewhere.
func fill(db *bbolt.DB, m meta, keys iter.Seq[*storage.KV]) (meta, error) {
	m.keys, m.sum = 0, 0
	next, stop := iter.Pull(keys)
	defer stop()
	for more := true; more; {
		err := db.Update(func(tx *bbolt.Tx) error {
			b, err := tx.CreateBucketIfNotExists(presentBucket)
			if err != nil {
				return err
			}
			b.FillPercent = 0.9 // keys come in order
			for size := 0; size < transaction; {
				var kv *storage.KV
				if kv, more = next(); !more {
					break
				}
				stored := m.salt.encode(kv)
				size += len(kv.Key) + len(stored)
				m.keys++
				m.sum += uint64(binary.LittleEndian.Uint32(stored[len(stored)-4:]))
				if err := b.Put([]byte(kv.Key), stored); err != nil {
					return err
				}
			}
			mb, err := tx.CreateBucketIfNotExists(metaBucket)
			if err != nil {
				return err
			}
			return mb.Put([]byte(metaKey), m.encode())
		})
		if err != nil {
			return m, err
		}
	}
	return m, nil
}

// allocSize is how much more than it must the file grows by.
const allocSize = 1 << 20

// openPresent opens the file and reads all of it.
func openPresent(path string, room func(dir string, n int64) error) (p *present, m meta, keys []*storage.KV, err error) {
	if err := warm(path); err != nil {
		return nil, m, nil, fmt.Errorf("storage: read %s: %w", path, err)
	}
	p = &present{path: path, reserve: reserve{path: filepath.Join(filepath.Dir(path), "reserve"), room: room}}
	if p.empty, err = emptyBolt(); err != nil {
		return nil, m, nil, err
	}
	err = p.guard(func() error {
		db, f, err := openBolt(path)
		if err != nil {
			return err
		}
		p.db = db
		p.reserve.hold(f)
		m, keys, err = p.load()
		p.dropPages()
		return err
	})
	if err != nil {
		if p.db != nil {
			err = errors.Join(err, p.db.Close())
		}
		return nil, m, nil, err
	}
	return p, m, keys, nil
}

// openBolt opens a file that must be there and hold something: bbolt would make a store of an empty one.
func openBolt(path string) (*bbolt.DB, *os.File, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, nil, fmt.Errorf("storage: open %s: %w", path, err)
	}
	if least := int64(4 * os.Getpagesize()); info.Size() < least {
		return nil, nil, &CorruptError{Path: path, Offset: info.Size(), What: fmt.Sprintf("it ends here, and even an empty store has %d bytes", least)}
	}
	var f *os.File
	o := boltOptions()
	o.OpenFile = func(name string, flag int, mode os.FileMode) (*os.File, error) {
		opened, err := os.OpenFile(name, flag, mode)
		f = opened
		return opened, err
	}
	db, err := bbolt.Open(path, 0o600, o)
	for _, damage := range []error{berrors.ErrInvalid, berrors.ErrChecksum, berrors.ErrVersionMismatch} {
		if errors.Is(err, damage) {
			return nil, nil, &CorruptError{Path: path, Offset: -1, What: err.Error()}
		}
	}
	if err != nil {
		return nil, nil, fmt.Errorf("storage: open %s: %w", path, err)
	}
	db.AllocSize = 0 // not a byte more than it must, to fit into MaxSize
	return db, f, nil
}

func (p *present) load() (m meta, keys []*storage.KV, err error) {
	damaged := func(what string) error { return &CorruptError{Path: p.path, Offset: -1, What: what} }
	err = p.db.View(func(tx *bbolt.Tx) error {
		mb, pb := tx.Bucket(metaBucket), tx.Bucket(presentBucket)
		if mb == nil || pb == nil {
			return damaged("it is a bbolt file, but not a store's")
		}
		if m, err = decodeMeta(mb.Get([]byte(metaKey))); err != nil {
			if newer := (*FormatError)(nil); errors.As(err, &newer) {
				newer.Path = p.path
				return newer
			}
			return damaged(err.Error())
		}
		p.salt = m.salt
		keys = make([]*storage.KV, 0, min(m.keys, 1<<20))
		sum := uint64(0)
		err := pb.ForEach(func(k, v []byte) error {
			kv, check, ok := p.salt.decode(k, v)
			if !ok {
				return damaged(fmt.Sprintf("the value of key %q does not verify", k))
			}
			sum += uint64(check)
			keys = append(keys, kv)
			return nil
		})
		if err != nil {
			return err
		}
		if uint64(len(keys)) != m.keys || sum != m.sum {
			return damaged(fmt.Sprintf("it holds %d keys with sum %x, and says that it holds %d with sum %x", len(keys), sum, m.keys, m.sum))
		}
		return nil
	})
	return m, keys, err
}

// write brings the file to a view: the changed keys, in order, and what they make of m. It returns
// the meta as written. m's sequence, rev and compacted are the view's already.
//
// It is berrors.ErrMaxSizeReached where the file has no room for that: it is as it was then.
func (p *present) write(v storage.View, changed []string, m meta) (meta, error) {
	p.db.MaxSize = int(p.reserve.held.Load())
	err := p.guard(func() error {
		return p.db.Update(func(tx *bbolt.Tx) error {
			b := tx.Bucket(presentBucket)
			for _, name := range changed {
				key := []byte(name)
				if old := b.Get(key); old != nil {
					_, check, ok := p.salt.decode(key, old)
					if !ok {
						return &CorruptError{Path: p.path, Offset: -1, What: fmt.Sprintf("the value of key %q does not verify", name)}
					}
					m.sum -= uint64(check)
					m.keys--
				}
				kv, ok := v.Get(name)
				if !ok {
					if err := b.Delete(key); err != nil {
						return err
					}
					continue
				}
				stored := p.salt.encode(kv)
				m.sum += uint64(binary.LittleEndian.Uint32(stored[len(stored)-4:]))
				m.keys++
				if err := b.Put(key, stored); err != nil {
					return err
				}
			}
			return tx.Bucket(metaBucket).Put([]byte(metaKey), m.encode())
		})
	})
	p.dropPages()
	return m, err
}

// free is how many bytes of the file the next write can use. Known is false until one was done since open.
func (p *present) free() (n int64, known bool) {
	size := int64(0)
	err := p.guard(func() error {
		return p.db.View(func(tx *bbolt.Tx) error {
			size = tx.Size()
			return nil
		})
	})
	stats := p.db.Stats()
	return p.reserve.held.Load() - size + int64(stats.FreeAlloc), err == nil && stats.TxStats.GetWrite() > 0
}

// rewrite puts a new file with what is in a view, made of the reserve, in the place of this one. Where
// anything goes wrong before, the old file stays.
func (p *present) rewrite(v storage.View, m meta) (meta, error) {
	err := p.guard(func() error {
		if err := p.reserve.begin(p.empty); err != nil {
			return err
		}
		db, f, err := openBolt(p.reserve.path)
		if err != nil {
			return err
		}
		db.MaxSize = int(p.reserve.size.Load())
		db.NoSync = true // once, at the end
		m, err = fill(db, m, v.Range("", ""))
		if err == nil {
			err = db.Sync()
		}
		if err != nil {
			return errors.Join(err, db.Close())
		}
		db.NoSync = false
		if err := p.reserve.exchange(p.path, f); err != nil {
			return errors.Join(err, db.Close())
		}
		old := p.db
		p.db, p.doubtful = db, false
		// It is the reserve now, and what closing it has to say doesn't matter.
		_ = old.Close()
		return p.reserve.settle()
	})
	p.dropPages()
	return m, err
}

func (p *present) close() error { return errors.Join(p.db.Close(), p.reserve.close()) }

// dropPages gives back the memory of the pages that were read through the map: they are in the page
// cache, or can be read again. It advises about the pages in use and no others: near a power of two the file ends
// behind bbolt's map, where there is other memory, which the advice would clear.
func (p *present) dropPages() {
	// Where it isn't taken, the process only looks larger than it is.
	_ = p.guard(func() error {
		return p.db.View(func(tx *bbolt.Tx) error { // the map holds a transaction's pages, and stays while it is open
			_, _, _ = unix.Syscall(unix.SYS_MADVISE, p.db.Info().Data, uintptr(tx.Size()), unix.MADV_DONTNEED)
			return nil
		})
	})
}

// guard turns bbolt's panics over damaged pages, and faults of its map, into errors.
func (p *present) guard(f func() error) (err error) {
	faults := debug.SetPanicOnFault(true)
	defer debug.SetPanicOnFault(faults)
	defer func() {
		if r := recover(); r != nil {
			err = &CorruptError{Path: p.path, Offset: -1, What: fmt.Sprint(r)}
		}
	}()
	return f()
}
