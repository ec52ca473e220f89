package etcd

import (
	"context"
	"errors"
	"fmt"
	"strings"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/golockers/locker"
)

// Check implements [locker.Checker].
func (b *Backend) Check(ctx context.Context) ([]locker.Finding, error) {
	if err := b.check(ctx); err != nil {
		return nil, err
	}
	var all []locker.Finding
	add := func(severity locker.Severity, what, found, advice string) {
		all = append(all, locker.Finding{Severity: severity, What: what, Found: found, Advice: advice})
	}
	add(locker.SeverityOK, "requests", "etcd at "+b.addr()+" reads and writes below "+b.keys.base, "")
	b.checkMembers(ctx, add)
	for _, m := range b.pool.all() {
		limited, cancel := context.WithTimeout(ctx, b.opts.Timeout)
		status, err := m.status(limited)
		cancel()
		if err != nil {
			add(locker.SeverityWarning, m.addr, fmt.Sprintf("does not answer: %v", err),
				"start it again, or take it out of the URL: until then the cluster survives one crash less")
			continue
		}
		b.checkMember(add, m, status)
	}
	return all, nil
}

type addFinding func(severity locker.Severity, what, found, advice string)

// status asks the member itself for its state.
func (m *member) status(ctx context.Context) (*pb.StatusResponse, error) {
	if err := m.connect(ctx); err != nil {
		return nil, err
	}
	return pb.NewMaintenanceClient(m.conn).Status(ctx, &pb.StatusRequest{})
}

func (b *Backend) checkMember(add addFinding, m *member, status *pb.StatusResponse) {
	severity, advice := locker.SeverityOK, ""
	var major, minor int
	_, err := fmt.Sscanf(status.Version, "%d.%d", &major, &minor)
	if err != nil || major < 3 || major == 3 && minor < oldestMinor {
		severity = locker.SeverityProblem
		advice = fmt.Sprintf("the oldest etcd that is tested is 3.%d: upgrade", oldestMinor)
	}
	add(severity, "version of "+m.addr, status.Version, advice)
	for _, e := range status.Errors {
		advice := "see etcdctl endpoint status and the log of the member"
		if strings.Contains(e, "NOSPACE") {
			advice = "no lock can be had: compact and defragment it, raise --quota-backend-bytes, " +
				"then run etcdctl alarm disarm"
		}
		add(locker.SeverityProblem, "alarm of "+m.addr, e, advice)
	}
	quota := status.DbSizeQuota // 0: before 3.6, it is not told
	used := fmt.Sprintf("%d MiB of which %d MiB are in use", status.DbSize>>20, status.DbSizeInUse>>20)
	if quota > 0 && status.DbSize > quota/10*8 {
		add(locker.SeverityWarning, "store of "+m.addr, used, fmt.Sprintf(
			"no lock can be had beyond %d MiB: set --auto-compaction-retention, then defragment", quota>>20))
	} else {
		add(locker.SeverityOK, "store of "+m.addr, used, "")
	}
}

// oldestMinor is the oldest etcd 3 that the tests run with.
const oldestMinor = 4

// voters returns how many voting members the cluster has.
func (b *Backend) voters(ctx context.Context) (n int, err error) {
	resp := new(pb.MemberListResponse)
	_, err = b.pool.invoke(ctx, ordinary, "Cluster/MemberList", new(pb.MemberListRequest), resp)
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
		if errors.Is(explain("", "", err), locker.ErrUnavailable) {
			text = "ask again"
		}
		add(locker.SeverityInfo, "members", fmt.Sprintf("cannot be asked for: %v", err), text)
	case n == 1:
		add(locker.SeverityWarning, "members", "one voting member",
			"no lock can be had while it is down: use three")
	case n%2 == 0:
		add(locker.SeverityWarning, "members", found,
			fmt.Sprintf("they survive no more crashes than %d: use an odd number", n-1))
	default:
		add(locker.SeverityOK, "members", found, "")
	}
	if err == nil && b.opts.Members > 0 && b.opts.Members != n {
		add(locker.SeverityProblem, "Options.Members", fmt.Sprintf("%d, and the cluster has %d", b.opts.Members, n),
			"set it to the number of voting members: Guarantees rests on it")
	}
	if err == nil && len(b.pool.all()) < n {
		add(locker.SeverityInfo, "addresses", fmt.Sprintf("%d for %d members", len(b.pool.all()), n),
			"give all of them: no lock can be had while those that are given are down")
	}
}
