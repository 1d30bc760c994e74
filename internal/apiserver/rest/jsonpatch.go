package rest

import (
	"errors"
	"fmt"
	"strings"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	kjson "sigs.k8s.io/json"
)

// maxOperations is how many operations a JSON patch may have.
const maxOperations = 10000

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
		if len(patch) > maxOperations {
			return nil, nil, apierrors.NewRequestEntityTooLargeError(
				fmt.Sprintf("The allowed maximum operations in a JSON patch is %d, got %d", maxOperations, len(patch)))
		}
		if after, err = patch.Apply(before); err != nil {
			return nil, nil, unprocessable(err.Error())
		}
		return after, problems, nil
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
