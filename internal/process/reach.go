package process

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// Reach lets a user pass through a private directory, to files below it of which it knows the path, and do
// nothing else there: an entry of its own in the directory's access control list. Everybody else stays out.
// Idempotent; the entry stays until the directory is removed. Where everybody may pass already, and where the
// user owns the directory, nothing is done.
//
// While there are such entries the mode's group bits are their mask (acl(5)): 0700 shows as 0710, and a chmod
// back to 0700 would shut them out.
func Reach(dir string, u User) error {
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		return fmt.Errorf("let user %d into %s: %w", u.UID, dir, err)
	}
	if u.UID == 0 || u.UID == st.Uid || st.Mode&0o001 != 0 {
		return nil
	}
	reaching.Lock()
	defer reaching.Unlock()
	list, err := readACL(dir, st.Mode)
	if err != nil {
		return fmt.Errorf("let user %d into %s: read its access control list: %w", u.UID, dir, err)
	}
	if !list.allow(u.UID) {
		return nil
	}
	if err := unix.Setxattr(dir, aclAttribute, list.encode(), 0); err != nil {
		return fmt.Errorf("let user %d into %s: %w (the file system has to know access control lists; without them, run as the daemon's own user)", u.UID, dir, err)
	}
	return nil
}

// reaching is held from the reading of a list to its writing, so that of two users that are let in at once neither
// is lost.
var reaching sync.Mutex

// aclAttribute holds a list as the kernel takes it: a version, then entries of tag, permissions and id, sorted
// by tag and id (linux/posix_acl_xattr.h).
const aclAttribute = "system.posix_acl_access"

const (
	aclVersion = 2
	aclNoID    = ^uint32(0)

	aclUserObj  = 0x01
	aclUser     = 0x02
	aclGroupObj = 0x04
	aclMask     = 0x10
	aclOther    = 0x20

	aclExecute = 0x1
)

type aclEntry struct {
	tag, perm uint16
	id        uint32
}

type acl []aclEntry

// readACL is the directory's list; one made of its mode where it has none.
func readACL(dir string, mode uint32) (acl, error) {
	buf := make([]byte, 64<<10) // XATTR_SIZE_MAX
	n, err := unix.Getxattr(dir, aclAttribute, buf)
	if errors.Is(err, unix.ENODATA) || errors.Is(err, unix.EOPNOTSUPP) {
		return acl{
			{aclUserObj, uint16(mode >> 6 & 7), aclNoID},
			{aclGroupObj, uint16(mode >> 3 & 7), aclNoID},
			{aclOther, uint16(mode & 7), aclNoID},
		}, nil
	}
	if err != nil {
		return nil, os.NewSyscallError("getxattr", err)
	}
	const entry = 8
	if n < 4 || (n-4)%entry != 0 || binary.LittleEndian.Uint32(buf) != aclVersion {
		return nil, fmt.Errorf("it has an unknown form (%d bytes)", n)
	}
	var list acl
	for at := 4; at < n; at += entry {
		list = append(list, aclEntry{
			tag:  binary.LittleEndian.Uint16(buf[at:]),
			perm: binary.LittleEndian.Uint16(buf[at+2:]),
			id:   binary.LittleEndian.Uint32(buf[at+4:]),
		})
	}
	return list, nil
}

// allow makes an entry for the user, and lets the mask pass it. It says whether anything changed.
func (l *acl) allow(uid uint32) (changed bool) {
	entries := *l
	place, mask := len(entries), -1
	found := false
	for i, e := range entries {
		switch {
		case e.tag == aclUser && e.id == uid:
			found = true
			if e.perm&aclExecute == 0 {
				entries[i].perm |= aclExecute
				changed = true
			}
		case e.tag > aclUser || e.tag == aclUser && e.id > uid:
			place = min(place, i)
		}
		if e.tag == aclMask {
			mask = i
		}
	}
	switch {
	case mask >= 0 && entries[mask].perm&aclExecute == 0:
		entries[mask].perm |= aclExecute
		changed = true
	case mask < 0:
		other := len(entries) - 1
		entries = append(entries[:other:other], aclEntry{aclMask, aclExecute, aclNoID}, entries[other])
		changed = true
	}
	if !found {
		entries = append(entries[:place:place], append(acl{{aclUser, aclExecute, uid}}, entries[place:]...)...)
		changed = true
	}
	*l = entries
	return changed
}

func (l acl) encode() []byte {
	out := binary.LittleEndian.AppendUint32(nil, aclVersion)
	for _, e := range l {
		out = binary.LittleEndian.AppendUint16(out, e.tag)
		out = binary.LittleEndian.AppendUint16(out, e.perm)
		out = binary.LittleEndian.AppendUint32(out, e.id)
	}
	return out
}
