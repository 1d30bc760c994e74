package table

import (
	"encoding/json"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// NewScale makes a Writer of autoscaling/v1 Scales, whatever kind they are a subresource of.
func NewScale(opts Options) *Writer { return &Writer{columns: scale{}, opts: opts} }

// scale are the columns of a Scale.
type scale struct{}

func (scale) Definitions() []metav1.TableColumnDefinition {
	docs := metav1.ObjectMeta{}.SwaggerDoc()
	return []metav1.TableColumnDefinition{
		{Name: "Name", Type: "string", Description: docs["name"]},
		{Name: "Desired", Type: "integer", Description: autoscalingv1.ScaleSpec{}.SwaggerDoc()["replicas"]},
		{Name: "Available", Type: "integer", Description: autoscalingv1.ScaleStatus{}.SwaggerDoc()["replicas"]},
		{Name: "Age", Type: "string", Description: docs["creationTimestamp"]},
	}
}

func (scale) Cells(obj []byte) ([]any, error) {
	var s autoscalingv1.Scale
	if err := json.Unmarshal(obj, &s); err != nil {
		return nil, err
	}
	return []any{s.Name, int64(s.Spec.Replicas), int64(s.Status.Replicas), age(s.CreationTimestamp)}, nil
}
