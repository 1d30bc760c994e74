package storagetest

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"operatord.io/operatord/internal/storage"
)

// model is what a store must hold: its events, and so its state at every revision.
type model struct {
	events []storage.Event
}

// record notes what a commit answered.
func (m *model) record(w storage.Write, kv *storage.KV) {
	e := storage.Event{Rev: kv.Rev, Old: m.at(kv.Rev)[w.Key]}
	if w.Value != nil {
		e.New = kv
	}
	m.events = append(m.events, e)
}

// at is the state at a revision.
func (m *model) at(r storage.Rev) map[string]*storage.KV {
	state := make(map[string]*storage.KV)
	for _, e := range m.events {
		if e.Rev > r {
			break
		}
		if e.New != nil {
			state[e.New.Key] = e.New
		} else {
			delete(state, e.Old.Key)
		}
	}
	return state
}

// after are the events of a prefix after a revision.
func (m *model) after(prefix string, r storage.Rev) []storage.Event {
	var events []storage.Event
	for _, e := range m.events {
		if e.Rev > r && strings.HasPrefix(e.Key(), prefix) {
			events = append(events, e)
		}
	}
	return events
}

// check compares a view with the state at its revision: every key by Range and by Get, and their count.
func (m *model) check(v storage.View, prefix string) error {
	state := m.at(v.Rev())
	var want []string
	for _, key := range slices.Sorted(maps.Keys(state)) {
		if strings.HasPrefix(key, prefix) {
			want = append(want, key)
		}
	}
	var got []string
	for kv := range v.Range(prefix, "") {
		got = append(got, kv.Key)
		if !same(kv, state[kv.Key]) {
			return fmt.Errorf("at %d Range gives %s, want %s", v.Rev(), show(kv), show(state[kv.Key]))
		}
		if direct, ok := v.Get(kv.Key); !ok || !same(direct, kv) {
			return fmt.Errorf("at %d Get gives %s and Range %s", v.Rev(), show(direct), show(kv))
		}
	}
	if !slices.Equal(got, want) {
		return fmt.Errorf("at %d Range(%q) gives %q, want %q", v.Rev(), prefix, got, want)
	}
	if n := v.Count(prefix); n != len(want) {
		return fmt.Errorf("at %d Count(%q) is %d, want %d", v.Rev(), prefix, n, len(want))
	}
	return nil
}

func same(a, b *storage.KV) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Key == b.Key && bytes.Equal(a.Value, b.Value) && a.Rev == b.Rev && a.Created == b.Created
}

func sameEvent(a, b storage.Event) bool {
	return a.Rev == b.Rev && same(a.Old, b.Old) && same(a.New, b.New)
}

func wantEvents(t *testing.T, what string, got, want []storage.Event) {
	t.Helper()
	if !slices.EqualFunc(got, want, sameEvent) {
		t.Fatalf("%s: events\n%swant\n%s", what, describe(got), describe(want))
	}
}

func show(kv *storage.KV) string {
	if kv == nil {
		return "nothing"
	}
	return fmt.Sprintf("%s=%.20q at %d, created at %d", kv.Key, kv.Value, kv.Rev, kv.Created)
}

func describe(events []storage.Event) string {
	var b strings.Builder
	for _, e := range events {
		fmt.Fprintf(&b, "  %d: %s -> %s\n", e.Rev, show(e.Old), show(e.New))
	}
	return b.String()
}
