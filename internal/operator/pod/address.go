package pod

import (
	"fmt"
	"hash/fnv"
	"net/netip"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"operatord.io/operatord/internal/controller"
)

// addresses gives each Pod a loopback address of its own, 127.1.0.1 to 127.254.255.254. A Pod keeps the one in its
// status; the status is written before anything is started, so that no other Pod gets it after a restart.
type addresses struct {
	mu    sync.Mutex
	given map[types.UID]netip.Addr // by this daemon; the views may not show it yet
}

// of is a Pod's address, a free one if it has none.
func (a *addresses) of(r controller.Reader, pod *corev1.Pod) (netip.Addr, error) {
	if ip, err := netip.ParseAddr(pod.Status.PodIP); err == nil {
		return ip, nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if ip, ok := a.given[pod.UID]; ok {
		return ip, nil
	}
	used := map[netip.Addr]bool{}
	for _, ip := range a.given {
		used[ip] = true
	}
	for obj := range r.List(podKind, controller.Query{}) {
		if p, ok := obj.(*corev1.Pod); ok {
			if ip, err := netip.ParseAddr(p.Status.PodIP); err == nil {
				used[ip] = true
			}
		}
	}
	// Starting from the uid, so that daemons beside each other on one machine rarely meet.
	h := fnv.New32a()
	h.Write([]byte(pod.UID))
	const count = 254 * 256 * 254
	for i, n := 0, h.Sum32()%count; i < count; i, n = i+1, (n+1)%count {
		ip := netip.AddrFrom4([4]byte{127, byte(1 + n/(256*254)), byte(n / 254 % 256), byte(1 + n%254)})
		if !used[ip] {
			if a.given == nil {
				a.given = map[types.UID]netip.Addr{}
			}
			a.given[pod.UID] = ip
			return ip, nil
		}
	}
	return netip.Addr{}, fmt.Errorf("all %d loopback addresses are taken", count)
}

// release forgets the address of a Pod that is gone.
func (a *addresses) release(uid types.UID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.given, uid)
}
