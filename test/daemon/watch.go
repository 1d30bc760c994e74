package daemon

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
)

// Event is one event of a watch.
type Event struct {
	Type   string          `json:"type"`
	Object json.RawMessage `json:"object"`
}

// Meta is what any object says about itself.
type Meta struct {
	Kind     string `json:"kind"`
	Metadata struct {
		Name              string            `json:"name"`
		Namespace         string            `json:"namespace"`
		UID               string            `json:"uid"`
		ResourceVersion   string            `json:"resourceVersion"`
		DeletionTimestamp string            `json:"deletionTimestamp"`
		Labels            map[string]string `json:"labels"`
		Annotations       map[string]string `json:"annotations"`
		Finalizers        []string          `json:"finalizers"`
	} `json:"metadata"`
}

// Watch opens a watch: path with its query, watch=1 among it. Each event goes to f; the watch ends when f
// returns false, when ctx ends, or when the server ends it, which is io.EOF.
func (d *Daemon) Watch(ctx context.Context, path string, f func(Event) bool) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	resp, err := d.Open(ctx, "GET", path, "", nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != 200 {
		body, _ := io.ReadAll(resp.Body)
		return fmt.Errorf("watch %s: %s: %s", path, resp.Status, body)
	}
	decoder := json.NewDecoder(resp.Body)
	for {
		var e Event
		if err := decoder.Decode(&e); err != nil {
			return err
		}
		if !f(e) {
			return nil
		}
	}
}

// Get reads an object into out.
func (d *Daemon) Get(ctx context.Context, path string, out any) error {
	return d.call(ctx, "GET", path, "", nil, out)
}

// Create posts a YAML or JSON document to a collection; out may be nil.
func (d *Daemon) Create(ctx context.Context, collection, document string, out any) error {
	return d.call(ctx, "POST", collection, "application/yaml", []byte(document), out)
}

// Merge patches an object; out may be nil.
func (d *Daemon) Merge(ctx context.Context, path, patch string, out any) error {
	return d.call(ctx, "PATCH", path, "application/merge-patch+json", []byte(patch), out)
}

// Delete deletes an object.
func (d *Daemon) Delete(ctx context.Context, path string) error {
	return d.call(ctx, "DELETE", path, "", nil, nil)
}

// StatusError is an answer that is no success.
type StatusError struct {
	Code            int
	Reason, Message string
}

func (e *StatusError) Error() string { return fmt.Sprintf("%d %s: %s", e.Code, e.Reason, e.Message) }

func (d *Daemon) call(ctx context.Context, method, path, contentType string, body []byte, out any) error {
	code, data, err := d.Do(ctx, method, path, contentType, body)
	if err != nil {
		return err
	}
	if code >= 300 {
		s := StatusError{Code: code, Message: string(data)}
		var status struct{ Reason, Message string }
		if json.Unmarshal(data, &status) == nil && status.Message != "" {
			s.Reason, s.Message = status.Reason, status.Message
		}
		return &s
	}
	if out == nil {
		return nil
	}
	return json.NewDecoder(bytes.NewReader(data)).Decode(out)
}
