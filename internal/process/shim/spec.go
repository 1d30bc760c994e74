package shim

import "syscall"

// Spec is what a shim runs, as its directory's spec file says it.
type Spec struct {
	Format string // version of this format, "1"
	Owner  string // namespace/name, for people
	// Revision and Note are the daemon's own and not looked at here.
	Revision, Note string
	Args           []string // argv of the main process; Args[0] is looked up in its PATH unless it has a slash
	Command        string   // what messages call Args[0], which may hold what nobody is to read
	Secrets        []string // names of variables whose values no message may tell; the daemon's own
	Env            []string // its whole environment, "NAME=value"
	Dir            string   // working directory; empty: /
	// User, Group and Groups are numeric; empty User keeps the daemon's.
	User, Group string
	Groups      []string
	Cgroup      string // directory of the attempt's own cgroup; empty: none
	Boot        string // boot id when the attempt was made
	Epoch       string // start time of pid 1 then: tells one pid namespace from the next
	LogBytes    string // size at which a log file is rotated
	LogFiles    string // files kept, the present one included
}

// SpecFormat is the version this code writes. Readers accept any they know.
const SpecFormat = "1"

// Record writes the spec down.
func (s *Spec) Record() Record {
	var r Record
	r.Add("format", s.Format)
	r.Add("owner", s.Owner)
	r.Add("revision", s.Revision)
	r.Add("note", s.Note)
	for _, a := range s.Args {
		r.Fields = append(r.Fields, Field{"arg", a}) // an empty argument counts
	}
	r.Add("command", s.Command)
	for _, e := range s.Env {
		r.Add("env", e)
	}
	for _, name := range s.Secrets {
		r.Add("secret", name)
	}
	r.Add("dir", s.Dir)
	r.Add("user", s.User)
	r.Add("group", s.Group)
	for _, g := range s.Groups {
		r.Add("groups", g)
	}
	r.Add("cgroup", s.Cgroup)
	r.Add("boot", s.Boot)
	r.Add("epoch", s.Epoch)
	r.Add("logbytes", s.LogBytes)
	r.Add("logfiles", s.LogFiles)
	return r
}

// ParseSpec reads what Record and Format wrote.
func ParseSpec(data []byte) *Spec {
	s := &Spec{}
	for _, f := range ParseRecord(data).Fields {
		switch f.Key {
		case "format":
			s.Format = f.Value
		case "owner":
			s.Owner = f.Value
		case "revision":
			s.Revision = f.Value
		case "note":
			s.Note = f.Value
		case "arg":
			s.Args = append(s.Args, f.Value)
		case "command":
			s.Command = f.Value
		case "env":
			s.Env = append(s.Env, f.Value)
		case "secret":
			s.Secrets = append(s.Secrets, f.Value)
		case "dir":
			s.Dir = f.Value
		case "user":
			s.User = f.Value
		case "group":
			s.Group = f.Value
		case "groups":
			s.Groups = append(s.Groups, f.Value)
		case "cgroup":
			s.Cgroup = f.Value
		case "boot":
			s.Boot = f.Value
		case "epoch":
			s.Epoch = f.Value
		case "logbytes":
			s.LogBytes = f.Value
		case "logfiles":
			s.LogFiles = f.Value
		}
	}
	return s
}

func readSpec(name string) (*Spec, error) {
	data, err := readFile(name)
	if err != nil {
		return nil, err
	}
	s := ParseSpec(data)
	if s.Format != SpecFormat || len(s.Args) == 0 {
		return nil, syscall.EINVAL
	}
	return s, nil
}
