package apiserver

import (
	"bytes"
	"fmt"

	"go.yaml.in/yaml/v3"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// freeYAML is what may be decoded as YAML without a turn, in bytes.
	freeYAML = 64 << 10
	// yamlTurns is how many larger bodies may be decoded at once: a YAML decoder makes a node of some 150
	// bytes of every two bytes of "[a,a,a".
	yamlTurns = 2
)

// boundYAML makes sure that decoding a body takes memory in proportion to the limit of a body: every body must
// pass it before a YAML decoder sees it.
func (x *exchange) boundYAML(media string, body []byte) error {
	if media != mediaYAML && media != string(types.ApplyYAMLPatchType) {
		return nil
	}
	if len(body) > freeYAML {
		if err := x.takeTurn(); err != nil {
			return err
		}
	}
	return checkYAML(body, maxBody)
}

// takeTurn waits until a large YAML body may be decoded, and keeps that turn until the request is over.
func (x *exchange) takeTurn() error {
	select {
	case x.s.yaml <- struct{}{}:
		x.finally(func() { <-x.s.yaml })
		return nil
	case <-x.ctx.Done():
		return x.ctx.Err()
	}
}

// checkYAML refuses YAML whose aliases would make it larger than the limit of a body, or nest it deeper than JSON
// may be. It looks at each node once, however often aliases repeat it.
func checkYAML(body []byte, limit int64) error {
	if bytes.IndexByte(body, '*') < 0 || bytes.IndexByte(body, '&') < 0 {
		return nil
	}
	var document yaml.Node
	if err := yaml.Unmarshal(body, &document); err != nil {
		return apierrors.NewBadRequest(fmt.Sprintf("error converting YAML to JSON: %v", err))
	}
	scale := scale{limit: limit, known: map[*yaml.Node]weight{}}
	w := scale.weigh(&document)
	switch {
	case int64(len(body))+w.repeated > limit:
		return errBodyTooLarge()
	case w.depth > maxDepth:
		return apierrors.NewBadRequest("error converting YAML to JSON: exceeded max depth")
	}
	return nil
}

// maxDepth is how deep JSON may be nested for the JSON decoders.
const maxDepth = 10000

// weight is what a node becomes when its aliases are replaced by what they stand for.
type weight struct {
	bytes    int64
	repeated int64 // the part of bytes that aliases add
	depth    int
}

// scale weighs nodes. Sums stop just above the limit.
type scale struct {
	limit int64
	known map[*yaml.Node]weight // of anchored nodes; nothing while one is being weighed
}

func (s *scale) weigh(n *yaml.Node) weight {
	if n.Kind == yaml.AliasNode {
		w := s.weigh(n.Alias)
		w.repeated = w.bytes
		return w
	}
	if n.Anchor != "" {
		if w, ok := s.known[n]; ok {
			return w
		}
		s.known[n] = weight{} // an anchor inside itself is the decoder's to refuse
	}
	w := weight{bytes: int64(len(n.Value)) + 1}
	for _, c := range n.Content {
		in := s.weigh(c)
		w.bytes = min(w.bytes+in.bytes, s.limit+1)
		w.repeated = min(w.repeated+in.repeated, s.limit+1)
		w.depth = max(w.depth, in.depth)
	}
	w.depth++
	if n.Anchor != "" {
		s.known[n] = w
	}
	return w
}
