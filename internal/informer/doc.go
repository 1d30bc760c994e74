// Package informer keeps typed, indexed views of the API's objects for operators, and one metadata view
// over all kinds.
//
// Each followed kind has one feed: a list from the watch cache, then a watch; a list again when the
// history needed is gone (410) or the kind has changed. A view only moves forward: what a feed brings is
// taken if it is newer than what is there, and a new list makes deletes, with the last known state, of what
// has gone. Objects are decoded when somebody asks, once a revision, and shared: copy before changing.
// Every view knows the revision up to which it is complete, also while nothing of its kind is written, so
// that a reader can wait until it sees its own writes.
package informer
