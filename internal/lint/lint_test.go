package lint

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "operatord.io/operatord"

// goPackage is what the rules need to know of one directory of Go files.
type goPackage struct {
	path     string            // below the module
	imports  map[string]string // import path → one file that has it; non-test files only
	doc      int               // length of the package comment
	testOnly bool
}

func root(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "go.mod")); err != nil {
		t.Fatal(err)
	}
	return dir
}

// packages parses every package of every module of the repository; own tells which are the main module's.
func packages(t *testing.T) (own, others []goPackage) {
	t.Helper()
	top := root(t)
	dirs := map[string][]string{}
	nested := map[string]bool{}
	err := filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() {
			if path != top && (strings.HasPrefix(name, ".") || name == "testdata" || name == "bin" || name == "dist") {
				return fs.SkipDir
			}
			return nil
		}
		rel, err := filepath.Rel(top, path)
		if err != nil {
			return err
		}
		switch {
		case name == "go.mod" && filepath.Dir(rel) != ".":
			nested[filepath.Dir(rel)] = true
		case strings.HasSuffix(name, ".go"):
			dirs[filepath.Dir(rel)] = append(dirs[filepath.Dir(rel)], path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for dir, files := range dirs {
		p := parse(t, dir, files)
		if slices.ContainsFunc(slices.Collect(keys(nested)), func(m string) bool { return matches(dir, m+"/...") }) {
			others = append(others, p)
		} else {
			own = append(own, p)
		}
	}
	if len(own) < 5 {
		t.Fatalf("only %d packages found below %s: the walk is broken", len(own), top)
	}
	byPath := func(a, b goPackage) int { return strings.Compare(a.path, b.path) }
	slices.SortFunc(own, byPath)
	slices.SortFunc(others, byPath)
	return own, others
}

func keys[V any](m map[string]V) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

func parse(t *testing.T, dir string, files []string) goPackage {
	t.Helper()
	p := goPackage{path: dir, imports: map[string]string{}, testOnly: true}
	for _, file := range files {
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly|parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		p.doc = max(p.doc, docLength(f))
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		p.testOnly = false
		for _, spec := range f.Imports {
			path, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				t.Fatal(err)
			}
			p.imports[path] = filepath.Base(file)
		}
	}
	return p
}

func docLength(f *ast.File) int {
	if f.Doc == nil {
		return 0
	}
	return len(strings.TrimSpace(f.Doc.Text()))
}

func TestImports(t *testing.T) {
	own, others := packages(t)
	for _, p := range own {
		if p.testOnly {
			continue
		}
		r := ruleOf(p.path)
		if r == nil {
			t.Errorf("%s: no rule names it. Give it a row in internal/lint/rules_test.go and in docs/design.md, with the reason.", p.path)
			continue
		}
		for path, file := range p.imports {
			if complaint := r.check(path); complaint != "" {
				t.Errorf("%s/%s imports %s, %s.\n\tWhy not: %s.", p.path, file, path, complaint, r.why)
			}
		}
	}
	for _, p := range others {
		for path, file := range p.imports {
			if matches(path, module+"/internal/...") || matches(path, module+"/cmd/...") || matches(path, module+"/api/...") {
				t.Errorf("%s/%s imports %s.\n\tWhy not: modules beside the main one see operatord as its users do, over HTTP and the command line.", p.path, file, path)
			}
		}
	}
}

func ruleOf(path string) *rule {
	for i := range rules {
		if matches(path, rules[i].path) {
			return &rules[i]
		}
	}
	return nil
}

// check says what is wrong with an import, or "".
func (r *rule) check(path string) string {
	hasPrefix := func(p string) bool { return path == p || strings.HasPrefix(path, strings.TrimSuffix(p, "/")+"/") }
	if rest, ok := strings.CutPrefix(path, module+"/"); ok {
		if rest == "internal/metrics" && r.mayUseMetrics() {
			return ""
		}
		if slices.ContainsFunc(r.ours, func(pattern string) bool { return matches(rest, pattern) }) {
			return ""
		}
		return fmt.Sprintf("but of ours it may import only %v", r.ours)
	}
	if slices.ContainsFunc(r.never, hasPrefix) {
		return "which it never may"
	}
	if first, _, _ := strings.Cut(path, "/"); !strings.Contains(first, ".") {
		if r.std != nil && !slices.Contains(r.std, path) {
			return fmt.Sprintf("but of the standard library it may import only %v", r.std)
		}
		return ""
	}
	if r.bare {
		return "but it may import nothing from outside the standard library"
	}
	if r.only != nil && !slices.ContainsFunc(r.only, hasPrefix) {
		return fmt.Sprintf("but from outside it may import only %v", r.only)
	}
	return ""
}

// The checker itself: each row is an import that must be refused, or must not.
func TestCheckRefuses(t *testing.T) {
	for _, c := range []struct {
		pkg, imports string
		refused      bool
	}{
		{"internal/storage", "k8s.io/apimachinery/pkg/types", true},
		{"internal/storage", "sync", false},
		{"internal/storage", module + "/internal/metrics", true},
		{"internal/storage/bolt", module + "/internal/storage/etcd", true},
		{"internal/storage/bolt", "go.etcd.io/bbolt", false},
		{"internal/resource/crd", "net/http", true},
		{"internal/apiserver/rest", "net/http", true},
		{"internal/apiserver/rest", "net/http/httptest", true},
		{"internal/apiserver/rest", module + "/internal/controller", true},
		{"internal/apiserver/rest", module + "/internal/metrics", false},
		{"internal/operator/cluster", module + "/internal/operator/pod", true},
		{"internal/operator/cluster", module + "/internal/storage", true},
		{"internal/operator/cluster", module + "/internal/process", true},
		{"internal/operator/pod", module + "/internal/process", false},
		{"internal/process/shim", "os", true},
		{"internal/process/shim", "syscall", false},
		{"internal/process", "k8s.io/api/core/v1", true},
		{"cmd/operatord", module + "/internal/apiserver", true},
		{"api/v1alpha1", module + "/internal/resource", true},
	} {
		r := ruleOf(c.pkg)
		if r == nil {
			t.Errorf("no rule for %s", c.pkg)
			continue
		}
		if got := r.check(c.imports); (got != "") != c.refused {
			t.Errorf("%s importing %s: %q, refused should be %v", c.pkg, c.imports, got, c.refused)
		}
	}
}

func TestEveryPackageSaysWhatItIsFor(t *testing.T) {
	own, others := packages(t)
	for _, p := range append(own, others...) {
		if p.doc < 40 {
			t.Errorf("%s has no package comment worth the name. Say what it is for, how data goes through it and what it promises.", p.path)
		}
	}
}

// forbidden words, split so that this file does not hold them itself.
var forbidden = []struct {
	word, why string
	code      bool // in Go files only
}{
	{"/" + "work/", "a path of one machine", false},
	{"golang" + ".org/goproxy", "a registry's host", false},
	{"proxy." + "golang.org", "a registry's host: the go command knows where modules come from", false},
	{"deb." + "debian.org", "a registry's host: apt knows where packages come from", false},
	{"registry." + "npmjs.org", "a registry's host: npm knows where packages come from", false},
	{"sub" + "agent", "the product's text speaks of the product alone", false},
	{".lib" + "rary/", "a path of one machine", false},
	{"TO" + "DO", "open ends belong in an issue, not in the tree", true},
	{"FIX" + "ME", "open ends belong in an issue, not in the tree", true},
}

func TestForbiddenWords(t *testing.T) {
	top := root(t)
	cmd := exec.Command("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	cmd.Dir = top
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("git ls-files: %v", err)
	}
	files := 0
	for name := range strings.SplitSeq(strings.Trim(string(out), "\x00"), "\x00") {
		data, err := os.ReadFile(filepath.Join(top, name))
		if err != nil || bytes.IndexByte(data[:min(len(data), 8000)], 0) >= 0 {
			continue // deleted meanwhile, or binary
		}
		files++
		for _, f := range forbidden {
			if f.code && filepath.Ext(name) != ".go" {
				continue // texts of others may be quoted in data
			}
			if at := bytes.Index(data, []byte(f.word)); at >= 0 {
				line := 1 + bytes.Count(data[:at], []byte("\n"))
				t.Errorf("%s:%d holds %q: %s", name, line, f.word, f.why)
			}
		}
	}
	if files < 10 {
		t.Fatalf("only %d files looked at: the listing is broken", files)
	}
}
