package process

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
)

// boot tells this life of the machine from others: the kernel's boot id, and the start of pid 1, which
// differs between one run of a container and the next on the same boot.
type boot struct{ id, epoch string }

func readBoot() (boot, error) {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return boot{}, fmt.Errorf("read the boot id: %w (is /proc mounted?)", err)
	}
	b := boot{id: string(bytes.TrimSpace(id))}
	// Without the right to look at pid 1 the boot id has to do.
	if ticks, err := startTicks(1); err == nil {
		b.epoch = strconv.FormatUint(ticks, 10)
	}
	return b, nil
}

// same tells whether a recorded boot is this one. What was not recorded or can't be seen decides nothing.
func (b boot) same(id, epoch string) bool {
	return b.id == id && (b.epoch == epoch || b.epoch == "" || epoch == "")
}

// startTicks is a process's start time in clock ticks since boot.
func startTicks(pid int) (uint64, error) {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0, err
	}
	// The name in parentheses may hold anything, so count from its end: the start is field 22 of stat(5).
	i := bytes.LastIndexByte(data, ')')
	fields := bytes.Fields(data[i+1:])
	if i < 0 || len(fields) < 20 {
		return 0, fmt.Errorf("/proc/%d/stat is not as expected", pid)
	}
	return strconv.ParseUint(string(fields[19]), 10, 64)
}
