package builtin

import (
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"

	"operatord.io/operatord/internal/resource"
	"operatord.io/operatord/internal/resource/resourcetest"
)

var kinds = sync.OnceValue(Kinds)

func kind(t testing.TB, group, name string) *resource.Kind {
	t.Helper()
	for _, k := range kinds() {
		if k.GroupKind == (schema.GroupKind{Group: group, Kind: name}) {
			return k
		}
	}
	t.Fatalf("no kind %s in group %q", name, group)
	return nil
}

func create(t testing.TB, k *resource.Kind, body string) *resourcetest.Object {
	t.Helper()
	o, err := resourcetest.Create(k, body)
	if err != nil {
		t.Fatalf("create %s: %v", body, err)
	}
	return o
}

// fieldOf is what stands at a path of an object, as compact JSON; "" if nothing.
func fieldOf(o *resourcetest.Object, path ...string) string {
	var at any = o.Content()
	for _, name := range path {
		m, ok := at.(map[string]any)
		if !ok {
			return ""
		}
		if at, ok = m[name]; !ok {
			return ""
		}
	}
	data, err := json.Marshal(at)
	if err != nil {
		return err.Error()
	}
	return string(data)
}

func wantField(t testing.TB, o *resourcetest.Object, want string, path ...string) {
	t.Helper()
	if got := fieldOf(o, path...); got != want {
		t.Errorf("%s is %s, want %s", strings.Join(path, "."), got, want)
	}
}

// wantCauses compares a 422's causes, as "field: message".
func wantCauses(t testing.TB, err error, want ...string) {
	t.Helper()
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Code != 422 {
		t.Fatalf("error is %v, want a 422", err)
	}
	var got []string
	for _, c := range status.Status().Details.Causes {
		got = append(got, c.Field+": "+c.Message)
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("causes are\n\t%s\nwant\n\t%s", strings.Join(got, "\n\t"), strings.Join(want, "\n\t"))
	}
}

func set(name string, value any) func(map[string]any) {
	return func(content map[string]any) { content[name] = value }
}

// minimal has a body of each kind that is complete enough to be created.
var minimal = map[string]string{
	"ConfigMap":                             `{metadata: {name: a}, data: {k: v}}`,
	"Event":                                 `{metadata: {name: a}, involvedObject: {kind: Pod, name: p, namespace: default}, reason: R, type: Normal}`,
	"Event.events.k8s.io":                   `{metadata: {name: a}, eventTime: "2020-01-01T00:00:00.000000Z", reportingController: x.y/z, reportingInstance: i, action: A, reason: R, type: Normal, regarding: {kind: Pod, name: p, namespace: default}}`,
	"Namespace":                             `{metadata: {name: a}}`,
	"Node":                                  `{metadata: {name: a}}`,
	"Pod":                                   `{metadata: {name: a}, spec: {containers: [{name: c, image: host}]}}`,
	"Secret":                                `{metadata: {name: a}, stringData: {k: v}}`,
	"ServiceAccount":                        `{metadata: {name: a}}`,
	"Lease.coordination.k8s.io":             `{metadata: {name: a}, spec: {holderIdentity: me}}`,
	"CronJob.batch":                         `{metadata: {name: a}, spec: {schedule: "* * * * *", jobTemplate: {spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: host}]}}}}}}`,
	"Job.batch":                             `{metadata: {name: a}, spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: host}]}}}}`,
	"Role.rbac.authorization.k8s.io":        `{metadata: {name: a}, rules: [{apiGroups: [""], resources: [pods], verbs: [get]}]}`,
	"ClusterRole.rbac.authorization.k8s.io": `{metadata: {name: a}, rules: [{nonResourceURLs: [/x], verbs: [get]}]}`,
	"RoleBinding.rbac.authorization.k8s.io": `{metadata: {name: a}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: r}, subjects: [{kind: User, name: u}, {kind: ServiceAccount, namespace: s, name: a}, {kind: Group, name: g}]}`,
	"ClusterRoleBinding.rbac.authorization.k8s.io": `{metadata: {name: a}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: r}, subjects: [{kind: User, name: u}]}`,
	"Deployment.apps":  workload,
	"ReplicaSet.apps":  workload,
	"StatefulSet.apps": workload,
	"CustomResourceDefinition.apiextensions.k8s.io": `{metadata: {name: widgets.example.com}, spec: {group: example.com, scope: Namespaced, names: {plural: widgets, kind: Widget}, versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]}}`,
}

const workload = `{metadata: {name: a}, spec: {selector: {matchLabels: {app: a}}, template: {metadata: {labels: {app: a}}, spec: {containers: [{name: c, image: host}]}}}}`

