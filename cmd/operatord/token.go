package main

import (
	"github.com/spf13/cobra"

	"operatord.io/operatord/internal/daemon"
)

func tokenCommand() *cobra.Command {
	dir := daemon.DefaultDataDir()
	cmd := &cobra.Command{
		Use:     "token",
		Short:   "Print the administrator's bearer token",
		Example: `  curl --cacert DIR/ca.crt -H "Authorization: Bearer $(operatord token)" https://127.0.0.1:7443/version`,
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			token, err := daemon.AdminToken(dir)
			return print(append(token, '\n'), err)
		},
	}
	cmd.Flags().StringVar(&dir, "data-dir", dir, "the daemon's data directory")
	return cmd
}
