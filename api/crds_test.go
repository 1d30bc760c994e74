package api

import (
	"context"
	"io/fs"
	"strings"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/install"
	extv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	crdvalidation "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"sigs.k8s.io/yaml"
)

// read gives one generated CRD in its internal form, defaulted.
func read(t *testing.T, file string) *apiextensions.CustomResourceDefinition {
	t.Helper()
	data, err := CRDs.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var crd extv1.CustomResourceDefinition
	if err := yaml.UnmarshalStrict(data, &crd); err != nil {
		t.Fatal(err)
	}
	extv1.SetObjectDefaults_CustomResourceDefinition(&crd)
	crd.Status.StoredVersions = []string{crd.Spec.Versions[0].Name}
	scheme := runtime.NewScheme()
	install.Install(scheme)
	var internal apiextensions.CustomResourceDefinition
	if err := scheme.Convert(&crd, &internal, nil); err != nil {
		t.Fatal(err)
	}
	return &internal
}

func TestCRDsAreValid(t *testing.T) {
	files, err := fs.Glob(CRDs, "crds/*.yaml")
	if err != nil || len(files) < 2 {
		t.Fatalf("files %v, %v", files, err)
	}
	for _, file := range files {
		crd := read(t, file)
		if errs := crdvalidation.ValidateCustomResourceDefinition(context.Background(), crd); len(errs) > 0 {
			t.Errorf("%s: %v", file, errs.ToAggregate())
		}
	}
}

// checker validates objects of one kind as the API server does.
type checker struct {
	structural *schema.Structural
	schema     validation.SchemaValidator
	cel        *cel.Validator
}

func newChecker(t *testing.T, file string) *checker {
	t.Helper()
	crd := read(t, file)
	props := crd.Spec.Validation
	if props == nil {
		props = crd.Spec.Versions[0].Schema
	}
	structural, err := schema.NewStructural(props.OpenAPIV3Schema)
	if err != nil {
		t.Fatal(err)
	}
	sv, _, err := validation.NewSchemaValidator(props.OpenAPIV3Schema)
	if err != nil {
		t.Fatal(err)
	}
	return &checker{structural, sv, cel.NewValidator(structural, true, celconfig.PerCallLimit)}
}

func (c *checker) parse(t *testing.T, text string) any {
	t.Helper()
	var obj any
	if err := yaml.Unmarshal([]byte(text), &obj); err != nil {
		t.Fatal(err)
	}
	defaulting.Default(obj, c.structural)
	return obj
}

// refusal is why obj may not be created, or may not follow old; empty when it may.
func (c *checker) refusal(t *testing.T, old, obj string) string {
	t.Helper()
	value := c.parse(t, obj)
	errs := validation.ValidateCustomResource(nil, value, c.schema)
	var before any
	if old != "" {
		before = c.parse(t, old)
	}
	more, _ := c.cel.Validate(context.Background(), field.NewPath(""), c.structural, value, before, celconfig.RuntimeCELCostBudget)
	if errs = append(errs, more...); len(errs) == 0 {
		return ""
	}
	return errs.ToAggregate().Error()
}

