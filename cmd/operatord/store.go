package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"operatord.io/operatord/internal/daemon"
)

func storeCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "store",
		Short: "Tend the store of a daemon that is stopped",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(repairCommand())
	return cmd
}

func repairCommand() *cobra.Command {
	dir := daemon.DefaultDataDir()
	var dropHistory, acceptLoss bool
	cmd := &cobra.Command{
		Use:   "repair --drop-history",
		Short: "Make a store with a damaged log open again",
		Long: `Make a store open again whose log is damaged: every object is kept, at its revision, and history is given up,
so that watches start again. The damaged files are kept beside the new ones.

Where writes that were acknowledged are or may be lost, it says which and changes nothing, unless --accept-loss is
given. The daemon must not run.`,
		Example: `  operatord store repair --drop-history --data-dir ~/operatord`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !dropHistory {
				return errors.New("history is what a repair gives up: say so with --drop-history")
			}
			done, err := daemon.RepairStore(cmd.Context(), dir, acceptLoss)
			if err != nil {
				return err
			}
			_, err = fmt.Fprint(cmd.OutOrStdout(), done)
			return err
		},
	}
	f := cmd.Flags()
	f.StringVar(&dir, "data-dir", dir, "the daemon's data directory")
	f.BoolVar(&dropHistory, "drop-history", false, "give up history, and keep the objects")
	f.BoolVar(&acceptLoss, "accept-loss", false, "go on although acknowledged writes are or may be lost")
	return cmd
}
