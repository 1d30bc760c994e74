package shim

import (
	"bytes"
	"reflect"
	"testing"
	"time"
)

func TestTimestamp(t *testing.T) {
	for _, at := range []time.Time{
		time.Unix(0, 0), time.Date(2024, 2, 29, 23, 59, 59, 999999000, time.UTC), time.Date(2026, 12, 31, 0, 0, 0, 1000, time.UTC),
		time.Date(2100, 3, 1, 12, 34, 56, 0, time.UTC), time.Date(2000, 2, 29, 1, 2, 3, 0, time.UTC),
	} {
		var b [27]byte
		timestamp(&b, at.Unix(), at.Nanosecond()/1000)
		if want := at.UTC().Format("2006-01-02T15:04:05.000000Z"); string(b[:]) != want {
			t.Errorf("%s, want %s", b, want)
		}
	}
}

func TestSpecComesBack(t *testing.T) {
	s := &Spec{
		Format: SpecFormat, Owner: "default/x", Revision: "12", Note: "3", Args: []string{"a", "", "b c\nd\\n"},
		Env: []string{"X=1\n2", "EMPTY="}, Dir: "/", User: "1", Group: "2", Groups: []string{"3", "4"},
		Cgroup: "/c", Boot: "b", Epoch: "e", LogBytes: "5", LogFiles: "6",
	}
	r := s.Record()
	if got := ParseSpec(r.Format()); !reflect.DeepEqual(got, s) {
		t.Errorf("%+v, want %+v", got, s)
	}
}

// FuzzRecord: no input panics, and what was read and written again reads the same.
func FuzzRecord(f *testing.F) {
	f.Add([]byte("key value\nother a\\nb\\\\c\n\n\nhalf"))
	f.Add([]byte("k \\\n\\"))
	f.Fuzz(func(t *testing.T, data []byte) {
		r := ParseRecord(data)
		once := r.Format()
		again := ParseRecord(once)
		if !bytes.Equal(once, again.Format()) || len(r.Fields) != len(again.Fields) {
			t.Errorf("%q becomes %q becomes %q", data, once, again.Format())
		}
	})
}