func TestClusterRules(t *testing.T) {
	c := newChecker(t, "crds/operatord.io_clusters.yaml")
	const meta = "metadata: {name: demo}\n"
	for _, tc := range []struct{ name, old, obj, refused string }{
		{name: "three members", obj: meta + "spec: {members: 3}"},
		{name: "no member at all", obj: meta + "spec: {members: 0}"},
		{name: "a negative number", obj: meta + "spec: {members: -1}", refused: "spec.members"},
		{name: "as many as the Node takes", obj: meta + "spec: {members: 4096}"},
		{name: "one more", obj: meta + "spec: {members: 4097}", refused: "spec.members in body should be less than or equal to 4096"},
		{name: "no number", obj: meta + "spec: {}", refused: "spec.members"},
		{name: "no spec", obj: meta, refused: "spec"},
		{name: "a name that can't be a label", obj: "metadata: {name: " + strings.Repeat("x", 64) + "}\nspec: {members: 1}", refused: "at most 63"},
		{name: "a template", obj: meta + "spec: {members: 1, template: {spec: {containers: [{name: x}]}}}"},
		{name: "a template that is no object", obj: meta + "spec: {members: 1, template: [x]}", refused: "spec.template"},
		{name: "scaled", old: meta + "spec: {members: 3, restoreFrom: b}", obj: meta + "spec: {members: 5, restoreFrom: b}"},
		{name: "restoreFrom written out as its default", old: meta + "spec: {members: 3}", obj: meta + `spec: {members: 3, restoreFrom: ""}`},
		{name: "restoreFrom set later", old: meta + "spec: {members: 3}", obj: meta + "spec: {members: 3, restoreFrom: b}", refused: "never restored over a cluster that runs"},
		{name: "restoreFrom changed", old: meta + "spec: {members: 3, restoreFrom: a}", obj: meta + "spec: {members: 3, restoreFrom: b}", refused: "never restored over a cluster that runs"},
		{name: "restoreFrom cleared", old: meta + "spec: {members: 3, restoreFrom: a}", obj: meta + "spec: {members: 3}", refused: "never restored over a cluster that runs"},
	} {
		t.Run(tc.name, func(t *testing.T) { check(t, c.refusal(t, tc.old, tc.obj), tc.refused) })
	}
}

func TestBackupRules(t *testing.T) {
	c := newChecker(t, "crds/operatord.io_backups.yaml")
	for _, tc := range []struct{ name, old, obj, refused string }{
		{name: "text", obj: "spec: {data: {a.txt: hello}}"},
		{name: "a key that starts with two dots", obj: "spec: {data: {..b: x}}", refused: "nor start with"},
		{name: "text and binary", obj: "spec: {data: {a.txt: hello}, binaryData: {b: aGVsbG8=}}"},
		{name: "binary alone", obj: "spec: {binaryData: {b: aGVsbG8=}}"},
		{name: "no files", obj: "spec: {data: {}}"},
		{name: "a directory", obj: "spec: {path: /srv/backup}"},
		{name: "nothing", obj: "spec: {}", refused: "exactly one"},
		{name: "both", obj: "spec: {path: /srv, data: {a: b}}", refused: "exactly one"},
		{name: "both, binary", obj: "spec: {path: /srv, binaryData: {a: aGVsbG8=}}", refused: "exactly one"},
		{name: "a relative path", obj: "spec: {path: srv/backup}", refused: "spec.path"},
		{name: "an empty path", obj: `spec: {path: ""}`, refused: "spec.path"},
		{name: "one key twice", obj: "spec: {data: {a: x}, binaryData: {a: aGVsbG8=}}", refused: "both in data and in binaryData"},
		{name: "a key with a slash", obj: "spec: {data: {a/b: x}}", refused: "a name must consist of"},
		{name: "a key that is a dot", obj: "spec: {data: {.: x}}", refused: "a name must consist of"},
		{name: "a key that goes up", obj: "spec: {binaryData: {..: aGVsbG8=}}", refused: "a name must consist of"},
		{name: "a long key", obj: "spec: {data: {" + strings.Repeat("k", 254) + ": x}}", refused: "a name must consist of"},
		{name: "what is no base64", obj: "spec: {binaryData: {a: '*'}}", refused: "byte"},
		{name: "unchanged", old: "spec: {data: {a: x}}", obj: "spec: {data: {a: x}}"},
		{name: "changed", old: "spec: {data: {a: x}}", obj: "spec: {data: {a: y}}", refused: "can't be changed"},
		{name: "another path", old: "spec: {path: /a}", obj: "spec: {path: /b}", refused: "can't be changed"},
	} {
		t.Run(tc.name, func(t *testing.T) { check(t, c.refusal(t, tc.old, tc.obj), tc.refused) })
	}
}

func check(t *testing.T, got, want string) {
	t.Helper()
	if want == "" && got != "" {
		t.Errorf("refused: %s", got)
	}
	if want != "" && !strings.Contains(got, want) {
		t.Errorf("refused with %q, want %q", got, want)
	}
}
