// Package interrupt hears SIGTERM and SIGINT from a process's first milliseconds on. A large program's packages take
// longer to be initialised than it takes somebody to change their mind, and until something listens those signals kill.
//
// Like the shim it relies on Go initialising packages that are ready in order of import path, and imports little: it
// listens as soon as os/signal can, long before main.
package interrupt

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

var asked = listen()

func listen() <-chan os.Signal {
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGINT, syscall.SIGTERM)
	return c
}

// Context ends with the first of the signals, also with one that came before it was called. From then on they
// are not heard any more: the next one kills.
func Context() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		<-asked
		signal.Reset(syscall.SIGINT, syscall.SIGTERM)
		cancel()
	}()
	return ctx
}
