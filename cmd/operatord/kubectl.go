package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"operatord.io/operatord/internal/daemon"
)

// kubectlVerbs are subcommands that kubectl has and operatord hasn't.
var kubectlVerbs = []string{
	"annotate", "api-resources", "api-versions", "apply", "attach", "auth", "autoscale", "certificate", "cluster-info", "config",
	"cordon", "cp", "create", "debug", "delete", "describe", "diff", "drain", "edit", "events", "exec", "explain", "expose", "get",
	"kustomize", "label", "logs", "patch", "port-forward", "proxy", "replace", "rollout", "run", "scale", "set", "taint", "top",
	"uncordon", "wait",
}

// kubectlCommands answer what was meant for kubectl with the command that does it.
func kubectlCommands() []*cobra.Command {
	var commands []*cobra.Command
	for _, verb := range kubectlVerbs {
		commands = append(commands, &cobra.Command{
			Use: verb, Hidden: true, DisableFlagParsing: true,
			RunE: func(_ *cobra.Command, args []string) error {
				dir := os.Getenv(envName("data-dir"))
				if dir == "" {
					dir = daemon.DefaultDataDir()
				}
				return fmt.Errorf("%q is a command of kubectl, which works with operatord as it is (`make kubectl` builds one):\n  kubectl --kubeconfig %s %s",
					verb, filepath.Join(dir, "admin.kubeconfig"), strings.Join(append([]string{verb}, args...), " "))
			},
		})
	}
	return commands
}
