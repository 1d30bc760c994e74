// Package member is `operatord member`, the program that members of a Cluster run unless its template names
// another: it keeps a note in its data directory and tells over HTTP that it lives and whether it leads.
//
//	GET /healthz  200 ok
//	GET /role     leader or follower
//	GET /         {"name": …, "role": …, "data": [names in the data directory]}
//
// It listens on $POD_IP:$OPERATORD_PORT (127.0.0.1, 7481). $OPERATORD_LABELS names the file with the Pod's
// labels, which is read anew for each answer; $OPERATORD_DATA the data directory, to whose file "starts" each
// start adds a line; $POD_NAME its name. Like the shim it imports syscall alone and takes over in a
// package-level initialiser, before anything larger is initialised: hundreds of members are cheap. One
// thread serves all connections, each bounded in time and size, so that no client can hold up another.
package member

import "syscall"

var _ = hook()

func hook() bool {
	args := arguments()
	if len(args) == 2 && args[1] == "member" {
		syscall.Exit(run())
	}
	return false
}

// arguments reads the command line, which package os has not set up yet.
func arguments() []string {
	data, err := readFile("/proc/self/cmdline", 4096)
	if err != nil {
		return nil
	}
	var args []string
	start := 0
	for i := range data {
		if data[i] == 0 {
			args = append(args, string(data[start:i]))
			start = i + 1
		}
	}
	return args
}

// run serves until it is killed. SIGTERM ends it at once, which is all that its termination needs.
func run() int {
	m := &member{
		name:   env("POD_NAME", env("HOSTNAME", "member")),
		labels: env("OPERATORD_LABELS", ""),
		data:   env("OPERATORD_DATA", ""),
	}
	address, port := env("POD_IP", "127.0.0.1"), env("OPERATORD_PORT", "7481")
	if err := m.note(); err != nil {
		return fail("write to $OPERATORD_DATA ("+m.data+")", err)
	}
	s, err := listen(address, port, m.answer)
	if err != nil {
		return fail("listen on $POD_IP:$OPERATORD_PORT ("+address+":"+port+")", err)
	}
	say(1, "member "+m.name+" listens on "+address+":"+port)
	return fail("serve", s.serve())
}

type member struct{ name, labels, data string }

// note adds a line to the data directory: a member that was replaced finds the notes of those before it.
func (m *member) note() error {
	if m.data == "" {
		return nil
	}
	fd, err := syscall.Open(m.data+"/starts", syscall.O_WRONLY|syscall.O_CREAT|syscall.O_APPEND|syscall.O_CLOEXEC, 0o644)
	if err != nil {
		return err
	}
	defer syscall.Close(fd)
	if _, err := syscall.Write(fd, []byte("started "+m.name+" at "+itoa(int(now()))+"\n")); err != nil {
		return err
	}
	return syscall.Fsync(fd)
}

// answer is the whole site. ok is false for a path that isn't there.
func (m *member) answer(path string) (kind, body string, ok bool) {
	const text = "text/plain; charset=utf-8"
	switch path {
	case "/healthz":
		return text, "ok\n", true
	case "/role":
		return text, m.role() + "\n", true
	case "/":
		return "application/json", `{"name":` + quote(m.name) + `,"role":` + quote(m.role()) + `,"data":` + m.listing() + "}\n", true
	}
	return text, "no such page; there are /, /healthz and /role\n", false
}

// role is leader if the labels say so now. Lines of the file are NAME="VALUE".
func (m *member) role() string {
	if m.labels != "" {
		data, err := readFile(m.labels, 256<<10)
		if err == nil && hasLine(data, `operatord.io/role="leader"`) {
			return "leader"
		}
	}
	return "follower"
}

// listing is what lies in the data directory, as a JSON array of at most 100 names.
func (m *member) listing() string {
	out := "["
	if m.data != "" {
		for i, name := range readDir(m.data, 100) {
			if i > 0 {
				out += ","
			}
			out += quote(name)
		}
	}
	return out + "]"
}

func fail(what string, err error) int {
	say(2, "operatord member: "+what+": "+err.Error())
	return 1
}

func say(fd int, text string) { syscall.Write(fd, []byte(text+"\n")) }
