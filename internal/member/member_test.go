package member

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"
)

// start runs this test binary as `operatord member`: importing the package is all that it takes.
func start(t *testing.T, ip string, env ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("/proc/self/exe", "member")
	cmd.Env = append([]string{"POD_IP=" + ip, "OPERATORD_PORT=17481", "POD_NAME=demo-0", "GOMAXPROCS=1"}, env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || !strings.Contains(line, "listens on "+ip+":17481") {
		t.Fatalf("it said %q, %v", line, err)
	}
	return cmd
}

func get(t *testing.T, url string) (int, string) {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

func TestServes(t *testing.T) {
	dir := t.TempDir()
	labels, data := filepath.Join(dir, "labels"), filepath.Join(dir, "data")
	if err := os.Mkdir(data, 0o755); err != nil {
		t.Fatal(err)
	}
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(labels+".tmp", []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(labels+".tmp", labels); err != nil {
			t.Fatal(err)
		}
	}
	write("app=\"demo\"\n")
	if err := os.WriteFile(filepath.Join(data, `odd"name`), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := start(t, "127.0.73.1", "OPERATORD_LABELS="+labels, "OPERATORD_DATA="+data)
	base := "http://127.0.73.1:17481"
	for path, want := range map[string]string{"/healthz": "200 ok\n", "/role": "200 follower\n", "/role?x": "200 follower\n"} {
		if code, body := get(t, base+path); fmt.Sprint(code, " ", body) != want {
			t.Errorf("GET %s is %d %q", path, code, body)
		}
	}
	if code, _ := get(t, base+"/nothing"); code != 404 {
		t.Errorf("GET /nothing is %d", code)
	}
	if resp, err := http.Post(base+"/role", "text/plain", nil); err != nil || resp.StatusCode != 405 {
		t.Errorf("POST: %v %v", resp, err)
	}
	write("app=\"demo\"\noperatord.io/role=\"leader\"\n")
	if _, body := get(t, base+"/role"); body != "leader\n" {
		t.Errorf("role is %q", body)
	}
	_, body := get(t, base+"/")
	var page struct {
		Name, Role string
		Data       []string
	}
	if err := json.Unmarshal([]byte(body), &page); err != nil {
		t.Fatalf("%q: %v", body, err)
	}
	if page.Name != "demo-0" || page.Role != "leader" || !reflect.DeepEqual(page.Data, []string{`odd"name`, "starts"}) {
		t.Errorf("page is %+v", page)
	}
	starts, err := os.ReadFile(filepath.Join(data, "starts"))
	if err != nil || !strings.HasPrefix(string(starts), "started demo-0 at ") {
		t.Errorf("starts is %q, %v", starts, err)
	}

	begin := time.Now()
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if took := time.Since(begin); took > time.Second {
		t.Errorf("SIGTERM took %v", took)
	}
}

func TestSlowAndBadClients(t *testing.T) {
	start(t, "127.0.73.2")
	address := "127.0.73.2:17481"
	dial := func() net.Conn {
		t.Helper()
		c, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		if err := c.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
			t.Fatal(err)
		}
		return c
	}
	// A request in pieces is answered when it is whole.
	c := dial()
	for _, piece := range []string{"GET /hea", "lthz HTTP/1.1\r\nHost: x\r", "\n\r", "\n"} {
		if _, err := c.Write([]byte(piece)); err != nil {
			t.Fatal(err)
		}
	}
	if answer, err := io.ReadAll(c); err != nil || !strings.HasSuffix(string(answer), "\r\n\r\nok\n") {
		t.Errorf("answer to pieces: %q %v", answer, err)
	}
	// More silent clients than it keeps: others are served all the same.
	for range 2 * maxConnections {
		dial()
	}
	if code, body := get(t, "http://"+address+"/healthz"); code != 200 || body != "ok\n" {
		t.Errorf("beside silent clients: %d %q", code, body)
	}
	// What isn't HTTP, or too large, is refused.
	for request, want := range map[string]string{
		"hello\n\n": "400",
		"GET / HTTP/1.1\r\nX: " + strings.Repeat("x", 2*maxRequest) + "\r\n\r\n": "431",
	} {
		c := dial()
		if _, err := c.Write([]byte(request)); err != nil {
			t.Fatal(err)
		}
		line, err := bufio.NewReader(c).ReadString('\n')
		if err != nil || !strings.Contains(line, want) {
			t.Errorf("%.20q: %q %v", request, line, err)
		}
	}
	// A client that sends nothing is cut off.
	c = dial()
	begin := time.Now()
	if _, err := c.Read(make([]byte, 1)); err == nil || time.Since(begin) > (patience+4)*time.Second {
		t.Errorf("a silent client was kept %v: %v", time.Since(begin), err)
	}
}

func TestSaysWhyItCanNotServe(t *testing.T) {
	start(t, "127.0.73.3")
	for name, c := range map[string]struct{ env, want string }{
		"taken":   {"POD_IP=127.0.73.3", "127.0.73.3:17481): address already in use"},
		"address": {"POD_IP=nonsense", "not an IPv4 address"},
		"data":    {"OPERATORD_DATA=/no/such/dir", "$OPERATORD_DATA (/no/such/dir): no such file"},
	} {
		cmd := exec.Command("/proc/self/exe", "member")
		cmd.Env = []string{"OPERATORD_PORT=17481", c.env}
		out, err := cmd.CombinedOutput()
		if err == nil || !strings.Contains(string(out), c.want) {
			t.Errorf("%s: %v %q", name, err, out)
		}
	}
}
