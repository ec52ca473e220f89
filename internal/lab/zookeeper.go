package lab

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// ZooKeeper is one ZooKeeper server on 127.0.0.1 that belongs to a test: a standalone one, or a member
// of a [ZooKeeperEnsemble]. Its methods may be called from any goroutine, except those that take a
// TB.
type ZooKeeper struct {
	*Process
	conf zooConfig
	dir  string
	port int
	tls  int    // the port for TLS; 0: none
	java string // paths
	jar  string
}

// ZooKeeperOption changes how servers are started.
type ZooKeeperOption func(*zooConfig)

type zooConfig struct {
	tick  time.Duration
	certs *Certs
	clock *clock
	jar   string // "": what is installed
	lines []string
	flags []string // of Java
	peers []string // the lines about the ensemble
	id    int
}

// WithTick sets the servers' tickTime, in which they count sessions: one can be as short as two ticks.
// The default is 200 ms.
func WithTick(d time.Duration) ZooKeeperOption { return func(c *zooConfig) { c.tick = d } }

// WithZooKeeperTLS makes the server listen on a second port that speaks TLS and asks for no client
// certificate: [ZooKeeper.TLSAddr].
func WithZooKeeperTLS(certs *Certs) ZooKeeperOption { return func(c *zooConfig) { c.certs = certs } }

// WithZooKeeperJar starts another version than the one that is installed.
func WithZooKeeperJar(path string) ZooKeeperOption { return func(c *zooConfig) { c.jar = path } }

// WithZooKeeperConfig adds a line to the configuration, as in "maxSessionTimeout=1000".
func WithZooKeeperConfig(line string) ZooKeeperOption {
	return func(c *zooConfig) { c.lines = append(c.lines, line) }
}

// WithZooKeeperFlag adds an argument for Java, as in "-Djute.maxbuffer=200000".
func WithZooKeeperFlag(flag string) ZooKeeperOption {
	return func(c *zooConfig) { c.flags = append(c.flags, flag) }
}

// StartZooKeeper starts a standalone server, and returns once it serves. Its data survive a Kill and a
// [ZooKeeper.Restart]. It is killed when the test ends. Without java or zookeeper.jar the test is
// skipped; see [Need].
func StartZooKeeper(t TB, opts ...ZooKeeperOption) *ZooKeeper {
	t.Helper()
	var z *ZooKeeper
	onFreePorts(t, func() error {
		z = newZooKeeper(t, "zookeeper", opts)
		return serve(z.Process)
	})
	return z
}

func newZooKeeper(t TB, name string, opts []ZooKeeperOption) *ZooKeeper {
	t.Helper()
	z := &ZooKeeper{jar: Need(t, ToolZooJar), java: Need(t, ToolJava), dir: t.TempDir()}
	z.conf.tick = 200 * time.Millisecond
	for _, opt := range opts {
		opt(&z.conf)
	}
	z.jar = cmp.Or(z.conf.jar, z.jar)
	var err error
	if z.port, err = freePort(t); err == nil && z.conf.certs != nil {
		z.tls, err = freePort(t)
	}
	if err == nil {
		err = z.prepare()
	}
	if err != nil {
		t.Fatalf("lab: prepare %s: %v", name, err)
	}
	z.Process = newProcess(t, name, z.dir, z.newCommand)
	z.answers = z.serves
	return z
}

// prepare makes the directory of the data, and the store of the certificate.
func (z *ZooKeeper) prepare() error {
	data := filepath.Join(z.dir, "data")
	if err := os.Mkdir(data, 0o700); err != nil {
		return err
	}
	if c := z.conf.certs; c != nil {
		return z.install(c)
	}
	return nil
}

// install puts a certificate where the server looks for it, all of it at once.
func (z *ZooKeeper) install(c *Certs) error {
	cert, err := os.ReadFile(c.CertFile)
	if err != nil {
		return err
	}
	key, err := os.ReadFile(c.KeyFile)
	if err != nil {
		return err
	}
	next := z.keyStore() + ".part"
	if err := os.WriteFile(next, append(key, cert...), 0o600); err != nil {
		return err
	}
	return os.Rename(next, z.keyStore())
}

func (z *ZooKeeper) keyStore() string { return filepath.Join(z.dir, "server.pem") }

// file is the text of zoo.cfg.
func (z *ZooKeeper) file() string {
	ms := func(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }
	lines := []string{
		"tickTime=" + ms(z.conf.tick),
		"minSessionTimeout=" + ms(2*z.conf.tick),
		"maxSessionTimeout=60000",
		"initLimit=10", // an election that has to be repeated takes that long
		"syncLimit=10",
		"maxClientCnxns=0",
		"dataDir=" + filepath.Join(z.dir, "data"),
		"clientPort=" + strconv.Itoa(z.port),
		"clientPortAddress=127.0.0.1",
		"admin.enableServer=false",
		"4lw.commands.whitelist=*",
		// Killing a process loses nothing that it wrote; syncing would only slow the tests down.
		"forceSync=no",
		"preAllocSize=1024",
	}
	if z.conf.certs != nil {
		lines = append(lines,
			"secureClientPort="+strconv.Itoa(z.tls),
			"serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory",
			"ssl.keyStore.location="+z.keyStore(),
			"ssl.trustStore.location="+z.conf.certs.CAFile,
			"ssl.clientAuth=none")
	}
	lines = append(append(lines, z.conf.lines...), z.conf.peers...)
	return strings.Join(lines, "\n") + "\n"
}

