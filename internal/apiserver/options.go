package apiserver

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metainternal "k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme"
	internalvalidation "k8s.io/apimachinery/pkg/apis/meta/internalversion/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"operatord.io/operatord/internal/apiserver/rest"
	"operatord.io/operatord/internal/resource"
	"operatord.io/operatord/internal/watchcache"
)

// decodeQuery fills options from the query. Unknown parameters are ignored.
func decodeQuery(query url.Values, into runtime.Object) error {
	if len(query) == 0 {
		return nil
	}
	if err := metainternal.ParameterCodec.DecodeParameters(query, metav1.SchemeGroupVersion, into); err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	return nil
}

func invalidOptions(kind string, errs field.ErrorList) error {
	if len(errs) == 0 {
		return nil
	}
	return apierrors.NewInvalid(schema.GroupKind{Group: metav1.GroupName, Kind: kind}, "", errs)
}

func (x *exchange) getOptions() (metav1.GetOptions, error) {
	var o metav1.GetOptions
	if v, ok := x.query["export"]; ok && len(v) > 0 && v[0] != "false" && v[0] != "0" {
		return o, apierrors.NewBadRequest("the export parameter, deprecated since v1.14, is no longer supported")
	}
	err := decodeQuery(x.query, &o)
	return o, err
}

func (x *exchange) createOptions() (metav1.CreateOptions, error) {
	var o metav1.CreateOptions
	if err := decodeQuery(x.query, &o); err != nil {
		return o, err
	}
	return o, invalidOptions("CreateOptions", validation.ValidateCreateOptions(&o))
}

func (x *exchange) updateOptions() (metav1.UpdateOptions, error) {
	var o metav1.UpdateOptions
	if err := decodeQuery(x.query, &o); err != nil {
		return o, err
	}
	return o, invalidOptions("UpdateOptions", validation.ValidateUpdateOptions(&o))
}

func (x *exchange) patchOptions(pt types.PatchType) (metav1.PatchOptions, error) {
	var o metav1.PatchOptions
	if err := decodeQuery(x.query, &o); err != nil {
		return o, err
	}
	return o, invalidOptions("PatchOptions", validation.ValidatePatchOptions(&o, pt))
}

// deleteOptions are in the body or, when there is none, in the query.
func (x *exchange) deleteOptions() (*metav1.DeleteOptions, error) {
	body, err := x.body()
	if err != nil {
		return nil, err
	}
	o := &metav1.DeleteOptions{}
	if len(body) > 0 {
		media, err := bodyType(x.r)
		if err != nil {
			return nil, err
		}
		if err := x.boundYAML(media, body); err != nil {
			return nil, err
		}
		if err := decodeDeleteOptions(body, media, o); err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
	} else if err := decodeQuery(x.query, o); err != nil {
		return nil, err
	}
	o.IgnoreStoreReadErrorWithClusterBreakingPotential = nil
	return o, invalidOptions("DeleteOptions", validation.ValidateDeleteOptions(o))
}

// decodeDeleteOptions takes DeleteOptions of meta.k8s.io/v1 and of v1.
func decodeDeleteOptions(body []byte, media string, into *metav1.DeleteOptions) error {
	info, ok := runtime.SerializerInfoForMediaType(metainternal.Codecs.SupportedMediaTypes(), media)
	if !ok {
		return unsupportedMediaType(mediaJSON, mediaYAML, mediaProtobuf)
	}
	gvk := schema.GroupVersionKind{Version: "v1", Kind: "DeleteOptions"}
	obj, _, err := metainternal.Codecs.DecoderToVersion(info.Serializer, gvk.GroupVersion()).Decode(body, &gvk, into)
	if err != nil {
		return err
	}
	if obj != runtime.Object(into) {
		return errors.New("decoded object cannot be converted to DeleteOptions")
	}
	into.TypeMeta = metav1.TypeMeta{}
	return nil
}

// listOptions are those of a list, a watch or the deletion of a collection.
func (x *exchange) listOptions(name string) (watchcache.ListOptions, *internalversion.ListOptions, error) {
	var out watchcache.ListOptions
	var o internalversion.ListOptions
	if err := decodeQuery(x.query, &o); err != nil {
		return out, nil, err
	}
	internalversion.SetListOptionsDefaults(&o, true)
	if err := invalidOptions("ListOptions", internalvalidation.ValidateListOptions(&o, true)); err != nil {
		return out, nil, err
	}
	sel, err := fieldSelector(x.kind, x.version, o.FieldSelector)
	if err != nil {
		return out, nil, err
	}
	if name != "" {
		if sel == nil || sel.Empty() {
			sel = fields.OneTermEqualSelector("metadata.name", name)
		} else if given, ok := sel.RequiresExactMatch("metadata.name"); !ok || given != name {
			return out, nil, apierrors.NewBadRequest("fieldSelector metadata.name doesn't match requested name")
		}
	}
	out = watchcache.ListOptions{
		Version:           x.version,
		Namespace:         x.namespace(),
		Label:             o.LabelSelector,
		Field:             sel,
		ResourceVersion:   o.ResourceVersion,
		Match:             string(o.ResourceVersionMatch),
		Limit:             o.Limit,
		Continue:          o.Continue,
		SendInitialEvents: o.SendInitialEvents,
		AllowBookmarks:    o.AllowWatchBookmarks,
	}
	switch t := o.TimeoutSeconds; {
	case t == nil:
	case *t < 0:
		out.Timeout = time.Nanosecond // over at once
	default:
		out.Timeout = time.Duration(*t) * time.Second
	}
	return out, &o, nil
}

