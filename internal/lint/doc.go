// Package lint holds the rules of the house that a compiler does not know, as tests: which package may
// import which and why, that every package says what it is for, and words that must not stand in the
// repository. `go test ./internal/lint` runs them; a failure gives the reason, not just the place.
package lint