func (z *ZooKeeper) newCommand() (*exec.Cmd, error) {
	file := filepath.Join(z.dir, "zoo.cfg")
	if err := os.WriteFile(file, []byte(z.file()), 0o600); err != nil {
		return nil, err
	}
	if z.conf.id != 0 {
		id := []byte(strconv.Itoa(z.conf.id))
		if err := os.WriteFile(filepath.Join(z.dir, "data", "myid"), id, 0o600); err != nil {
			return nil, err
		}
	}
	// The jar's manifest names the rest, in Debian's packages by the places of installed ones: what is unpacked
	// elsewhere comes before those. A logger that writes to standard error where there is one.
	path := filepath.Join(filepath.Dir(z.jar), "zookeeper-jute.jar") + string(os.PathListSeparator) + z.jar
	more := []string{"slf4j-simple.jar"}
	if z.conf.certs != nil {
		// What Netty itself needs is not among it.
		more = append(more, "netty-codec.jar", "netty-resolver.jar", "netty-transport-native-unix-common.jar")
	}
	for _, name := range more {
		path += string(os.PathListSeparator) + filepath.Join(filepath.Dir(z.jar), name)
	}
	flags := []string{
		"-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
		// They warn of every connection, and of every one that breaks: what tests do all day.
		"-Dorg.slf4j.simpleLogger.log.org.apache.zookeeper.server.ZooKeeperServer=error",
		"-Dorg.slf4j.simpleLogger.log.org.apache.zookeeper.server.NIOServerCnxn=error",
		// A peer that is cut off or hangs must not hold up an election: by default it does so for 5 s each
		// time, and the pauses between the votes grow to a minute.
		"-Dzookeeper.cnxTimeout=500", "-Dzookeeper.fastleader.maxNotificationInterval=1000",
		"-cp", path,
	}
	flags = append(append(flags, z.conf.flags...), "org.apache.zookeeper.server.quorum.QuorumPeerMain", file)
	// Not the test's context: it ends before the clean-up, which may still need the server.
	cmd := exec.CommandContext(context.Background(), z.java, flags...)
	cmd.Dir = z.dir
	// Not at each look, as others do: threads that read the file at the same moment spoil it for each
	// other, which has ended a Java program, and to read it takes longer than what it is for.
	cmd.Env = append(append(os.Environ(), "FAKETIME_CACHE_DURATION=1"), z.conf.clock.environment()...)
	return cmd, nil
}

// serves returns nil once the server answers, as a member of a quorum if it has peers.
func (z *ZooKeeper) serves() error {
	mode, err := z.Mode()
	if err == nil && mode == "" {
		err = errors.New("lab: it does not serve yet")
	}
	if err == nil && z.conf.certs != nil {
		err = greets(z.TLSAddr(), z.conf.certs)
	}
	return err
}

// greets returns nil once a handshake at addr succeeds. The port opens after the plain one, and a
// first handshake takes a program that has just started some seconds where the machine is busy.
func greets(addr string, certs *Certs) error {
	ctx, cancel := context.WithTimeout(context.Background(), readyTimeout)
	defer cancel()
	c, err := (&tls.Dialer{Config: certs.ClientConfig()}).DialContext(ctx, "tcp", addr)
	if err == nil {
		err = c.Close()
	}
	return err
}

// Addr returns the host:port that clients connect to.
func (z *ZooKeeper) Addr() string { return loopback(z.port) }

// TLSAddr returns the host:port that clients connect to with TLS.
func (z *ZooKeeper) TLSAddr() string { return loopback(z.tls) }

// Mode returns what the server says that it is: "standalone", "leader" or "follower"; "" while it
// does not serve.
func (z *ZooKeeper) Mode() (string, error) {
	text, err := z.FourLetters("srvr")
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(text) {
		if mode, ok := strings.CutPrefix(line, "Mode: "); ok {
			return strings.TrimSpace(mode), nil
		}
	}
	return "", nil
}

// FourLetters sends one of the commands of four letters, such as srvr or wchp, and returns the answer.
func (z *ZooKeeper) FourLetters(command string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", z.Addr())
	if err != nil {
		return "", err
	}
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(time.Second))
	if _, err := io.WriteString(c, command); err != nil {
		return "", err
	}
	var answer bytes.Buffer
	_, err = io.Copy(&answer, c)
	return answer.String(), err
}

// Nodes returns how many nodes there are.
func (z *ZooKeeper) Nodes(t TB) int {
	t.Helper()
	text, err := z.FourLetters("mntr")
	_, text, _ = strings.Cut(text, "zk_znode_count\t")
	text, _, _ = strings.Cut(text, "\n")
	count, failed := strconv.Atoi(text)
	if err != nil || failed != nil {
		t.Fatalf("lab: count the nodes of a ZooKeeper: %v, %v", err, failed)
	}
	return count
}
