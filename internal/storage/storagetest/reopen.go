package storagetest

import (
	"fmt"
	"testing"

	"operatord.io/operatord/internal/storage"
)

func testReopenKeepsEverything(t *testing.T, h Harness) {
	m := model{}
	var last storage.Rev
	for round := range 4 {
		c := open(t, h, Options{})
		v := c.latest()
		if last > 0 && v.Rev() != last {
			t.Fatalf("opened at revision %d, want %d", v.Rev(), last)
		}
		if err := m.check(v, ""); err != nil {
			t.Fatal(err)
		}
		for _, e := range m.events {
			if err := m.check(c.view(storage.Exact(e.Rev)), ""); err != nil {
				t.Fatal(err)
			}
		}
		for i := range 20 {
			w := storage.Write{Key: fmt.Sprintf("/%d", (i+round)%7), Value: fmt.Append(nil, round, i)}
			if kv, ok := c.latest().Get(w.Key); ok {
				w.If = kv.Rev
				if i%5 == 4 {
					w.Value = nil
				}
			}
			kv := c.commit(w)
			if kv.Rev <= last {
				t.Fatalf("revision %d after %d", kv.Rev, last)
			}
			last = kv.Rev
			m.record(w, kv)
		}
		c.close()
	}
}

// testReopenResumesWatches is the promise that a client notices most: a watch goes on from its last
// revision across restarts, without a gap and without a repeat.
func testReopenResumesWatches(t *testing.T, h Harness) {
	m := model{}
	var at storage.Rev
	var got []storage.Event
	for round := range 4 {
		c := open(t, h, Options{Ring: 16})
		if round == 0 {
			at = c.latest().Rev()
		}
		if pending := m.after("/a/", at); len(pending) > 0 { // written before the restart, not yet seen
			got = append(got, c.next(c.watch("/a/", at), len(pending))...)
			at = got[len(got)-1].Rev
		}
		w := c.watch("/a/", at)
		for i := range 40 {
			write := storage.Write{Key: fmt.Sprintf("/a/%d-%d", round, i), Value: []byte("v")}
			if i%2 == 1 {
				write.Key = fmt.Sprintf("/b/%d-%d", round, i)
			}
			m.record(write, c.commit(write))
		}
		seen := c.next(w, 20)[:7] // the rest is lost with the connection
		got = append(got, seen...)
		at = seen[6].Rev
		c.close()
	}
	c := open(t, h, Options{Ring: 16})
	pending := m.after("/a/", at)
	got = append(got, c.next(c.watch("/a/", at), len(pending))...)
	wantEvents(t, "over four restarts", got, m.after("/a/", 0))
}
