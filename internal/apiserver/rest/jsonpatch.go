package rest

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	kjson "sigs.k8s.io/json"

	"operatord.io/operatord/internal/storage"
)

// maxOperations is how many operations a JSON patch may have.
const maxOperations = 10000

// maxCopied is by how many bytes the copy operations of a JSON patch may make an object grow.
const maxCopied = 3 << 20

// limitCopies sets the library's limit, which is one for the whole program. Only the first call changes anything.
func limitCopies() { atomic.CompareAndSwapInt64(&jsonpatch.AccumulatedCopySizeLimit, 0, maxCopied) }

// checkOperations counts the operations of a JSON patch before any is decoded. What is no list is the decoder's
// to refuse.
func checkOperations(patch []byte) error {
	var ops []json.RawMessage
	if json.Unmarshal(patch, &ops) == nil && len(ops) > maxOperations {
		return apierrors.NewRequestEntityTooLargeError(
			fmt.Sprintf("The allowed maximum operations in a JSON patch is %d, got %d", maxOperations, len(ops)))
	}
	return nil
}

// operationsAtOnce is how many operations run between two looks at the request's time.
const operationsAtOnce = 256

// operate carries out a JSON patch.
func (p *patcher) operate(doc []byte, patch jsonpatch.Patch) (after []byte, err error) {
	for ops := range slices.Chunk(patch, operationsAtOnce) {
		if err := p.ctx.Err(); err != nil {
			return nil, err
		}
		if doc, err = ops.Apply(doc); err != nil {
			return nil, unprocessable(err.Error())
		}
		if len(doc) > maxPatched {
			return nil, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("the patched object would be over the limit of %d bytes", maxPatched))
		}
	}
	return doc, nil
}

// maxPatched is how large an object may be while it is patched, in bytes: what is stored and a body together.
const maxPatched = storage.MaxValue + 3<<20

// operation is what a JSON patch's operation may say, to find what else it says.
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	From  string `json:"from"`
	Value any    `json:"value"`
}

// patchJSON carries out a JSON or merge patch. problems are what a strict reading of the patch found.
func (p *patcher) patchJSON(before []byte) (after []byte, problems []error, err error) {
	strict := p.decoding("").Strict()
	if p.kind == types.JSONPatchType {
		if err := checkOperations(p.patch); err != nil {
			return nil, nil, err
		}
		if strict {
			var ops []operation
			if problems, err = kjson.UnmarshalStrict(p.patch, &ops); err != nil {
				// Clients know this message with the name of kube-apiserver's own type.
				text := strings.ReplaceAll(err.Error(), "rest.operation", "handlers.jsonPatchOp")
				return nil, nil, apierrors.NewBadRequest("error decoding patch: " + text)
			}
			for i, e := range problems {
				problems[i] = fmt.Errorf("json patch %v", e)
			}
		}
		patch, err := jsonpatch.DecodePatch(p.patch)
		if err != nil {
			return nil, nil, apierrors.NewBadRequest(err.Error())
		}
		if err := nestingOf(p.patch).reach(patch).check(len(before)); err != nil {
			return nil, nil, err
		}
		after, err = p.operate(before, patch)
		return after, problems, err
	}
	if err := nestingOf(p.patch).check(len(before)); err != nil {
		return nil, nil, err
	}
	if strict {
		v := map[string]any{}
		if problems, err = kjson.UnmarshalStrict(p.patch, &v); err != nil {
			return nil, nil, apierrors.NewBadRequest(fmt.Sprintf("error decoding patch: %v", err))
		}
	}
	after, err = jsonpatch.MergePatch(before, p.patch)
	switch {
	case errors.Is(err, jsonpatch.ErrBadJSONPatch):
		return nil, nil, apierrors.NewBadRequest(err.Error())
	case err != nil:
		return nil, nil, plain(err.Error())
	}
	return after, problems, nil
}
