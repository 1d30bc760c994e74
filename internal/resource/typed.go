package resource

import (
	"fmt"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
)

// Typed decodes and encodes objects of Go types that a scheme knows. It is safe for concurrent use.
type Typed struct {
	scheme *runtime.Scheme
	infos  map[string]runtime.SerializerInfo // by media type
	codecs serializer.CodecFactory
}

// NewTyped makes the codecs of a scheme, which must not change any more.
func NewTyped(scheme *runtime.Scheme) *Typed {
	t := &Typed{scheme: scheme, codecs: serializer.NewCodecFactory(scheme), infos: map[string]runtime.SerializerInfo{}}
	for _, info := range t.codecs.SupportedMediaTypes() {
		t.infos[info.MediaType] = info
	}
	return t
}

// NewScales makes the codecs of autoscaling/v1 Scale alone.
func NewScales() *Typed {
	scheme := runtime.NewScheme()
	scheme.AddKnownTypes(autoscalingv1.SchemeGroupVersion, &autoscalingv1.Scale{})
	return NewTyped(scheme)
}

// Decode reads a request body that should be a gvk, fills in defaults and converts it to the version hub.
// into is an empty object in that version. Errors are API errors.
func (t *Typed) Decode(data []byte, opts DecodeOptions, gvk schema.GroupVersionKind, hub schema.GroupVersion, into Object) (Object, []string, error) {
	mediaType := opts.MediaType
	if mediaType == "" {
		mediaType = runtime.ContentTypeJSON
	}
	info, ok := t.infos[mediaType]
	if !ok {
		return nil, nil, UnsupportedMediaType()
	}
	plain := info.Serializer
	if opts.Strict() && info.StrictSerializer != nil {
		plain = info.StrictSerializer
	}
	defaults := &gvk
	if opts.Patched {
		defaults = nil
	}
	out, found, err := t.codecs.DecoderToVersion(plain, hub).Decode(data, defaults, into)
	var problems []error
	if err != nil {
		strict, isStrict := runtime.AsStrictDecodingError(err)
		if !isStrict || out == nil {
			return nil, nil, opts.Failed(gvk.Kind, found, data, err)
		}
		problems = strict.Errors()
	}
	obj, ok := out.(Object)
	if !ok || opts.Patched && out != runtime.Object(into) {
		return nil, nil, opts.Failed(gvk.Kind, found, data, fmt.Errorf("unable to decode %s into %T", found, into))
	}
	warnings, err := opts.Problems(gvk.Kind, found, data, problems)
	if err != nil {
		return nil, nil, err
	}
	if err := opts.CheckVersion(found.GroupVersion(), gvk.GroupVersion()); err != nil {
		return nil, nil, err
	}
	return obj, warnings, nil
}

// DecodeScale reads the body of a request for a scale subresource.
func (t *Typed) DecodeScale(data []byte, opts DecodeOptions) (Object, []string, error) {
	gv := autoscalingv1.SchemeGroupVersion
	obj, warnings, err := t.Decode(data, opts, gv.WithKind("Scale"), gv, &autoscalingv1.Scale{})
	if err != nil {
		return nil, nil, err
	}
	obj.GetObjectKind().SetGroupVersionKind(gv.WithKind("Scale"))
	return obj, warnings, nil
}

// Protobuf writes an object of a version's own type as a Kubernetes protobuf envelope.
func (t *Typed) Protobuf(obj runtime.Object) ([]byte, error) {
	return runtime.Encode(t.infos[runtime.ContentTypeProtobuf].Serializer, obj)
}
