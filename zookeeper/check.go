package zookeeper

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/golockers/locker/driver"
)

// server is what one server says about itself.
type server struct {
	addr          string
	err           error  // why it could not be asked
	version, mode string // "" if it does not say
	tick          time.Duration
}

// told returns what text says behind a label; "" if it is not there.
func told(text, label string) string {
	_, text, _ = strings.Cut(text, label)
	return text[:strings.IndexAny(text+"\n", " ,-\r\n")]
}

// findings is what a Check has found so far.
type findings []driver.Finding

func (f *findings) add(severity driver.Severity, what string, is any, advice string, args ...any) {
	*f = append(*f, driver.Finding{
		Severity: severity, What: what, Found: fmt.Sprint(is), Advice: fmt.Sprintf(advice, args...),
	})
}

// Check implements [driver.Checker]. Servers say more about themselves if their
// 4lw.commands.whitelist has srvr, which is the default, and conf.
func (b *Backend) Check(ctx context.Context) ([]driver.Finding, error) {
	servers := make([]server, len(b.servers))
	var all sync.WaitGroup
	for i, addr := range b.servers {
		all.Go(func() { servers[i] = b.look(ctx, addr) })
	}
	all.Wait()
	var found findings
	for _, s := range servers {
		found.server(s, b.opts.SessionTimeout)
	}
	found.servers(servers)
	s, err := b.join(ctx, 0)
	switch {
	case isRefusal(err):
		found.add(driver.SeverityProblem, "rights and session", err, "no lock can be had as this client")
		return found, nil
	case err != nil:
		return found, err
	}
	defer s.leave(0)
	found.add(driver.SeverityOK, "rights under "+b.prefix, "enough to make nodes", "")
	const what = "session timeout"
	switch _, timeout := s.granted(); {
	case timeout < b.opts.SessionTimeout:
		found.add(driver.SeverityProblem, what, timeout, "%v is asked for, and TTLs over %v are refused: "+
			"ask for less, or raise maxSessionTimeout", b.opts.SessionTimeout, timeout)
	case timeout > b.opts.SessionTimeout:
		found.add(driver.SeverityInfo, what, timeout, "%v is asked for: the lock of a dead holder lasts longer "+
			"by the difference; minSessionTimeout is two ticks if it is not set", b.opts.SessionTimeout)
	default:
		found.add(driver.SeverityOK, what, timeout, "")
	}
	for _, one := range servers {
		if one.err == nil && len(servers) > 1 {
			b.checkEnsemble(ctx, s, one.addr, &found)
		}
	}
	config, err := s.get(ctx, "/zookeeper/config")
	if voters := strings.Count(config.text, ":participant"); err == nil && voters > len(b.servers) {
		found.add(driver.SeverityWarning, "members of the ensemble", voters,
			"%d are named here, and a client knows no other: name all of them", len(b.servers))
	}
	return found, nil
}

// checkEnsemble looks for the node of a session at one server: if it is not there, the server belongs to another
// ensemble.
func (b *Backend) checkEnsemble(ctx context.Context, s *session, addr string, found *findings) {
	one, err := New([]string{addr}, &b.opts)
	if err != nil {
		return // cannot be: b was made with these options
	}
	defer func() { _ = one.Close() }()
	there := false
	other, err := one.join(ctx, 0)
	if err == nil {
		defer other.leave(0)
		there, err = other.finds(ctx, s.node)
	}
	s.mu.Lock()
	link := s.link
	s.mu.Unlock()
	switch {
	case there:
	case err != nil || link == nil || s.isOver():
		found.add(driver.SeverityWarning, "ensemble of "+addr, "not known: no session with it alone", "check again")
	default:
		found.add(driver.SeverityProblem, "ensemble of "+addr, "it is another one than that of "+link.server,
			"two clients can hold one lock, one in each: name the servers of one ensemble")
	}
}

// server adds what was found out about one server.
func (f *findings) server(s server, timeout time.Duration) {
	switch {
	case s.err != nil:
		f.add(driver.SeverityWarning, "server "+s.addr, s.err,
			"locks are served while most servers are: start it, or correct its address")
	case s.version == "":
		f.add(driver.SeverityInfo, "server "+s.addr, "it does not tell its version and role",
			"add srvr and conf to its 4lw.commands.whitelist to have them checked")
	default:
		f.add(driver.SeverityOK, "server "+s.addr, strings.TrimSpace(s.version+" "+s.mode), "")
	}
	if s.tick > 0 && timeout < 3*s.tick {
		f.add(driver.SeverityWarning, "tickTime of "+s.addr, s.tick,
			"a session of %v is shorter than three ticks, and a leader that is late can cost leases, "+
				"or exclusion: give a longer ttl", timeout)
	}
}

// servers adds what was found out about all servers together.
func (f *findings) servers(servers []server) {
	modes := map[string]int{}
	for _, s := range servers {
		modes[s.mode]++
	}
	const what = "number of servers"
	switch n := len(servers); {
	case modes["standalone"] > 1 || modes["standalone"] == 1 && n > 1:
		f.add(driver.SeverityProblem, "the servers", fmt.Sprintf("%d of %d stand alone", modes["standalone"], n),
			"they are no ensemble, or one server under several names: each has locks of its own, "+
				"and two can hold one. Name the members of one ensemble")
	case modes["leader"] > 1:
		f.add(driver.SeverityProblem, "the servers", fmt.Sprintf("%d of them lead", modes["leader"]),
			"one server has several of these addresses, or they are of several ensembles: "+
				"name each member of one ensemble once")
	case n == 1:
		f.add(driver.SeverityInfo, what, n, "no lock can be had while it is down: an ensemble of three serves on")
	case n%2 == 0:
		f.add(driver.SeverityWarning, what, n, "an even number survives no more crashes than one server fewer: "+
			"have an odd number, and name all of them")
	default:
		f.add(driver.SeverityOK, what, n, "")
	}
}

// look asks one server about itself.
func (b *Backend) look(ctx context.Context, addr string) server {
	text, err := b.say(ctx, addr, "srvr")
	if strings.Contains(text, "not currently serving requests") {
		err = errors.New("it has no quorum")
	}
	s := server{addr: addr, err: err, version: told(text, "Zookeeper version: "), mode: told(text, "Mode: ")}
	if err == nil {
		text, _ = b.say(ctx, addr, "conf")
		ms, _ := strconv.Atoi(told(text, "tickTime="))
		s.tick = time.Duration(ms) * time.Millisecond
	}
	return s
}

// say sends a server one of the four-letter commands, and returns its answer.
func (b *Backend) say(ctx context.Context, addr, command string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, b.patience())
	defer cancel()
	conn, err := b.opts.dial(ctx, addr)
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close() }()
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Now()) })()
	if _, err := io.WriteString(conn, command); err != nil {
		return "", err
	}
	var answer bytes.Buffer
	_, err = io.Copy(&answer, conn)
	if answer.Len() > 0 {
		return answer.String(), nil // however it hung up
	}
	return "", cmp.Or(err, errors.New("it hung up without an answer: it has more connections of this host "+
		"than its limit (maxClientCnxns), or the port is for TLS"))
}