// TestEveryKind goes through what all kinds must do.
func TestEveryKind(t *testing.T) {
	for _, k := range kinds() {
		t.Run(k.GroupKind.String(), func(t *testing.T) {
			if k.Plural == "" || k.Singular == "" || k.ListKind != k.Kind+"List" || len(k.Versions) != 1 || k.Custom {
				t.Fatalf("kind is %+v", k)
			}
			v := k.Versions[0]
			o := create(t, k, minimal[k.GroupKind.String()])
			content := o.Content()
			if v == k.Stored && (content["kind"] != k.Kind || content["apiVersion"] != v.GVK.GroupVersion().String()) {
				t.Errorf("stored as %v %v", content["apiVersion"], content["kind"])
			}

			hub, err := o.Hub()
			if err != nil {
				t.Fatal(err)
			}
			if empty := v.Codec.New(); reflect.TypeOf(hub) == reflect.TypeOf(empty) || empty.GetObjectKind().GroupVersionKind() != (schema.GroupVersionKind{}) {
				t.Errorf("hub is a %T, and New makes a %T", hub, empty)
			}
			// Nothing changes by reading and writing, nor by defaulting.
			again := hub.DeepCopyObject().(resource.Object)
			if err := v.Codec.Default(again); err != nil {
				t.Fatal(err)
			}
			before, err1 := v.Codec.Encode(hub)
			after, err2 := v.Codec.Encode(again)
			if err1 != nil || err2 != nil || string(before) != string(after) {
				t.Errorf("defaulting twice: %v %v\n%s\n%s", err1, err2, before, after)
			}
			if err := o.Change("", func(map[string]any) {}); err != nil {
				t.Errorf("a PUT of the same: %v", err)
			}

			// Protobuf says the same.
			packed, err := v.Codec.Protobuf(hub)
			if err != nil {
				t.Fatal(err)
			}
			decoded, warnings, err := v.Codec.Decode(packed, resource.DecodeOptions{MediaType: runtime.ContentTypeProtobuf})
			if err != nil || warnings != nil {
				t.Fatalf("decode protobuf: %v, %v", err, warnings)
			}
			if data, err := v.Codec.Encode(decoded); err != nil || string(data) != string(before) {
				t.Errorf("by way of protobuf: %v\n%s\n%s", err, data, before)
			}

			// A field manager for the kind and each subresource.
			for _, sub := range append(slices.Collect(keys(k.Subresources)), "") {
				if _, err := v.FieldManager(sub); err != nil {
					t.Errorf("field manager of %q: %v", sub, err)
				}
			}

			// A cell for each column.
			cells, err := v.Columns.Cells(before)
			if err != nil || len(cells) != len(v.Columns.Definitions()) {
				t.Errorf("%d cells, %d columns, %v", len(cells), len(v.Columns.Definitions()), err)
			}

			// A value for each selectable field, and the scheme takes each.
			values, err := v.Fields.Values(storedJSON(t, o))
			if err != nil || len(values) != len(v.Fields.Names) || !slices.IsSorted(v.Fields.Names) {
				t.Errorf("fields %v have values %v, %v", v.Fields.Names, values, err)
			}
			for _, name := range v.Fields.Names {
				if _, ok := values[name]; !ok {
					t.Errorf("no value for %s", name)
				}
			}

			// Strategic merge knows the type, and the published document the kind.
			if reflect.TypeOf(v.PatchType).Kind() != reflect.Struct || reflect.TypeOf(v.PatchType).Name() != k.Kind {
				t.Errorf("patch type is %T", v.PatchType)
			}
			doc, ok := OpenAPI(k.Group, v.Name)
			if !ok || !strings.Contains(string(doc), `"kind":"`+k.Kind+`"`) {
				t.Error("no OpenAPI document, or without the kind")
			}
		})
	}
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

func storedJSON(t testing.TB, o *resourcetest.Object) []byte {
	t.Helper()
	v, err := resource.ParseValue(o.Stored)
	if err != nil {
		t.Fatal(err)
	}
	return v.JSON
}

func TestOpenAPIUnknown(t *testing.T) {
	if _, ok := OpenAPI("example.com", "v1"); ok {
		t.Error("there is a document of a group that isn't built in")
	}
}

func TestDecodeRefuses(t *testing.T) {
	codec := kind(t, "", "ConfigMap").Versions[0].Codec
	for _, c := range []struct{ name, body, want string }{
		{"another kind", `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"a"}}`, `Secret in version "v1" cannot be handled as a ConfigMap: converting (v1.Secret) to (core.ConfigMap): unknown conversion`},
		{"another version", `{"apiVersion":"v2","kind":"ConfigMap"}`, `ConfigMap in version "v2" cannot be handled as a ConfigMap: no kind "ConfigMap" is registered for version "v2" in scheme`},
		{"a number for a string", `{"data":{"k":1}}`, `ConfigMap in version "v1" cannot be handled as a ConfigMap: json: cannot unmarshal number into Go struct field ConfigMap.data of type string`},
		{"a list", `[1,2]`, `the object provided is unrecognized (must be of type ConfigMap): couldn't get version/kind; json parse error: json: cannot unmarshal array into Go value of type struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" } (5b312c325d)`},
		{"something behind", `{"metadata":{"name":"a"}} trailing`, `the object provided is unrecognized (must be of type ConfigMap): couldn't get version/kind; json parse error: invalid character 't' after top-level value ({"metadata":{"name":"a"}} trai ...)`},
	} {
		_, _, err := codec.Decode([]byte(c.body), resource.DecodeOptions{})
		if !apierrors.IsBadRequest(err) || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%s:\n\t%v\nwant\n\t%s", c.name, err, c.want)
		}
	}
	if _, _, err := codec.Decode(nil, resource.DecodeOptions{MediaType: "text/plain"}); apierrors.ReasonForError(err) != metav1.StatusReasonUnsupportedMediaType {
		t.Errorf("text/plain: %v", err)
	}
	_, _, err := codec.Decode([]byte(`{"apiVersion":"v1","kind":"Secret"}`), resource.DecodeOptions{Patched: true})
	wantCauses(t, err, `patch: Invalid value: "{\"apiVersion\":\"v1\",\"kind\":\"Secret\"}": converting (v1.Secret) to (core.ConfigMap): unknown conversion`)
}

