package operator_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"operatord.io/operatord/internal/controller"
	"operatord.io/operatord/internal/operator/garbagecollector"
)

// link makes ConfigMaps with owners, in any shape: "a<b" is a that b owns, with blockOwnerDeletion; "a<-b" without.
func (w *world) link(links ...string) map[string]types.UID {
	w.t.Helper()
	type ref struct {
		owner  string
		blocks bool
	}
	refs, uids := map[string][]ref{}, map[string]types.UID{}
	for _, l := range links {
		child, owner, _ := strings.Cut(l, "<")
		r := ref{strings.TrimPrefix(owner, "-"), !strings.HasPrefix(owner, "-")}
		refs[child] = append(refs[child], r)
		for _, name := range []string{child, r.owner} {
			if uids[name] == "" && name != "" {
				uids[name] = w.makeConfigMap("default", name, nil).UID
			}
		}
	}
	for child, owners := range refs {
		var list []metav1.OwnerReference
		for _, o := range owners {
			if o.owner == "" {
				continue
			}
			list = append(list, metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: o.owner, UID: uids[o.owner], BlockOwnerDeletion: &o.blocks})
		}
		m := w.get(configMaps, "default", child)
		m.SetOwnerReferences(list)
		w.do(w.Update(ctx, m))
	}
	return uids
}

// S90: circles of owners end, whoever of them is deleted in the foreground, and with the collector there or not.
func TestS90CirclesOfOwnersEnd(t *testing.T) {
	for _, c := range []struct {
		name   string
		links  []string
		delete []string // name, or name:policy
		left   []string
	}{
		{"one that owns itself", []string{"a<a"}, []string{"a"}, nil},
		{"one that owns itself and another", []string{"a<a", "b<a"}, []string{"a"}, nil},
		{"two", []string{"a<b", "b<a"}, []string{"a"}, nil},
		{"two, both deleted", []string{"a<b", "b<a"}, []string{"a", "b"}, nil},
		{"two, one way without blocking", []string{"a<b", "b<-a"}, []string{"a", "b"}, nil},
		{"three", []string{"a<c", "b<a", "c<b"}, []string{"a"}, nil},
		{"three, all deleted", []string{"a<c", "b<a", "c<b"}, []string{"a", "b", "c"}, nil},
		{"five, three deleted", []string{"a<e", "b<a", "c<b", "d<c", "e<d"}, []string{"a", "c", "e"}, nil},
		{"two circles that share one", []string{"a<b", "b<a", "b<c", "c<b"}, []string{"a", "b", "c"}, nil},
		{"two circles, one waits for the other", []string{"a<b", "b<a", "c<b", "c<d", "d<c"}, []string{"a", "b", "c", "d"}, nil},
		{"with an owner above", []string{"a<b", "b<a", "a<top"}, []string{"top", "a", "b"}, nil},
		{"with an owner above that stays", []string{"a<b", "b<a", "b<top"}, []string{"a"}, []string{"b", "top"}},
		{"with dependents below", []string{"a<b", "b<a", "x<a", "y<x"}, []string{"a", "b"}, nil},
		{"kept by its circle", []string{"a<b", "b<a", "a<top"}, []string{"top"}, []string{"a", "b"}},
		{"foreground and orphan", []string{"a<b", "b<a"}, []string{"a", "b:Orphan"}, nil},
		{"orphan and foreground", []string{"a<b", "b<a"}, []string{"a:Orphan", "b"}, nil},
		{"both orphan", []string{"a<b", "b<a"}, []string{"a:Orphan", "b:Orphan"}, nil},
		{"itself orphan", []string{"a<a", "b<a"}, []string{"a:Orphan"}, []string{"b"}},
		{"three, one orphan, one in the background", []string{"a<c", "b<a", "c<b"}, []string{"a", "b:Orphan", "c:Background"}, nil},
	} {
		for _, late := range []bool{false, true} {
			t.Run(fmt.Sprint(c.name, ", collected late: ", late), func(t *testing.T) {
				t.Parallel()
				dir := t.TempDir()
				var operators []string
				if !late {
					operators = []string{garbagecollector.Name}
				}
				w := open(t, dir, operators...)
				names := w.link(c.links...)
				for _, d := range c.delete {
					name, policy, ok := strings.Cut(d, ":")
					how := foreground
					if ok {
						how = metav1.DeletionPropagation(policy)
					}
					err := w.Delete(ctx, configMaps, key("default", name), metav1.DeleteOptions{PropagationPolicy: &how})
					if err != nil && !apierrors.IsNotFound(err) {
						t.Fatal(err)
					}
				}
				if late {
					w.stop()
					w = open(t, dir, garbagecollector.Name)
				}
				var left []string
				w.until(fmt.Sprintf("%v to be left", c.left), func() bool {
					w.do(w.set.AtLeast(ctx, ""))
					left = nil
					for item := range w.set.Metadata().OfKind(configMaps) {
						if names[item.Key.Name] != "" {
							left = append(left, item.Key.Name)
						}
					}
					return slices.Equal(left, c.left)
				})
			})
		}
	}
}

