package builtin

import "operatord.io/operatord/internal/resource"

func coreGroup(b *builder) []*resource.Kind {
	return []*resource.Kind{
		b.configMap(),
		b.event(),
		b.namespace(),
		b.node(),
		b.pod(),
		b.secret(),
		b.serviceAccount(),
	}
}
