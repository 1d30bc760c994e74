// Package informer keeps typed, indexed views of the API's objects for operators, and one metadata view
// over all kinds.
//
// Each kind that is served has one feed: a streaming list from the watch cache, then events; a list again
// when the history needed is gone (410) or the kind has changed. A view only moves forward: nothing
// replaces a newer revision, and a new list makes deletes, with the last known state, of what has gone.
// Objects are decoded when somebody asks, once a revision, and shared: copy before changing. Every view
// knows the revision up to which it is complete, also while nothing of its kind is written, so that a
// reader can wait until it sees its own writes.
package informer
