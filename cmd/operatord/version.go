package main

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"
)

func versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  cobra.NoArgs,
		Run: func(*cobra.Command, []string) {
			fmt.Print(versionLine())
		},
	}
}

func versionLine() string {
	return fmt.Sprintf("operatord %s (%s, %s/%s)\n", version, goVersion(), runtime.GOOS, runtime.GOARCH)
}