// A circle waits for what isn't in it, however far below.
func TestACircleWaitsForItsDependents(t *testing.T) {
	w := open(t, t.TempDir(), garbagecollector.Name)
	w.link("a<b", "b<a", "x<b", "y<x")
	w.merge(configMaps, "default", "y", `{"metadata":{"finalizers":["example.com/hold"]}}`)
	w.delete(configMaps, "default", "a", foreground)
	w.delete(configMaps, "default", "b", foreground)
	w.until("the leaf to be deleted", func() bool { i := w.item(configMaps, "default", "y"); return i != nil && i.Deleting() })
	w.until("the middle to wait", func() bool { i := w.item(configMaps, "default", "x"); return i != nil && i.Deleting() })
	for _, name := range []string{"a", "b", "x"} {
		if !w.there(configMaps, "default", name) {
			t.Errorf("%s went before what it waits for", name)
		}
	}
	w.merge(configMaps, "default", "y", `{"metadata":{"finalizers":null}}`)
	w.untilGone("a", "b", "x", "y")
}

// Any graph of owners, with circles, and any set of deletions at once: all that was deleted goes, all that nothing
// deleted leads to stays, and without orphans what is left is what the model says.
func TestAnyGraphOfOwnersEnds(t *testing.T) {
	w := open(t, t.TempDir(), garbagecollector.Name)
	run := 0
	rapid.Check(t, func(r *rapid.T) {
		run++
		n := rapid.IntRange(1, 6).Draw(r, "objects")
		name := func(i int) string { return fmt.Sprintf("g%d-%d", run, i) }
		objects := make([]controller.Object, n)
		for i := range n {
			c := configMap("default", name(i))
			if err := w.Create(ctx, c); err != nil {
				r.Fatal(err)
			}
			objects[i] = c
		}
		f := family{}
		for i := range n {
			owners := map[string]bool{}
			var refs []metav1.OwnerReference
			for j := range n {
				if rapid.IntRange(0, 2).Draw(r, fmt.Sprint(i, " is owned by ", j)) > 0 {
					continue
				}
				owners[name(j)] = true
				blocks := rapid.Bool().Draw(r, "blocks")
				refs = append(refs, metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: name(j), UID: objects[j].GetUID(), BlockOwnerDeletion: &blocks})
			}
			f[name(i)] = owners
			if refs != nil {
				objects[i].SetOwnerReferences(refs)
				if err := w.Update(ctx, objects[i]); err != nil {
					r.Fatal(err)
				}
			}
		}
		policies := []metav1.DeletionPropagation{background, foreground}
		orphans := rapid.Bool().Draw(r, "with orphans")
		if orphans {
			policies = append(policies, orphan)
		}
		deleted := map[string]bool{}
		for i := range n {
			if rapid.Bool().Draw(r, fmt.Sprint("delete ", i)) {
				how := rapid.SampledFrom(policies).Draw(r, "how")
				if err := w.Delete(ctx, configMaps, key("default", name(i)), metav1.DeleteOptions{PropagationPolicy: &how}); err != nil && !apierrors.IsNotFound(err) {
					r.Fatal(err)
				}
				deleted[name(i)] = true
			}
		}
		reached := f.below(deleted)
		for d := range deleted {
			f.delete(d, background)
		}
		w.until(fmt.Sprintf("%v of %d to end as they should", deleted, n), func() bool {
			w.do(w.set.AtLeast(ctx, ""))
			for i := range n {
				item, there := w.set.Metadata().Get(configMaps, key("default", name(i)))
				_, stays := f[name(i)]
				switch {
				case deleted[name(i)] && there, there && item.Deleting():
					return false
				case !reached[name(i)] && !there:
					r.Fatalf("%s is gone, and nothing deleted leads to it", name(i))
				case !orphans && there != stays:
					return false
				}
			}
			return true
		})
	})
}

// below are the names to which deleted owners lead, and they themselves.
func (f family) below(deleted map[string]bool) map[string]bool {
	reached := map[string]bool{}
	for name := range deleted {
		reached[name] = true
	}
	for again := true; again; {
		again = false
		for child, owners := range f {
			for owner := range owners {
				if reached[owner] && !reached[child] {
					reached[child], again = true, true
				}
			}
		}
	}
	return reached
}
