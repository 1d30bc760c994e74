package bolt

import (
	"bytes"
	"reflect"
	"testing"
	"time"

	"operatord.io/operatord/internal/storage"
)

func sample() []record {
	a := &storage.KV{Key: "/a", Value: []byte("one"), Rev: 7, Created: 7}
	a2 := &storage.KV{Key: "/a", Value: []byte{}, Rev: 8, Created: 7}
	return []record{
		{event: storage.Event{Rev: 7, New: a}, note: "alice created it"},
		{event: storage.Event{Rev: 8, Old: a, New: a2}},
		{event: storage.Event{Rev: 9, Old: a2}, note: "gone"},
	}
}

func sealed(s salt, sequence uint64) (header, []byte) {
	var b batchBuffer
	b.reset(7)
	for _, r := range sample() {
		b.add(r)
	}
	h, p := b.seal(storeID{1}, s, sequence, time.Unix(1, 2))
	return h, bytes.Clone(p)
}

func TestBatchRoundTrip(t *testing.T) {
	s := salt{1, 2, 3}
	written, p := sealed(s, 42)
	if len(p)%blockSize != 0 {
		t.Fatalf("%d bytes are not whole blocks", len(p))
	}
	h, ok := parseHeader(p, s)
	if !ok || !reflect.DeepEqual(h, written) || h.last() != 9 || h.size() != int64(len(p)) {
		t.Fatalf("header %+v, %v, want %+v", h, ok, written)
	}
	body := p[headerSize : headerSize+h.length]
	if !h.verifies(body, s) {
		t.Fatal("the body does not verify")
	}
	var got []record
	if err := h.records(body, nil, func(r record) bool { got = append(got, r); return true }); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, sample()) {
		t.Fatalf("records %+v, want %+v", got, sample())
	}
	clear(p)
	if !reflect.DeepEqual(got, sample()) {
		t.Fatal("a value is a slice of the buffer")
	}
}

// TestBatchChecks: only the very bytes, in the very store, at the very place in its sequence, verify.
func TestBatchChecks(t *testing.T) {
	s := salt{1, 2, 3}
	_, p := sealed(s, 42)
	h, _ := parseHeader(p, s)
	if _, ok := parseHeader(p, salt{1, 2, 4}); ok {
		t.Error("a header of another store verifies")
	}
	for i := range headerSize + h.length {
		q := bytes.Clone(p)
		q[i] ^= 0x10
		got, ok := parseHeader(q, s)
		if ok && got.verifies(q[headerSize:headerSize+got.length], s) {
			t.Errorf("it verifies with byte %d changed", i)
		}
	}
	moved := h
	moved.sequence++
	if moved.verifies(p[headerSize:headerSize+h.length], s) {
		t.Error("the body verifies at another sequence")
	}
}

func FuzzRecords(f *testing.F) {
	_, p := sealed(salt{}, 1)
	h, _ := parseHeader(p, salt{})
	f.Add(p[headerSize:headerSize+h.length], 3)
	f.Add([]byte{flagPut, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01}, 1)
	f.Fuzz(func(t *testing.T, body []byte, count int) {
		h := header{first: 1, count: count, length: len(body)}
		n := 0
		err := h.records(body, nil, func(r record) bool {
			n++
			if r.event.Old == nil && r.event.New == nil {
				t.Fatal("an event of nothing")
			}
			return true
		})
		if err == nil && n != max(count, 0) {
			t.Fatalf("%d records and no error, want %d", n, count)
		}
	})
}

func FuzzHeader(f *testing.F) {
	_, p := sealed(salt{}, 1)
	f.Add(p[:headerSize])
	f.Add(make([]byte, headerSize))
	f.Fuzz(func(t *testing.T, p []byte) {
		if h, ok := parseHeader(p, salt{}); ok && (h.count <= 0 || h.length < 0) {
			t.Fatalf("header %+v verifies", h)
		}
	})
}

func FuzzStoredValue(f *testing.F) {
	var s salt
	f.Add([]byte("/a"), s.encode(&storage.KV{Key: "/a", Value: []byte("v"), Rev: 3, Created: 2}))
	f.Add([]byte{}, []byte{})
	f.Fuzz(func(t *testing.T, key, stored []byte) {
		kv, _, ok := s.decode(key, stored)
		if ok && !bytes.Equal(s.encode(kv), stored) {
			t.Fatalf("%+v is not what was stored", kv)
		}
	})
}
