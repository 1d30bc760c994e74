package main

import (
	"net/http"

	"github.com/spf13/cobra"
)

func stepCommand() *cobra.Command {
	return planner(http.MethodPost, "step", "Have the operator do exactly the next thing, and wait until it is done",
		`  kubectl annotate cluster demo operatord.io/step=0   # from now on it acts when told to
  operatord step cluster demo`)
}
