package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"github.com/spf13/cobra"
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
		`  operatord plan cluster demo`)
}

// planner is plan and step: they differ in the method and the path's last word.
func planner(method, verb, short, example string) *cobra.Command {
	var (
		target    target
		namespace = "default"
		output    string
	)
	cmd := &cobra.Command{
		Use:     verb + " KIND NAME",
		Short:   short,
		Example: example,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 2 {
				return fmt.Errorf("%s takes a kind and a name, as in: operatord %s cluster demo", verb, verb)
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if output != "" && output != "json" {
				return fmt.Errorf("-o %q: json is all there is", output)
			}
			return askPlanner(cmd.Context(), target, method, verb, namespace, args[0], args[1], output)
		},
	}
	target.flags(cmd.Flags())
	cmd.Flags().StringVarP(&namespace, "namespace", "n", namespace, "namespace of the object")
	cmd.Flags().StringVarP(&output, "output", "o", output, "json, or empty for a line of text")
	return cmd
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
