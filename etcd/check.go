package etcd

import (
	"context"
	"errors"
	"fmt"
	"strings"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/golockers/locker/driver"
)

// Check implements [driver.Checker].
func (b *Backend) Check(ctx context.Context) ([]driver.Finding, error) {
	var all []driver.Finding
	add := func(severity driver.Severity, what, found, advice string) {
		all = append(all, driver.Finding{Severity: severity, What: what, Found: found, Advice: advice})
	}
	switch err := b.check(ctx); {
	case isOtherCluster(err):
		add(driver.SeverityProblem, "clusters", err.Error(), "no lock can be had")
		return all, nil
	case err != nil:
		return nil, err
	}
	add(driver.SeverityOK, "requests", "etcd at "+b.addr()+" reads and writes below "+b.keys.base, "")
	b.checkMembers(ctx, add)
	for _, m := range b.pool.all() {
		limited, cancel := context.WithTimeout(ctx, b.opts.Timeout)
		status, err := b.pool.look(limited, m.addr)
		cancel()
		switch {
		case isOtherCluster(err):
			add(driver.SeverityProblem, m.addr, err.Error(), "two clients can hold one lock, one in each cluster")
		case err != nil:
			how, advice := "does not answer", "start it again"
			if isRefusal(err) {
				how, advice = "refused", "see what it refuses"
			}
			add(driver.SeverityWarning, m.addr, fmt.Sprintf("%s: %v", how, err),
				advice+", or take it out of the URL: until then the cluster survives one crash less")
		default:
			b.checkMember(add, m, status)
		}
	}
	return all, nil
}

type addFinding func(severity driver.Severity, what, found, advice string)

// look asks a member for its state, each time on a new connection: what is behind one endpoint may be several
// servers.
func (p *pool) look(ctx context.Context, addr string) (status *pb.StatusResponse, err error) {
	for range looks {
		m, err := p.newMember(addr)
		if err != nil {
			return nil, err
		}
		if err = m.connect(ctx); err == nil {
			status, err = m.status(ctx)
		}
		if err == nil {
			p.mu.Lock()
			err = p.compare(m, status.Header)
			p.mu.Unlock()
		}
		_ = m.conn.Close()
		if err != nil {
			return nil, err
		}
	}
	return status, nil
}

// looks: of two servers that take turns, or chosen at random, one hardly gets all of so many.
const looks = 5

func (b *Backend) checkMember(add addFinding, m *member, status *pb.StatusResponse) {
	severity, advice := driver.SeverityOK, ""
	var major, minor int
	_, err := fmt.Sscanf(status.Version, "%d.%d", &major, &minor)
	if err != nil || major < 3 || major == 3 && minor < oldestMinor {
		severity = driver.SeverityProblem
		advice = fmt.Sprintf("the oldest etcd that is tested is 3.%d: upgrade", oldestMinor)
	}
	add(severity, "version of "+m.addr, status.Version, advice)
	for _, e := range status.Errors {
		advice := "see etcdctl endpoint status and the log of the member"
		if strings.Contains(e, "NOSPACE") {
			advice = "no lock can be had: compact and defragment it, raise --quota-backend-bytes, " +
				"then run etcdctl alarm disarm"
		}
		add(driver.SeverityProblem, "alarm of "+m.addr, e, advice)
	}
	quota := status.DbSizeQuota // 0: before 3.6, it is not told
	used := fmt.Sprintf("%d MiB of which %d MiB are in use", status.DbSize>>20, status.DbSizeInUse>>20)
	if quota > 0 && status.DbSize > quota/10*8 {
		add(driver.SeverityWarning, "store of "+m.addr, used, fmt.Sprintf(
			"no lock can be had beyond %d MiB: set --auto-compaction-retention, then defragment", quota>>20))
	} else {
		add(driver.SeverityOK, "store of "+m.addr, used, "")
	}
}

// oldestMinor is the oldest etcd 3 that the tests run with.
const oldestMinor = 4

// voters returns how many voting members the cluster has.
func (b *Backend) voters(ctx context.Context) (n int, err error) {
	resp := new(pb.MemberListResponse)
	_, err = b.pool.send(ctx, ordinary, "Cluster/MemberList", new(pb.MemberListRequest), resp)
	if err != nil {
		return 0, err
	}
	for _, m := range resp.Members {
		if !m.IsLearner {
			n++
		}
	}
	return n, nil
}

func (b *Backend) checkMembers(ctx context.Context, add addFinding) {
	n, err := b.voters(ctx)
	found := fmt.Sprintf("%d voting members", n)
	switch {
	case err != nil:
		text := "give Options.Members (members=n in the URL)"
		if errors.Is(explain("", "", err), driver.ErrUnavailable) {
			text = "ask again"
		}
		add(driver.SeverityInfo, "members", fmt.Sprintf("cannot be asked for: %v", err), text)
	case n == 1:
		add(driver.SeverityWarning, "members", "one voting member",
			"no lock can be had while it is down: use three")
	case n%2 == 0:
		add(driver.SeverityWarning, "members", found,
			fmt.Sprintf("they survive no more crashes than %d: use an odd number", n-1))
	default:
		add(driver.SeverityOK, "members", found, "")
	}
	if err == nil && b.opts.Members > 0 && b.opts.Members != n {
		add(driver.SeverityProblem, "Options.Members", fmt.Sprintf("%d, and the cluster has %d", b.opts.Members, n),
			"set it to the number of voting members: Guarantees rests on it")
	}
	if err == nil && len(b.pool.all()) < n {
		add(driver.SeverityInfo, "addresses", fmt.Sprintf("%d for %d members", len(b.pool.all()), n),
			"give all of them: no lock can be had while those that are given are down")
	}
}
