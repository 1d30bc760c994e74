package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/validation"
)

// plan is the answer of …/plan and …/step.
type plan struct {
	Kind   string `json:"kind"`
	Target string `json:"target"`
	Why    string `json:"why"`
	After  string `json:"after"`
	Held   string `json:"held"`
}

func (p plan) String() string {
	var b strings.Builder
	b.WriteString(p.Kind)
	if p.Target != "" {
		b.WriteString(" " + p.Target)
	}
	if p.Why != "" {
		b.WriteString(": " + p.Why)
	}
	if p.After != "" {
		b.WriteString(" (again in " + p.After + ")")
	}
	if p.Held != "" {
		b.WriteString(" (held: " + p.Held + ")")
	}
	return b.String()
}

func planCommand() *cobra.Command {
	return planner(http.MethodGet, "plan", "Show what the operator would do next, without doing it",
		`  operatord plan cluster demo
  operatord plan cluster/demo`)
}

// planner is plan and step: they differ in the method and the path's last word.
func planner(method, verb, short, example string) *cobra.Command {
	var (
		target    target
		namespace = "default"
		output    string
	)
	cmd := &cobra.Command{
		Use:     verb + " (TYPE NAME | TYPE/NAME)",
		Short:   short,
		Example: example,
		Args: func(_ *cobra.Command, args []string) error {
			_, _, err := oneObject(verb, args)
			return err
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if output != "" && output != "json" {
				return fmt.Errorf("-o %q: json is all there is", output)
			}
			kind, name, err := oneObject(verb, args)
			if err != nil {
				return err
			}
			return askPlanner(cmd.Context(), target, method, verb, namespace, kind, name, output)
		},
	}
	target.flags(cmd.Flags())
	cmd.Flags().StringVarP(&namespace, "namespace", "n", namespace, "namespace of the object")
	cmd.Flags().StringVarP(&output, "output", "o", output, "json, or empty for a line of text")
	return cmd
}

// oneObject reads TYPE NAME or TYPE/NAME, as kubectl does.
func oneObject(verb string, args []string) (kind, name string, err error) {
	usage := fmt.Errorf("%[1]s takes one object, TYPE NAME or TYPE/NAME, as in: operatord %[1]s cluster demo", verb)
	for _, arg := range args {
		if at := strings.IndexByte(arg, '='); at >= 0 {
			return "", "", fmt.Errorf("%w; it takes no values such as %q: a value of the annotation that makes an object wait for steps is set with: kubectl annotate TYPE NAME operatord.io/step=%s", usage, arg, arg[at+1:])
		}
	}
	switch len(args) {
	case 1:
		var slash bool
		if kind, name, slash = strings.Cut(args[0], "/"); !slash {
			return "", "", usage
		}
	case 2:
		kind, name = args[0], args[1]
	default:
		return "", "", usage
	}
	if kind == "" || name == "" || strings.Contains(kind, "/") {
		return "", "", usage
	}
	if wrong := validation.IsDNS1123Subdomain(name); len(wrong) > 0 {
		return "", "", fmt.Errorf("%q is no name of an object: %s", name, strings.Join(wrong, "; "))
	}
	return kind, name, nil
}

func askPlanner(ctx context.Context, t target, method, verb, namespace, kind, name, output string) error {
	c, err := t.client()
	if err != nil {
		return err
	}
	collection, err := c.collection(ctx, kind, namespace)
	if err != nil {
		return err
	}
	body, err := c.do(ctx, method, collection+"/"+name+"/"+verb)
	if err != nil {
		return err
	}
	if output == "json" {
		return print(append(body, '\n'), nil)
	}
	var p plan
	if err := json.Unmarshal(body, &p); err != nil {
		return fmt.Errorf("the server's answer: %w", err)
	}
	fmt.Println(p)
	return nil
}
