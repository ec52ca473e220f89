package compare

import (
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/golockers/locker/bridge"
)

// address is a backend's URL whose hosts can be replaced by proxies.
type address struct {
	before, after string   // the parts before and after the hosts
	hosts         []string // host:port; nil if clients cannot use proxies
	why           string   // and the reason
	straight      string   // the URL as given
	shown         string   // the same without a password
}

// ports are the default ports of schemes whose URLs may leave the port out; below zero, with TLS.
var ports = map[string]int{
	"redis": 6379, "rediss": -6379, "redlock": 6379, "redlocks": -6379, "etcd": 2379, "etcds": -2379,
	"zookeeper": 2181, "zookeepers": -2181, "postgres": 5432, "postgresql": 5432,
	"mysql": 3306, "mysqls": -3306,
}

// parseAddress finds the hosts in rawURL.
func parseAddress(rawURL string) (address, error) {
	urls, err := bridge.ParseURLs(rawURL)
	if err != nil {
		return address{}, err
	}
	a, u := address{straight: rawURL, shown: urls.String()}, urls[0]
	switch {
	case len(urls) > 1:
		a.why = "there is no single network between its clients and two services"
	case strings.Contains(u.Scheme, "+"):
		a.why = "Sentinel and Redis Cluster send clients to the servers' own addresses, past any proxy"
	case u.Scheme == "kubernetes":
		a.why = "its URL names a namespace: each client finds the API server by itself, past any proxy"
	case u.Hosts == nil:
		a.why = "no network between its clients and the service: the URL has no host"
	case u.Param("host", "") != "" || u.Param("addr", "") != "":
		a.why = "the URL has hosts among its parameters: write all of them before the path"
	}
	if a.why != "" {
		return a, nil
	}
	port := ports[u.Scheme]
	for _, h := range u.Hosts {
		if _, _, err := net.SplitHostPort(h); err != nil {
			if port == 0 {
				a.hosts, a.why = nil, fmt.Sprintf("the host %s has no port: write host:port in the URL", h)
				return a, nil
			}
			h = net.JoinHostPort(strings.Trim(h, "[]"), strconv.Itoa(max(port, -port)))
		}
		a.hosts = append(a.hosts, h)
	}
	scheme, rest, _ := strings.Cut(rawURL, "://")
	end := len(rest)
	if i := strings.IndexAny(rest, "/?"); i >= 0 {
		end = i
	}
	a.before, a.after = scheme+"://"+rest[:strings.LastIndex(rest[:end], "@")+1], rest[end:]
	if port < 0 && !strings.Contains(a.after, "server_name=") {
		// Through a proxy, the certificate is checked for the server's name.
		host, _, _ := net.SplitHostPort(a.hosts[0])
		path, query, _ := strings.Cut(a.after, "?")
		a.after = strings.TrimSuffix(path+"?server_name="+host+"&"+query, "&")
	}
	return a, nil
}

// through is the URL with each host replaced by another address.
func (a address) through(hosts []string) string {
	if a.hosts == nil {
		return a.straight
	}
	return a.before + strings.Join(hosts, ",") + a.after
}
