package resource

import "strings"

// Keys in the store are /GROUP/PLURAL/NAMESPACE/NAME, with "core" for the core group and without the
// namespace for cluster-scoped kinds. Names hold no slash, so keys of one kind, and of one namespace in
// it, are one range.

// Prefix is the common start of all keys of a kind, or of those in a namespace if one is given.
func Prefix(k *Kind, namespace string) string {
	group := k.Group
	if k.StoredGroup != nil {
		group = *k.StoredGroup
	}
	if group == "" {
		group = "core"
	}
	p := "/" + group + "/" + k.Plural + "/"
	if namespace != "" {
		p += namespace + "/"
	}
	return p
}

// Key is where one object lies.
func Key(k *Kind, namespace, name string) string {
	if !k.Namespaced {
		namespace = ""
	}
	return Prefix(k, namespace) + name
}

// SplitKey takes a key apart. Namespace is empty for cluster-scoped kinds.
func SplitKey(key string) (group, plural, namespace, name string, ok bool) {
	parts := strings.Split(strings.TrimPrefix(key, "/"), "/")
	switch len(parts) {
	case 3:
		group, plural, name = parts[0], parts[1], parts[2]
	case 4:
		group, plural, namespace, name = parts[0], parts[1], parts[2], parts[3]
	default:
		return "", "", "", "", false
	}
	if group == "core" {
		group = ""
	}
	return group, plural, namespace, name, true
}
