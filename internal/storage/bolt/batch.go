package bolt

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"time"

	"operatord.io/operatord/internal/storage"
)

// A batch on disk starts at a multiple of 4 KiB and is padded with zeros to the next one:
//
//	0  magic            4 bytes
//	4  format           uint32
//	8  sequence         uint64   one more than the batch before; never reset
//	16 first revision   uint64   record i has this + i
//	24 records          uint32
//	28 body length      uint32
//	32 time             int64    nanoseconds since 1970
//	40 store            16 bytes the store's id; not in format 1, where what follows stands 16 bytes earlier
//	56 body check       uint32   CRC-32C
//	60 header check     uint32   CRC-32C of the 60 bytes before
//	64 body
//
// Batches of format 1 are read as long as they are there, and never written. All integers are little-endian. Both checks are seeded with the store's random salt and the
// sequence, so that a batch of another store, a recycled one, or bytes that a client made to look like
// one do not verify.
//
// A record of the body:
//
//	flags               1 byte   what follows
//	key                 uvarint length, bytes
//	value               if put:    uvarint revision that created the key, uvarint length, bytes
//	previous value      if prev:   uvarint revision, uvarint revision that created it, uvarint length, bytes;
//	                    if bare:   length 0
//	note                uvarint length, bytes
const (
	blockSize   = 4096
	headerSize  = 64
	headerSize1 = 48 // of format 1
	batchMagic  = "opdb"
	batchFormat = 2
)

