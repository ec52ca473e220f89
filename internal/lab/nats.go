package lab

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// NATS is one nats-server with JetStream on 127.0.0.1, alone or in a cluster. Its methods may be called from any
// goroutine, except those that take a TB.
type NATS struct{ *Process } // the other ports: for its state over HTTP, and for the others of the cluster

// StartNATS starts a cluster of that many servers, or one alone, and returns once all of them answer and the cluster
// has a leader. Data survives the death of a process. The servers are killed when the test ends. Without nats-server
// the test is skipped; see [Need].
func StartNATS(t TB, servers int, opts ...Option) (all []*NATS) {
	t.Helper()
	binary := Need(t, ToolNATS)
	launch(t, func() []*Process {
		all = nil
		for i := range servers {
			n := &NATS{newProcess(t, fmt.Sprintf("nats-%d", i+1), of(opts), 3)}
			n.answers = n.isHealthy
			n.command = func() (*exec.Cmd, error) {
				file := filepath.Join(n.dir, "nats.conf")
				err := os.WriteFile(file, []byte(n.file(all)), 0o600)
				return n.program(binary, "-c", file), err
			}
			all = append(all, n)
		}
		return processes(all)
	})
	return all
}

// file is the text of nats.conf.
func (n *NATS) file(all []*NATS) string {
	lines := []string{
		"server_name: " + n.name,
		"listen: " + n.Addr(),
		"http: " + loopback(n.ports[1]),
		"jetstream { store_dir: " + filepath.Join(n.dir, "data") + ", max_mem: 64M, max_file: 1G }",
	}
	if len(all) > 1 {
		var routes []string
		for _, other := range all {
			routes = append(routes, "nats://"+loopback(other.ports[2]))
		}
		// Clients are not told of the other servers, and so not led past a proxy.
		lines = append(lines, "cluster { name: lab, no_advertise: true, listen: "+loopback(n.ports[2])+", routes: ["+
			strings.Join(routes, ", ")+"] }")
	}
	if n.certs != nil {
		lines = append(lines, "tls { cert_file: "+n.certs.CertFile+", key_file: "+n.certs.KeyFile+" }")
	}
	for _, s := range n.settings {
		lines = append(lines, s.name+" "+strings.Join(s.values, " "))
	}
	return strings.Join(lines, "\n") + "\n"
}

// isHealthy returns nil once the server serves JetStream with all that it keeps.
func (n *NATS) isHealthy() error {
	ctx, cancel := context.WithTimeout(context.Background(), probe)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+loopback(n.ports[1])+"/healthz", nil)
	if err != nil {
		return err
	}
	req.Close = true
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusOK || !n.Running() {
		return errors.New("lab: " + n.name + " is not healthy: " + resp.Status)
	}
	return nil
}
