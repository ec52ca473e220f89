package lab

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"
)

func standZooKeeper(t TB) *standing {
	t.Helper()
	s, _ := threeZooKeeper(t)
	return s
}

func threeZooKeeper(t TB, opts ...ZooKeeperOption) (*standing, *ZooKeeperEnsemble) {
	t.Helper()
	e := StartZooKeeperEnsemble(t, 3, opts...)
	return stand(t, 4*time.Second, under("zookeeper", "/?ttl=4s"), e.Addrs()...), e
}

// zooCertificate is for servers that look for a new certificate while they run.
func zooCertificate(t TB) *Aged {
	certs := NewCerts(t)
	z := StartZooKeeper(t, WithZooKeeperTLS(certs), WithZooKeeperJar(Need(t, ToolNewZooJar)),
		WithZooKeeperConfig("client.certReload=true"))
	at := under("zookeepers", "/?ttl=4s&ca="+url.QueryEscape(certs.CAFile))
	s := stand(t, 4*time.Second, at, z.TLSAddr())
	return s.then(s.newCertificate(func(t TB) {
		err := certs.Renew()
		if err == nil {
			err = z.install(certs)
		}
		if err != nil {
			t.Fatal(err)
		}
	}, dialTLS(z.TLSAddr(), certs)))
}

// zooMembers has the others give each new member what it lacks.
func zooMembers(t TB) *Aged {
	s, e := threeZooKeeper(t)
	for _, z := range e.Servers {
		s.then(func(t TB) string {
			z.Kill()
			data := filepath.Join(z.dir, "data", "version-2")
			err := os.RemoveAll(data)
			if err != nil {
				t.Fatal(err)
			}
			z.Restart(t)
			mode, _ := z.Mode()
			return fmt.Sprintf("a member lost its disk, and is a %s", mode)
		})
	}
	return s.aged
}

func zooVersions(t TB) *Aged {
	next := Need(t, ToolNewZooJar)
	s, e := threeZooKeeper(t)
	for _, z := range e.Servers {
		s.then(rolled(z.Process, z.version, func() { z.jar = next }))
	}
	return s.aged
}

func (z *ZooKeeper) version() string {
	text, _ := z.FourLetters("srvr")
	_, text, _ = strings.Cut(text, "Zookeeper version: ")
	text, _, _ = strings.Cut(text, "-")
	return text
}

// zooUpkeep has servers take a snapshot every few requests, and has clients make them.
func zooUpkeep(t TB) *Aged {
	s, e := threeZooKeeper(t, WithZooKeeperConfig("snapCount=10"))
	step := func(t TB) string {
		snapshots := func() int {
			n := 0
			for _, z := range e.Servers {
				found, _ := filepath.Glob(filepath.Join(z.dir, "data", "version-2", "snapshot.*"))
				n += len(found)
			}
			return n
		}
		before := snapshots()
		more := until(t, func() int { return snapshots() - before })
		return fmt.Sprintf("%d snapshots were taken, beside %d before", more, before)
	}
	return s.then(thrice(step)...)
}