const (
	flagPut  = 1 << iota // the write made a value; otherwise it deleted the key
	flagPrev             // the key had a value before
	flagBare             // which is left out, and there is only its revision: history ends here
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// salt is random and of one store only.
type salt [16]byte

// seed starts a check for what belongs to a sequence.
func (s salt) seed(sequence uint64) uint32 {
	var b [24]byte
	copy(b[:], s[:])
	binary.LittleEndian.PutUint64(b[16:], sequence)
	return crc32.Checksum(b[:], castagnoli)
}

// storeID is random and of one store only. Unlike the salt it can be read where nothing verifies.
type storeID [16]byte

func (id storeID) String() string { return hex.EncodeToString(id[:]) }

// header is what is known of a batch without reading its body.
type header struct {
	before   int // the body, bytes
	sequence uint64
	first    storage.Rev
	count    int
	length   int // of the body, bytes
	time     time.Time
	check    uint32 // of the body
}

// last is the revision of the batch's last record.
func (h header) last() storage.Rev { return h.first + storage.Rev(h.count) - 1 }

// size is what the batch takes on disk.
func (h header) size() int64 { return aligned(h.before + h.length) }

func aligned(n int) int64 { return int64(n+blockSize-1) &^ (blockSize - 1) }

// record is one write in the log.
type record struct {
	event storage.Event
	note  string
	bare  bool // the previous value is left out
}

// batchBuffer builds a batch. Its bytes are reused.
type batchBuffer struct {
	buf   []byte
	first storage.Rev
	count int
}

func (b *batchBuffer) reset(first storage.Rev) {
	if cap(b.buf) > 2*batchBytes {
		b.buf = nil // one huge batch must not hold its memory for good
	}
	b.buf = append(b.buf[:0], make([]byte, headerSize)...)
	b.first, b.count = first, 0
}

// size is what the batch takes so far, padded what it takes on disk.
func (b *batchBuffer) size() int64   { return int64(len(b.buf)) }
func (b *batchBuffer) padded() int64 { return aligned(len(b.buf)) }

// recordSize is what a write takes at most.
func recordSize(w storage.Write, old *storage.KV) int64 {
	n := 1 + len(w.Key) + len(w.Value) + len(w.Note) + 8*binary.MaxVarintLen64
	if old != nil {
		n += len(old.Value)
	}
	return int64(n)
}

// The length of a batch fits into its header: it has one write more than batchBytes at most, of the largest
// value in the place of another.
const _ = uint32(batchBytes + 2*storage.MaxValue + storage.MaxKey + storage.MaxNote + 1024)

// add appends the record of the next revision.
func (b *batchBuffer) add(r record) {
	var flags byte
	if r.event.New != nil {
		flags |= flagPut
	}
	if r.event.Old != nil {
		flags |= flagPrev
	}
	if r.bare {
		flags |= flagBare
	}
	b.buf = append(b.buf, flags)
	b.buf = appendString(b.buf, r.event.Key())
	if kv := r.event.New; kv != nil {
		b.buf = binary.AppendUvarint(b.buf, uint64(kv.Created))
		b.buf = appendBytes(b.buf, kv.Value)
	}
	if kv := r.event.Old; kv != nil {
		b.buf = binary.AppendUvarint(b.buf, uint64(kv.Rev))
		b.buf = binary.AppendUvarint(b.buf, uint64(kv.Created))
		if r.bare {
			b.buf = appendBytes(b.buf, nil)
		} else {
			b.buf = appendBytes(b.buf, kv.Value)
		}
	}
	b.buf = appendString(b.buf, r.note)
	b.count++
}

// seal gives the finished bytes, padded to whole blocks, good until the next reset. It may be called again.
func (b *batchBuffer) seal(id storeID, s salt, sequence uint64, now time.Time) (header, []byte) {
	h := header{before: headerSize, sequence: sequence, first: b.first, count: b.count, length: len(b.buf) - headerSize, time: now}
	seed := s.seed(sequence)
	h.check = crc32.Update(seed, castagnoli, b.buf[headerSize:])
	p := b.buf[:headerSize]
	copy(p, batchMagic)
	le := binary.LittleEndian
	le.PutUint32(p[4:], batchFormat)
	le.PutUint64(p[8:], h.sequence)
	le.PutUint64(p[16:], uint64(h.first))
	le.PutUint32(p[24:], uint32(h.count))
	le.PutUint32(p[28:], uint32(h.length))
	le.PutUint64(p[32:], uint64(h.time.UnixNano()))
	copy(p[40:], id[:])
	le.PutUint32(p[56:], h.check)
	le.PutUint32(p[60:], crc32.Update(seed, castagnoli, p[:60]))
	n := len(b.buf)
	padded := append(b.buf, make([]byte, int(aligned(n))-n)...)
	b.buf = padded[:n]
	return h, padded
}

// parseHeader reads a header; ok is false unless it verifies. p has headerSize bytes, or ends earlier with its file.
func parseHeader(p []byte, s salt) (h header, ok bool) {
	le := binary.LittleEndian
	if len(p) < headerSize1 || string(p[:4]) != batchMagic {
		return header{}, false
	}
	before := headerSize
	switch format := le.Uint32(p[4:]); {
	case format == 1:
		before = headerSize1
	case format != batchFormat || len(p) < headerSize:
		return header{}, false
	}
	checks := before - 8
	h = header{
		before:   before,
		sequence: le.Uint64(p[8:]),
		first:    storage.Rev(le.Uint64(p[16:])),
		count:    int(le.Uint32(p[24:])),
		length:   int(le.Uint32(p[28:])),
		time:     time.Unix(0, int64(le.Uint64(p[32:]))),
		check:    le.Uint32(p[checks:]),
	}
	if crc32.Update(s.seed(h.sequence), castagnoli, p[:checks+4]) != le.Uint32(p[checks+4:]) || h.count == 0 {
		return header{}, false
	}
	return h, true
}

// foreign says why what a segment begins with, and isn't zero, is not a header of this store's; nil if all that can be
// said is that it does not verify.
func foreign(p []byte, id storeID) error {
	if len(p) < headerSize || string(p[:4]) != batchMagic {
		return nil
	}
	if format := binary.LittleEndian.Uint32(p[4:]); format > batchFormat {
		return &FormatError{Format: format, Known: batchFormat}
	} else if other := storeID(p[40:56]); format == batchFormat && other != id {
		return fmt.Errorf("it is of store %s, and the present beside it of store %s", other, id)
	}
	return nil
}

// verifies says whether body is the one that the header was written with.
func (h header) verifies(body []byte, s salt) bool {
	return len(body) == h.length && crc32.Update(s.seed(h.sequence), castagnoli, body) == h.check
}

var errRecord = errors.New("a record of a batch that verifies makes no sense")

// records calls yield for each record of a verified body whose key wanted accepts (nil: all) until it
// returns false. Every string and value is an allocation of its own.
func (h header) records(body []byte, wanted func(key []byte) bool, yield func(record) bool) error {
	d := decoder{body}
	for i := range h.count {
		rev := h.first + storage.Rev(i)
		flags := d.byte()
		key := d.bytes()
		var created, prevRev, prevCreated uint64
		var value, prev []byte
		if flags&flagPut != 0 {
			created, value = d.uvarint(), d.bytes()
		}
		if flags&flagPrev != 0 {
			prevRev, prevCreated, prev = d.uvarint(), d.uvarint(), d.bytes()
		}
		note := d.bytes()
		if d.rest == nil || flags&(flagPut|flagPrev) == 0 || flags > flagPut|flagPrev|flagBare || flags&flagBare != 0 && (flags&flagPrev == 0 || len(prev) > 0) {
			return fmt.Errorf("%w: sequence %d, record %d", errRecord, h.sequence, i)
		}
		if wanted != nil && !wanted(key) {
			continue
		}
		name := string(key)
		r := record{event: storage.Event{Rev: rev}, note: string(note), bare: flags&flagBare != 0}
		if flags&flagPut != 0 {
			r.event.New = &storage.KV{Key: name, Value: own(value), Rev: rev, Created: storage.Rev(created)}
		}
		if flags&flagPrev != 0 {
			r.event.Old = &storage.KV{Key: name, Value: own(prev), Rev: storage.Rev(prevRev), Created: storage.Rev(prevCreated)}
		}
		if !yield(r) {
			return nil
		}
	}
	if len(d.rest) != 0 {
		return fmt.Errorf("%w: sequence %d has %d bytes more than its records", errRecord, h.sequence, len(d.rest))
	}
	return nil
}

// own copies a value, never to nil: a value may be empty.
func own(b []byte) []byte {
	c := make([]byte, len(b))
	copy(c, b)
	return c
}

func appendBytes(dst, b []byte) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(b))), b...)
}

func appendString(dst []byte, s string) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(s))), s...)
}

// decoder takes a body apart. What goes wrong leaves rest nil for good.
type decoder struct{ rest []byte }

func (d *decoder) byte() byte {
	if len(d.rest) == 0 {
		d.rest = nil
		return 0
	}
	b := d.rest[0]
	d.rest = d.rest[1:]
	return b
}

func (d *decoder) uvarint() uint64 {
	n, used := binary.Uvarint(d.rest)
	if used <= 0 {
		d.rest = nil
		return 0
	}
	d.rest = d.rest[used:]
	return n
}

func (d *decoder) bytes() []byte {
	n := d.uvarint()
	if d.rest == nil || n > uint64(len(d.rest)) {
		d.rest = nil
		return nil
	}
	b := d.rest[:n]
	d.rest = d.rest[n:]
	return b
}
