package apiserver

import "operatord.io/operatord/internal/apiserver/discovery"

func virtualKinds() []discovery.Virtual { return nil }

func (x *exchange) serveReview() bool { return false }
