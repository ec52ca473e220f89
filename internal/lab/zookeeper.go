package lab

import (
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
// of a [ZooKeeperEnsemble]. Its sessions are counted in ticks of 200 ms, and can be as short as two of them
// ([WithConfig]: tickTime). Its methods may be called from any goroutine, except those that take a TB.
type ZooKeeper struct {
	*Process        // the other ports: for TLS, and for data and elections among peers
	java     string // paths
	jar      string
	id       int      // in the ensemble; 0: standalone
	peers    []string // the lines about the ensemble
}

// StartZooKeeper starts a standalone server, and returns once it serves. Its data survive a Kill and a
// [ZooKeeper.Restart]. It is killed when the test ends. Without java or zookeeper.jar the test is
// skipped; see [Need].
func StartZooKeeper(t TB, opts ...Option) (z *ZooKeeper) {
	t.Helper()
	launch(t, func() []*Process {
		z = newZooKeeper(t, "zookeeper", opts)
		return []*Process{z.Process}
	})
	return z
}

func newZooKeeper(t TB, name string, opts []Option) *ZooKeeper {
	t.Helper()
	c := of(opts)
	z := &ZooKeeper{jar: Need(t, cmp.Or(c.tool, ToolZooJar)), java: Need(t, ToolJava)}
	z.Process = newProcess(t, name, c, 4)
	z.command, z.answers = z.newCommand, z.serves
	err := os.Mkdir(z.data(), 0o700)
	if err == nil && z.certs != nil {
		err = z.install(z.certs)
	}
	if err != nil {
		t.Fatalf("lab: prepare %s: %v", name, err)
	}
	return z
}

func (z *ZooKeeper) data() string { return filepath.Join(z.dir, "data") }

// install puts a certificate where the server looks for it.
func (z *ZooKeeper) install(c *Certs) error {
	cert, err := os.ReadFile(c.CertFile)
	key, failed := os.ReadFile(c.KeyFile)
	return errors.Join(err, failed, os.WriteFile(z.keyStore(), append(key, cert...), 0o600))
}

func (z *ZooKeeper) keyStore() string { return filepath.Join(z.dir, "server.pem") }

// file is the text of zoo.cfg.
func (z *ZooKeeper) file() string {
	lines := []string{
		"tickTime=200",
		"maxSessionTimeout=60000",
		"initLimit=10", // an election that has to be repeated takes that long
		"syncLimit=10",
		"maxClientCnxns=0",
		"dataDir=" + z.data(),
		"clientPort=" + strconv.Itoa(z.Port()),
		"clientPortAddress=127.0.0.1",
		"admin.enableServer=false",
		"4lw.commands.whitelist=*",
		// Killing a process loses nothing that it wrote; syncing would only slow the tests down.
		"forceSync=no",
		"preAllocSize=1024",
	}
	if z.certs != nil {
		lines = append(lines,
			"secureClientPort="+strconv.Itoa(z.ports[1]),
			"serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory",
			"ssl.keyStore.location="+z.keyStore(),
			"ssl.trustStore.location="+z.certs.CAFile,
			"ssl.clientAuth=none")
	}
	lines = append(append(lines, z.assigned("")...), z.peers...)
	return strings.Join(lines, "\n") + "\n"
}

func (z *ZooKeeper) newCommand() (*exec.Cmd, error) {
	file := filepath.Join(z.dir, "zoo.cfg")
	err := os.WriteFile(file, []byte(z.file()), 0o600)
	if err == nil && z.id != 0 {
		err = os.WriteFile(filepath.Join(z.data(), "myid"), []byte(strconv.Itoa(z.id)), 0o600)
	}
	// The jar's manifest names the rest, in Debian's packages by the places of installed ones: what is unpacked
	// elsewhere comes before those. A logger that writes to standard error where there is one. What Netty needs
	// for TLS is not among it.
	var path []string
	for _, name := range []string{"zookeeper-jute.jar", filepath.Base(z.jar), "slf4j-simple.jar", "netty-codec.jar",
		"netty-resolver.jar", "netty-transport-native-unix-common.jar"} {
		path = append(path, filepath.Join(filepath.Dir(z.jar), name))
	}
	flags := []string{
		"-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
		// They warn of every connection, and of every one that breaks: what tests do all day.
		"-Dorg.slf4j.simpleLogger.log.org.apache.zookeeper.server.ZooKeeperServer=error",
		"-Dorg.slf4j.simpleLogger.log.org.apache.zookeeper.server.NIOServerCnxn=error",
		// A peer that is cut off or hangs must not hold up an election: by default it does so for 5 s each
		// time, and the pauses between the votes grow to a minute.
		"-Dzookeeper.cnxTimeout=500", "-Dzookeeper.fastleader.maxNotificationInterval=1000",
		"-cp", strings.Join(path, string(os.PathListSeparator)),
	}
	flags = append(append(flags, z.config.java...), "org.apache.zookeeper.server.quorum.QuorumPeerMain", file)
	cmd := z.program(z.java, flags...)
	// Not at each look, as others do: threads that read the file at the same moment spoil it for each
	// other, which has ended a Java program, and to read it takes longer than what it is for.
	//
	// What libfaketime does for old versions of glibc makes each timed wait of a Java program return at once, so that
	// a dozen threads keep the processors busy while nobody asks the server anything.
	cmd.Env = append(cmd.Env, "FAKETIME_NO_CACHE=0", "FAKETIME_CACHE_DURATION=1", "FAKETIME_FORCE_MONOTONIC_FIX=0")
	return cmd, err
}

// serves returns nil once the server answers, as a member of a quorum if it has peers.
func (z *ZooKeeper) serves() error {
	mode, err := z.Mode()
	if err == nil && mode == "" {
		err = errors.New("lab: it does not serve yet")
	}
	if err != nil || z.certs == nil {
		return err
	}
	// The port for TLS opens later, and a first handshake takes a program that has just started some seconds where
	// the machine is busy.
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	c, err := (&tls.Dialer{Config: z.certs.ClientConfig()}).DialContext(ctx, "tcp", z.TLSAddr())
	if err == nil {
		err = c.Close()
	}
	return err
}

// TLSAddr returns the host:port that clients connect to with TLS.
func (z *ZooKeeper) TLSAddr() string { return loopback(z.ports[1]) }

// Now returns what the clock says of a server that was started [WithClock].
func (z *ZooKeeper) Now() time.Time { return z.clock.now() }

// Mode returns what the server says that it is: "standalone", "leader" or "follower"; "" while it
// does not serve.
func (z *ZooKeeper) Mode() (string, error) { return z.told("srvr", "Mode: ", "\n") }

// told returns what stands between two texts in the answer to a command.
func (z *ZooKeeper) told(command, after, before string) (string, error) {
	text, err := z.FourLetters(command)
	_, text, _ = strings.Cut(text, after)
	text, _, _ = strings.Cut(text, before)
	return strings.TrimSpace(text), err
}

// FourLetters sends one of the commands of four letters, such as srvr or wchp, and returns the answer.
func (z *ZooKeeper) FourLetters(command string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), probe)
	defer cancel()
	c, err := new(net.Dialer).DialContext(ctx, "tcp", z.Addr())
	if err != nil {
		return "", err
	}
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(probe))
	if _, err := io.WriteString(c, command); err != nil {
		return "", err
	}
	answer, err := io.ReadAll(c)
	return string(answer), err
}

// Upgrade stops the server, and starts it again with another version, one of the Tool constants, and its data.
func (z *ZooKeeper) Upgrade(t TB, tool string) {
	t.Helper()
	z.Stop()
	z.jar = Need(t, tool)
	z.Restart(t)
}
