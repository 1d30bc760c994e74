package main

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"operatord.io/operatord/internal/daemon"
)

func kubeconfigCommand() *cobra.Command {
	var (
		dir      = daemon.DefaultDataDir()
		user     string
		groups   []string
		server   string
		lifetime = 365 * 24 * time.Hour
	)
	cmd := &cobra.Command{
		Use:   "kubeconfig",
		Short: "Print the administrator's kubeconfig, or make one for somebody else",
		Long: `Print the administrator's kubeconfig. With --user, make a new one for that user, with a client
certificate that the data directory's authority signs.`,
		Example: `  export KUBECONFIG=$(mktemp); operatord kubeconfig > $KUBECONFIG
  operatord kubeconfig --user alice --group developers > alice.kubeconfig`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if user == "" {
				if cmd.Flags().Changed("user") {
					return errors.New("--user names nobody")
				}
				if len(groups) > 0 {
					return errors.New("--group needs --user")
				}
				return print(daemon.AdminKubeconfig(dir))
			}
			if lifetime <= 0 {
				return fmt.Errorf("--lifetime %s: credentials would be worthless", lifetime)
			}
			if server == "" {
				e, err := daemon.ReadEndpoints(dir)
				if err != nil {
					return err
				}
				server = e.API
			}
			return print(daemon.IssueKubeconfig(dir, server, user, groups, lifetime))
		},
	}
	f := cmd.Flags()
	f.StringVar(&dir, "data-dir", dir, "the daemon's data directory")
	f.StringVar(&user, "user", user, "make credentials for this user")
	f.StringSliceVar(&groups, "group", groups, "a group of --user; may be repeated")
	f.StringVar(&server, "server", server, "URL of the API in a kubeconfig that is made; default: where the daemon listens")
	f.DurationVar(&lifetime, "lifetime", lifetime, "how long credentials that are made are valid")
	return cmd
}

// print writes data to standard output, unless it could not be had.
func print(data []byte, err error) error {
	if err != nil {
		return err
	}
	_, err = os.Stdout.Write(data)
	return err
}