func TestDecodeStrictness(t *testing.T) {
	codec := kind(t, "", "ConfigMap").Versions[0].Codec
	body := []byte(`{"metadata":{"name":"a","nope":1},"Data":{"k":"v"},"data":{"k":"1","k":"2"}}`)
	want := []string{`unknown field "metadata.nope"`, `unknown field "Data"`, `duplicate field "data.k"`}
	_, warnings, err := codec.Decode(body, resource.DecodeOptions{})
	if err != nil || !slices.Equal(warnings, want) {
		t.Errorf("Warn: %q, %v", warnings, err)
	}
	if _, warnings, err := codec.Decode(body, resource.DecodeOptions{FieldValidation: "Ignore"}); err != nil || warnings != nil {
		t.Errorf("Ignore: %q, %v", warnings, err)
	}
	_, _, err = codec.Decode(body, resource.DecodeOptions{FieldValidation: "Strict"})
	if msg := `ConfigMap in version "v1" cannot be handled as a ConfigMap: strict decoding error: ` + strings.Join(want, ", "); err == nil || err.Error() != msg {
		t.Errorf("Strict: %v, want %s", err, msg)
	}
}

// TestDecodeProtobuf reads what controller-runtime's client sends.
func TestDecodeProtobuf(t *testing.T) {
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Data: map[string]string{"k": "v"}}
	cm.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMap"))
	scheme := NewScheme()
	body, err := runtime.Encode(protobuf.NewSerializer(scheme, scheme), cm)
	if err != nil {
		t.Fatal(err)
	}
	v := kind(t, "", "ConfigMap").Versions[0]
	obj, _, err := v.Codec.Decode(body, resource.DecodeOptions{MediaType: runtime.ContentTypeProtobuf})
	if err != nil {
		t.Fatal(err)
	}
	if data, err := v.Codec.Encode(obj); err != nil || !strings.Contains(string(data), `"data":{"k":"v"}`) {
		t.Errorf("decoded %s, %v", data, err)
	}
	if _, _, err := v.Codec.Decode([]byte("not protobuf"), resource.DecodeOptions{MediaType: runtime.ContentTypeProtobuf}); !apierrors.IsBadRequest(err) {
		t.Errorf("nonsense: %v", err)
	}
}

func TestDecodeYAML(t *testing.T) {
	v := kind(t, "", "ConfigMap").Versions[0]
	obj, _, err := v.Codec.Decode([]byte("metadata:\n  name: a\ndata:\n  k: v\n"), resource.DecodeOptions{MediaType: runtime.ContentTypeYAML})
	if err != nil || obj.GetName() != "a" {
		t.Errorf("%v, %v", obj, err)
	}
}

func TestFieldSelectorTexts(t *testing.T) {
	for _, c := range []struct{ group, kind, label, want string }{
		{"", "Pod", "spec.nope", `field label not supported: spec.nope`},
		{"", "ConfigMap", "data.k", `"data.k" is not a known field selector: only "metadata.name", "metadata.namespace"`},
		{"apps", "Deployment", "spec.replicas", `"spec.replicas" is not a known field selector: only "metadata.name", "metadata.namespace"`},
		{"", "Event", "nope", `field label not supported: nope`},
	} {
		_, _, err := kind(t, c.group, c.kind).Versions[0].Fields.Convert(c.label, "x")
		if err == nil || err.Error() != c.want {
			t.Errorf("%s %s: %v, want %s", c.kind, c.label, err, c.want)
		}
	}
}
