package builtin

import (
	"testing"

	"operatord.io/operatord/internal/resource"
)

// BenchmarkKinds is what a start waits for.
func BenchmarkKinds(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		Kinds()
	}
}

// BenchmarkTypes is what the first write to a group waits for.
func BenchmarkTypes(b *testing.B) {
	for _, set := range []string{"api__v1", "api__v1.Pod", "apis__apps__v1", "apis__apiextensions.k8s.io__v1"} {
		b.Run(set, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := typeConverter(set); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkCodec(b *testing.B) {
	for _, name := range []string{"ConfigMap", "Pod"} {
		v := kind(b, "", name).Versions[0]
		o := create(b, kind(b, "", name), minimal[name])
		data := o.JSON()
		hub, err := o.Hub()
		if err != nil {
			b.Fatal(err)
		}
		b.Run(name+"/decode", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, _, err := v.Codec.Decode(data, resource.DecodeOptions{}); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(name+"/stored", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := v.Codec.DecodeStored(data); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(name+"/encode", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := v.Codec.Encode(hub); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
