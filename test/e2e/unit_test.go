package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The systemd unit: the daemon is started again for ever, a stop leaves processes alone, cgroups can be handed down, and
// nothing is set that its Pods would inherit without having asked for it. systemd knows every word of it.
func TestUnit(t *testing.T) {
	path := filepath.Join("..", "..", "deploy", "systemd", "operatord.service")
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	set := map[string]string{}
	section := ""
	for line := range strings.Lines(string(data)) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "[") {
			section = line
		} else if key, value, ok := strings.Cut(line, "="); ok && !strings.HasPrefix(line, "#") {
			set[section+key] = value
		}
	}
	for key, want := range map[string]string{
		"[Unit]StartLimitIntervalSec": "0", "[Service]Restart": "always", "[Service]KillMode": "process",
		"[Service]Delegate": "yes", "[Service]DelegateSubgroup": "daemon", "[Service]OOMPolicy": "continue", "[Service]TasksMax": "infinity",
	} {
		if set[key] != want {
			t.Errorf("%s=%s, want %s", key, set[key], want)
		}
	}
	for _, inherited := range []string{"NoNewPrivileges", "CapabilityBoundingSet", "ProtectSystem", "ProtectHome", "PrivateTmp", "SystemCallFilter", "RestrictNamespaces", "MemoryMax", "StateDirectory"} {
		if value, ok := set["[Service]"+inherited]; ok {
			t.Errorf("%s=%s would hold for Pods too", inherited, value)
		}
		if inherited != "StateDirectory" && !strings.Contains(string(data), inherited) {
			t.Errorf("it doesn't say why %s is left out", inherited)
		}
	}
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Log("systemd isn't here to be asked")
		return
	}
	unit := filepath.Join(t.TempDir(), "operatord.service")
	here := strings.ReplaceAll(string(data), "/usr/local/bin/operatord", binary(t, "OPERATORD_RACE_BIN", "operatord-race"))
	if err := os.WriteFile(unit, []byte(here), 0o644); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(analyze, "verify", unit).CombinedOutput()
	if err != nil {
		t.Errorf("systemd-analyze verify: %v", err)
	}
	for line := range strings.Lines(string(out)) {
		newer := false // than a systemd before 254, which goes without
		for _, key := range []string{"RestartSteps", "RestartMaxDelaySec", "DelegateSubgroup"} {
			newer = newer || strings.Contains(line, "Unknown key") && strings.Contains(line, key)
		}
		if !newer && strings.Contains(line, "operatord.service") {
			t.Error(line)
		}
	}
}