// fieldSelector checks a selector's fields against those that the version has.
func fieldSelector(k *resource.Kind, v *resource.Version, sel fields.Selector) (fields.Selector, error) {
	if sel == nil || sel.Empty() {
		return nil, nil
	}
	convert := v.Fields.Convert
	if convert == nil {
		convert = func(label, value string) (string, string, error) {
			if label == "metadata.name" || label == "metadata.namespace" {
				return label, value, nil
			}
			for _, n := range v.Fields.Names {
				if n == label {
					return label, value, nil
				}
			}
			if k.Custom || len(v.Fields.Names) > 0 {
				return "", "", fmt.Errorf("field label not supported: %s", label)
			}
			return "", "", fmt.Errorf("%q is not a known field selector: only %q, %q", label, "metadata.name", "metadata.namespace")
		}
	}
	// The list converts it: a second time, another version's names would not be known.
	if _, err := sel.Transform(convert); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	return sel, nil
}

// body reads the request's body, up to the limit and until the request's time is over. Memory is taken as bytes
// come, whatever length is announced.
func (x *exchange) body() ([]byte, error) {
	if !x.unread() {
		return nil, nil
	}
	if x.r.ContentLength > maxBody {
		return nil, errBodyTooLarge()
	}
	until, ok := x.ctx.Deadline()
	if !ok {
		until = time.Now().Add(x.s.cfg.Timeout)
	}
	timed := x.rc.SetReadDeadline(until) == nil
	data := bytes.NewBuffer(make([]byte, 0, min(max(x.r.ContentLength, 0)+bytes.MinRead, 64<<10)))
	_, err := data.ReadFrom(io.LimitReader(x.r.Body, maxBody+1))
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, apierrors.NewTimeoutError("request did not complete within the allotted timeout", 0)
	case err != nil:
		return nil, apierrors.NewBadRequest(fmt.Sprintf("the request body could not be read: %v", err))
	case data.Len() > maxBody:
		return nil, errBodyTooLarge()
	}
	if timed {
		x.rc.SetReadDeadline(time.Time{})
	}
	x.read = true
	return data.Bytes(), nil
}

// unread tells whether there is a body that hasn't been read to its end.
func (x *exchange) unread() bool {
	return !x.read && x.r.Body != nil && x.r.Body != http.NoBody && x.r.ContentLength != 0
}

const (
	// leftover is how much of a body that nobody reads is taken from the connection, in bytes, and leftoverTime
	// for how long, so that the connection can be used again. Most of it came with the header.
	leftover     = 64 << 10
	leftoverTime = 50 * time.Millisecond
)

// skipBody sees to it that the answer doesn't wait for what is left of the body: net/http would read on before it
// sends the header, and again before it closes the connection. (HTTP/2 ends the stream by itself.)
func (x *exchange) skipBody() {
	if x.r.ProtoMajor != 1 || !x.unread() {
		return
	}
	if x.r.ContentLength <= leftover && x.r.Header.Get("Expect") == "" && x.rc.SetReadDeadline(time.Now().Add(leftoverTime)) == nil {
		n, err := io.Copy(io.Discard, io.LimitReader(x.r.Body, leftover+1))
		if err == nil && n <= leftover {
			x.read = true
			x.rc.SetReadDeadline(time.Time{})
			return
		}
	}
	x.w.Header().Set("Connection", "close")
	x.rc.SetReadDeadline(time.Now())
}

func errBodyTooLarge() error {
	return apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("limit is %d", maxBody))
}

// typedBody is a body with the type that its sender says it has.
func (x *exchange) typedBody() (rest.Body, error) {
	media, err := bodyType(x.r)
	if err != nil {
		return rest.Body{}, err
	}
	if media == mediaProtobuf && x.kind.Custom {
		return rest.Body{}, unsupportedMediaType(mediaJSON, mediaYAML)
	}
	data, err := x.body()
	if err != nil {
		return rest.Body{}, err
	}
	return rest.Body{Data: data, MediaType: media}, x.boundYAML(media, data)
}
