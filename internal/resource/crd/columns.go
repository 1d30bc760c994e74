package crd

import (
	"context"
	"sync"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/registry/customresource/tableconvertor"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apiserver/pkg/registry/rest"

	"operatord.io/operatord/internal/resource"
)

// columns are a version's additionalPrinterColumns behind Name; Age where it declares none.
type columns struct {
	convertor rest.TableConvertor
	headers   func() []metav1.TableColumnDefinition
}

func newColumns(v *apiextensionsv1.CustomResourceDefinitionVersion) resource.Columns {
	declared := v.AdditionalPrinterColumns
	if len(declared) == 0 {
		declared = []apiextensionsv1.CustomResourceColumnDefinition{{
			Name:        "Age",
			Type:        "date",
			Description: metav1.ObjectMeta{}.SwaggerDoc()["creationTimestamp"],
			JSONPath:    ".metadata.creationTimestamp",
		}}
	}
	// A column whose path can't be read leaves those before it, as upstream prints them.
	convertor, _ := tableconvertor.New(declared)
	c := &columns{convertor: convertor}
	c.headers = sync.OnceValue(func() []metav1.TableColumnDefinition {
		table, err := convertor.ConvertToTable(context.Background(), &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{}}}, nil)
		if err != nil {
			return nil
		}
		return table.ColumnDefinitions
	})
	return c
}

func (c *columns) Definitions() []metav1.TableColumnDefinition { return c.headers() }

func (c *columns) Cells(json []byte) ([]any, error) {
	u := &unstructured.Unstructured{}
	if err := utiljson.Unmarshal(json, &u.Object); err != nil {
		return nil, err
	}
	table, err := c.convertor.ConvertToTable(context.Background(), u, &metav1.TableOptions{NoHeaders: true})
	if err != nil {
		return nil, err
	}
	return table.Rows[0].Cells, nil
}
