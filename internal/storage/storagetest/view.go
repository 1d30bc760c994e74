package storagetest

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"operatord.io/operatord/internal/storage"
)

func testViewFreshness(t *testing.T, h Harness) {
	c := open(t, h, Options{})
	empty := c.latest()
	if empty.Rev() == 0 {
		t.Fatal("an empty store is at revision 0, which clients take for no revision")
	}
	if n := empty.Count(""); n != 0 {
		t.Fatalf("an empty store has %d keys", n)
	}
	a := c.put("/a", "1")
	if v := c.view(storage.NotOlder(a.Rev)); v.Rev() < a.Rev {
		t.Fatalf("NotOlder(%d) is at %d", a.Rev, v.Rev())
	}
	if v := c.view(storage.Exact(a.Rev)); v.Rev() != a.Rev {
		t.Fatalf("Exact(%d) is at %d", a.Rev, v.Rev())
	}
	if v := c.view(storage.Exact(empty.Rev())); v.Rev() != empty.Rev() || v.Count("") != 0 {
		t.Fatalf("Exact(%d) is at %d with %d keys", empty.Rev(), v.Rev(), v.Count(""))
	}
	c.view(storage.Any())
	_, err := c.View(c.ctx, storage.Exact(a.Rev+1000))
	wantErr(t, "Exact in the future", err, storage.ErrFuture)

	// NotOlder waits for the revision.
	want := a.Rev + 3
	got := make(chan storage.View, 1)
	go func() {
		v, err := c.View(c.ctx, storage.NotOlder(want))
		if err != nil {
			t.Errorf("NotOlder: %v", err)
		}
		got <- v
	}()
	for {
		select {
		case v := <-got:
			if v != nil && v.Rev() < want {
				t.Fatalf("NotOlder(%d) gave %d", want, v.Rev())
			}
			return
		default:
			c.put("/a", "more")
		}
	}
}

func testViewIsImmutable(t *testing.T, h Harness) {
	c := open(t, h, Options{})
	m := model{}
	write := func(key, value string) {
		w := storage.Write{Key: key, Value: []byte(value)}
		if kv, ok := c.latest().Get(key); ok {
			w.If = kv.Rev
		}
		m.record(w, c.commit(w))
	}
	for i := range 100 {
		write(fmt.Sprintf("/%02d", i), "old")
	}
	before := c.latest()
	seen := 0
	for kv := range before.Range("/", "") { // writes happen while a range is being read
		write(kv.Key, "new")
		seen++
	}
	if seen != 100 {
		t.Fatalf("Range gave %d keys, want 100", seen)
	}
	if err := m.check(before, "/"); err != nil {
		t.Fatal(err)
	}
	if err := m.check(c.latest(), "/"); err != nil {
		t.Fatal(err)
	}
}

func testRange(t *testing.T, h Harness) {
	c := open(t, h, Options{})
	for _, key := range []string{"/a/1", "/a/2", "/a/3", "/ab", "/b/1", "/a", "/a/", "/a/2/x", "\xff\xff", "/a0"} {
		c.put(key, "v")
	}
	v := c.latest()
	for _, test := range []struct {
		prefix, from string
		want         []string
	}{
		{"/a/", "", []string{"/a/", "/a/1", "/a/2", "/a/2/x", "/a/3"}},
		{"/a/", "/a/2", []string{"/a/2", "/a/2/x", "/a/3"}},
		{"/a/", "/a/2\x00", []string{"/a/2/x", "/a/3"}},
		{"/a/", "/0", []string{"/a/", "/a/1", "/a/2", "/a/2/x", "/a/3"}},
		{"/a/", "/b", nil},
		{"/a/2", "", []string{"/a/2", "/a/2/x"}},
		{"/c", "", nil},
		{"\xff", "", []string{"\xff\xff"}},
		{"", "/b", []string{"/b/1", "\xff\xff"}},
		{"", "", []string{"/a", "/a/", "/a/1", "/a/2", "/a/2/x", "/a/3", "/a0", "/ab", "/b/1", "\xff\xff"}},
	} {
		wantKeys(t, fmt.Sprintf("Range(%q, %q)", test.prefix, test.from), collect(v, test.prefix, test.from), test.want...)
		if test.from == "" {
			if n := v.Count(test.prefix); n != len(test.want) {
				t.Fatalf("Count(%q) is %d, want %d", test.prefix, n, len(test.want))
			}
		}
	}
	for kv := range v.Range("/a/", "") {
		if kv.Key != "/a/" {
			t.Fatalf("the first key is %s", kv.Key)
		}
		break // ends the range without harm
	}
}

// testPaging reads pages of one revision while others write and compact up to it.
func testPaging(t *testing.T, h Harness) {
	c := open(t, h, Options{Ring: 16})
	m := model{}
	var want []string
	for i := range 95 {
		key := fmt.Sprintf("/list/%03d", i)
		w := storage.Write{Key: key, Value: []byte("v")}
		m.record(w, c.commit(w))
		want = append(want, key)
	}
	at := c.latest().Rev()
	var got []string
	from := ""
	for page := 0; ; page++ {
		v := c.view(storage.Exact(at))
		if n := v.Count("/list/"); n != 95 {
			t.Fatalf("page %d: Count is %d, want 95", page, n)
		}
		n := 0
		for kv := range v.Range("/list/", from) {
			if n == 10 {
				break
			}
			got = append(got, kv.Key)
			from = kv.Key + "\x00"
			n++
		}
		if n < 10 {
			break
		}
		c.delete(want[page])
		c.put(fmt.Sprintf("/list/%03d-new", page*10), "v")
		c.put(want[90], fmt.Sprint(page))
		if err := c.Compact(c.ctx, at); err != nil {
			t.Fatalf("Compact: %v", err)
		}
	}
	wantKeys(t, "pages", got, want...)
}

// testViewsMatchModel does random writes and looks at every revision, in any order, before and after
// the store was opened again.
func testViewsMatchModel(t *testing.T, h Harness) {
	c := open(t, h, Options{Ring: 32})
	m := model{}
	rapid.Check(t, func(rt *rapid.T) {
		keys := rapid.SampledFrom([]string{"/a", "/a/1", "/a/2", "/b", "/b/1", "/c/x/y"})
		for range rapid.IntRange(1, 20).Draw(rt, "writes") {
			w := storage.Write{Key: keys.Draw(rt, "key"), Value: []byte(rapid.StringN(0, 8, -1).Draw(rt, "value"))}
			if kv, ok := c.latest().Get(w.Key); ok {
				w.If = kv.Rev
				if rapid.Bool().Draw(rt, "delete") {
					w.Value = nil
				}
			}
			kv, err := c.Commit(c.ctx, w)
			if err != nil {
				rt.Fatalf("Commit %+v: %v", w, err)
			}
			m.record(w, kv)
		}
		for range 5 {
			e := rapid.SampledFrom(m.events).Draw(rt, "revision")
			v, err := c.View(c.ctx, storage.Exact(e.Rev))
			if err != nil {
				rt.Fatalf("Exact(%d): %v", e.Rev, err)
			}
			if err := m.check(v, rapid.SampledFrom([]string{"", "/a", "/a/", "/nothing"}).Draw(rt, "prefix")); err != nil {
				rt.Fatal(err)
			}
		}
	})
	if t.Failed() {
		return
	}
	everyRevision := func(c client) {
		t.Helper()
		for _, e := range m.events {
			if err := m.check(c.view(storage.Exact(e.Rev)), ""); err != nil {
				t.Fatal(err)
			}
		}
	}
	everyRevision(c)
	c.close()
	everyRevision(open(t, h, Options{Ring: 32}))
}
