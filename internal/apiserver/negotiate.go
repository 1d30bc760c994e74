package apiserver

import (
	"mime"
	"net/http"
	"strconv"
	"strings"

	"github.com/munnerz/goautoneg"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1beta1 "k8s.io/apimachinery/pkg/apis/meta/v1beta1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

const (
	mediaJSON     = "application/json"
	mediaYAML     = "application/yaml"
	mediaProtobuf = "application/vnd.kubernetes.protobuf"
)

// accepted is the form in which a client takes the answer.
type accepted struct {
	media   string // mediaJSON, mediaYAML or mediaProtobuf
	pretty  bool
	convert schema.GroupVersionKind // of meta.k8s.io; empty for the object itself
}

// offer is what can be answered with.
type offer struct {
	protobuf  bool // the objects have a protobuf form
	transform bool // Table and PartialObjectMetadata are possible
	also      schema.GroupVersionKind
	inOrder   bool // what the client lists first is taken, JSON or not
}

// negotiate picks the form of the answer from the Accept header. JSON is what lies in the store, so it is
// taken whenever the client lists it beside others for the same thing.
func negotiate(r *http.Request, o offer) (accepted, bool) {
	header := r.Header.Get("Accept")
	a := accepted{media: mediaJSON, pretty: pretty(r)}
	switch header {
	case "", "*/*", mediaJSON, mediaJSON + ", */*":
		return a, true
	}
	var found *accepted
	clauses := goautoneg.ParseAccept(header)
	for i := range clauses {
		c := &clauses[i]
		for _, media := range [...]string{mediaJSON, mediaYAML, mediaProtobuf} {
			_, sub, _ := strings.Cut(media, "/")
			if c.Type != "application" && c.Type != "*" || c.SubType != sub && c.SubType != "*" || c.Type == "*" && c.SubType != "*" {
				continue
			}
			got, ok := acceptClause(c.Params, media, a.pretty, o)
			if !ok {
				continue
			}
			if found == nil {
				found = &got
			}
			if !o.inOrder && found.media == mediaProtobuf && got.media == mediaJSON && got.convert == found.convert {
				found = &got
			}
			break
		}
	}
	if found == nil {
		return a, false
	}
	return *found, true
}

func acceptClause(params map[string]string, media string, pretty bool, o offer) (accepted, bool) {
	a := accepted{media: media, pretty: pretty}
	converts := false
	for k, v := range params {
		switch k {
		case "as":
			a.convert.Kind, converts = v, true
		case "g":
			a.convert.Group, converts = v, true
		case "v":
			a.convert.Version, converts = v, true
		case "stream":
			if v != "" && (v != "watch" || media == mediaYAML) {
				return a, false
			}
		case "sv":
			if v != "" && v != "v1" {
				return a, false
			}
		case "pretty":
			a.pretty = a.pretty || v == "1"
		}
	}
	if !converts {
		return a, media != mediaProtobuf || o.protobuf
	}
	if a.convert == o.also {
		return a, media != mediaYAML
	}
	gv := a.convert.GroupVersion()
	if !o.transform || gv != metav1.SchemeGroupVersion && gv != metav1beta1.SchemeGroupVersion {
		return a, false
	}
	switch a.convert.Kind {
	case "Table":
		return a, media != mediaProtobuf
	case "PartialObjectMetadata", "PartialObjectMetadataList":
		return a, true
	}
	return a, false
}

// pretty tells whether a person is reading: by ?pretty=, or because curl, wget or a browser asks.
func pretty(r *http.Request) bool {
	if strings.Contains(r.URL.RawQuery, "pretty") {
		if v := r.URL.Query().Get("pretty"); v != "" {
			p, _ := strconv.ParseBool(v)
			return p
		}
	}
	agent := r.UserAgent()
	return strings.HasPrefix(agent, "curl") || strings.HasPrefix(agent, "Wget") || strings.HasPrefix(agent, "Mozilla/5.0")
}

// errNotAcceptable lists what an endpoint can answer with.
func errNotAcceptable(stream bool) error {
	types := []string{mediaJSON, mediaYAML, mediaProtobuf}
	if stream {
		types = []string{mediaJSON + ";stream=watch", mediaProtobuf + ";stream=watch"}
	}
	return notAcceptable("only the following media types are accepted: " + strings.Join(types, ", "))
}

// bodyType is the media type of the request's body; JSON when the client doesn't say.
func bodyType(r *http.Request) (string, error) {
	given := r.Header.Get("Content-Type")
	switch given {
	case "", mediaJSON:
		return mediaJSON, nil
	}
	media, _, err := mime.ParseMediaType(given)
	if err == nil && (media == mediaJSON || media == mediaYAML || media == mediaProtobuf) {
		return media, nil
	}
	return "", unsupportedMediaType(mediaJSON, mediaYAML, mediaProtobuf)
}
