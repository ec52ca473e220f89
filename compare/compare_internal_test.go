package compare

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker/backends"
	"github.com/golockers/locker/compare/internal/check"
	"github.com/golockers/locker/compare/internal/history"
	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/lab"
	"github.com/golockers/locker/internal/vocabulary"
)

func testOpeners() driver.Openers {
	o := badOpeners()
	maps.Copy(o, backends.Openers)
	return o
}

func TestMain(m *testing.M) {
	if os.Getenv("LOCKER_COMPARE_TEST") != "" {
		Main(testOpeners())
	}
	PlayHolder(testOpeners())
	m.Run()
}

// typed is the command, with each thing tried once.
func typed(args ...string) (status int, out, errs string) {
	var o, e strings.Builder
	status = execute(testOpeners(), append([]string{"--for=0s"}, args...), &o, &e)
	return status, o.String(), e.String()
}

// compareOne runs a plan, and returns its report.
func compareOne(t *testing.T, p plan) *history.Report {
	t.Helper()
	p.openers, p.shell, p.live, p.dir = testOpeners(), shell, testLive{t}, cmp.Or(p.dir, filepath.Join(t.TempDir(), "run"))
	report, err := p.run(t.Context())
	require.NoError(t, err)
	require.Empty(t, report.Interrupted)
	return report
}

type testLive struct{ t *testing.T }

func (l testLive) Write(b []byte) (int, error) {
	l.t.Log(strings.TrimSpace(string(b)))
	return len(b), nil
}

// cell finds a cell of the only service, of that fault if the rule is split by them.
func cell(t *testing.T, report *history.Report, rule, fault string) *history.Cell {
	t.Helper()
	for _, fault := range []string{fault, ""} {
		for _, row := range report.Rows {
			if row.Rule == rule && row.Fault == fault {
				return &row.Cells[0]
			}
		}
	}
	require.Fail(t, "no such row", "%s, %s", rule, fault)
	return nil
}

// says runs a plan until a cell has this verdict, and returns the cell: on a machine that stalls, nothing may
// be said, or a fault comes too late to break anything. A lost lease may be excused then, each time.
func says(t *testing.T, p plan, rule, fault string, want history.Verdict) *history.Cell {
	t.Helper()
	c := &history.Cell{}
	for try := 0; try < 3 && c.Verdict != want && (c.Broken == 0 || want != history.Held); try++ {
		c = cell(t, compareOne(t, p), rule, fault)
	}
	if want == history.Broken && rule == check.Kept && c.Verdict == history.Inconclusive {
		t.Log(c.Reason)
		require.GreaterOrEqual(t, excused(t, c.Reason), p.ttl/4, "less excuses nothing")
		return c
	}
	require.Equal(t, want, c.Verdict, "%+v", c)
	return c
}

var excuse = regexp.MustCompile(` lost its lease: .* processes waited for a processor for (\S+s)(?:, and an answer of its servers was due for (\S+s))?$`)

// excused is for how long a lease that was lost could not be renewed, since this machine did other things.
func excused(t *testing.T, reason string) (sum time.Duration) {
	t.Helper()
	parts := excuse.FindStringSubmatch(reason)
	require.NotNil(t, parts, reason)
	for _, part := range parts[1:] {
		d, err := time.ParseDuration(cmp.Or(part, "0s"))
		require.NoError(t, err)
		sum += d
	}
	return sum
}

// places is how many runs go on at the same time: they wait most of the time, whatever the number of
// processors, but each has three processes, and others are beside them.
var places = make(chan struct{}, 4)

type sideBySide struct {
	t   *testing.T
	all sync.WaitGroup
}

// run runs a test when there is a place for it: those that take longest come first.
func (s *sideBySide) run(name string, test func(t *testing.T)) {
	places <- struct{}{}
	s.all.Go(func() {
		defer func() { <-places }()
		s.t.Run(name, test)
	})
}

// Each flaw has to be found by the row that is meant for it: one for each rule and each script.
func TestKnownBadLocksAreBroken(t *testing.T) {
	t.Parallel()
	lab.Need(t, lab.ToolRedis)
	r := lab.StartRedis(t)
	all := sideBySide{t: t}
	defer all.all.Wait()
	for _, test := range []struct {
		flaw       flaw
		only, rule string
	}{
		{neverExpires, "holder-killed", check.Freed},
		{leavesGhosts, "replies-lost", check.Freed},
		{ownSignal, "holder-cut-off", check.Told},
		{forgetsTokens, healthy, check.Fencing},
		{losesLeases, healthy, check.Kept},
		{neverRenews, healthy, check.Kept},
		{noOwnerCheck, "unlock-late", check.Exclusion},
		{boasts, "holder-cut-off", check.Exclusion},
		{renewsOthers, "holder-stopped", check.Exclusion},
		{sharedSession, healthy, check.Exclusion},
		{ignoresCommands, "requests-late", check.Exclusion},
	} {
		all.run(string(test.flaw), func(t *testing.T) {
			c := says(t, plan{urls: []string{string(test.flaw) + "://" + r.Addr()}, ttl: time.Second,
				only: []string{test.only}}, test.rule, test.only, history.Broken)
			if c.Verdict == history.Broken {
				require.NotNil(t, c.Witness)
				t.Log(c.Worst, "|", c.Witness.Says)
			}
		})
	}
}

func TestGoodLocksAreHeld(t *testing.T) { isHeld(t, string(none)) }

func TestProveGoodLocksAreHeld(t *testing.T) {
	lab.NeedProve(t)
	isHeld(t, "redis") // which TestProveTheLab breaks less
}

func isHeld(t *testing.T, scheme string) {
	t.Parallel()
	lab.Need(t, lab.ToolRedis)
	report := compareOne(t, plan{urls: []string{scheme + "://" + lab.StartRedis(t).Addr()}, ttl: time.Second})
	assert.GreaterOrEqual(t, report.Trials, 8)
	isWhole(t, report)
}

// isWhole fails where something declared was broken.
func isWhole(t *testing.T, report *history.Report) {
	t.Helper()
	for _, row := range report.Rows {
		for _, c := range row.Cells {
			assert.NotEqual(t, history.Broken, c.Verdict, "%s: %s: %s", c.Service, row.Title, c.Worst)
		}
	}
}

// What our own backends declare agrees with what the lab shows, where servers fail, too.
func TestProveTheLab(t *testing.T) {
	lab.NeedProve(t)
	t.Parallel()
	for _, tool := range []string{lab.ToolRedis, lab.ToolEtcd, lab.ToolJava, lab.ToolZooJar, "postgres"} {
		lab.Need(t, tool)
	}
	report := compareOne(t, plan{ttl: time.Second, only: []string{"healthy", "holder-stopped", "holder-killed", "unlock-late",
		serverPause.ID, restarted.ID, minorityDown.ID}})
	isWhole(t, report)
	for _, s := range report.Run.Services {
		assert.Empty(t, s.Missing, s.Name)
	}
	for _, row := range report.Rows {
		for _, c := range row.Cells {
			if c.Verdict == history.NotTried {
				assert.NotEmpty(t, c.Reason, "%s, %s", c.Service, row.Title)
			}
		}
	}
}

// One thing has one name: what a service declares is required of `locker run` and of `locker compare`, and printed,
// with the same word.
func TestWhatIsDeclaredHasOneName(t *testing.T) {
	for _, rule := range check.Rules() {
		assert.NotEmpty(t, rule.Means, rule.Name)
	}
	for _, f := range []history.Fault{restarted, failedOver, clockJump, serverPause} {
		assert.NotEmpty(t, vocabulary.Means(f.ID), f.ID)
	}
}

func TestTheCommand(t *testing.T) {
	dir := t.TempDir()
	locks := t.TempDir()
	t.Setenv("TMPDIR", t.TempDir())
	for _, test := range []struct {
		name   string
		args   []string
		status int
		says   string // on stderr
	}{
		{"help", []string{"--help"}, ExitHeld, ""},
		{"flag", []string{"--nosuch"}, ExitUsage, "--help"},
		{"scheme", []string{"nosuch://x"}, ExitUsage, `there is no backend "nosuch"`},
		{"no service", []string{"nosuch"}, ExitUsage, `the lab has no "nosuch": it has file, redis`},
		{"lab", []string{"file=nosuch"}, ExitUsage, `the lab has no "nosuch"`},
		{"only", []string{"--only", "nosuch"}, ExitUsage, `there is no "nosuch" to try`},
		{"rule", []string{"--require", "nosuch"}, ExitUsage, `there is no rule "nosuch"`},
		{"fault", []string{"--fault", "restart"}, ExitUsage, "write NAME=COMMAND"},
		{"another fault", []string{"--fault", "a=true"}, ExitUsage, `there is no "a": there is server-pause`},
		{"heal without a fault", []string{"--heal", "restart=true"}, ExitUsage, "there is no --fault restart"},
		{"own fault in the lab", []string{"--fault", "restart=true"}, ExitUsage, "need services of your own"},
		{"own fault of a lab's", []string{"--fault", "restart=true", "file"}, ExitUsage, "need services of your own"},
		{"no TTL", []string{"--ttl", "0s", "memory://"}, ExitUsage, "a --ttl of 0s is not possible: give one from 10ms"},
		{"no time", []string{"--for=-1s", "memory://"}, ExitUsage, "a --for of -1s is not possible"},
		{"password", []string{"redis://me:secret@127.0.0.1:1"}, ExitUnavailable, "***@127.0.0.1:1"},
		{"memory", []string{"memory://"}, ExitUnavailable, "between goroutines of one process"},
		{"run", []string{"--out", filepath.Join(dir, "run"), "--only", "healthy", "--require", "exclusion",
			"file://" + locks}, ExitHeld, ""},
		{"second run", []string{"--out", filepath.Join(dir, "run"), "file://" + locks}, ExitUsage,
			"contains a run"},
		{"one is missing", []string{"--only", "healthy", "file://" + locks, "redis://127.0.0.1:1"},
			ExitNotTried, "unavailable"},
		{"not tried", []string{"--only", "healthy", "--require", "served", "file://" + locks}, ExitNotTried,
			"but was not tried"},
	} {
		t.Run(test.name, func(t *testing.T) {
			status, out, errs := typed(test.args...)
			assert.Equal(t, test.status, status, out+errs)
			assert.Contains(t, errs, test.says)
			assert.NotContains(t, out+errs, "secret")
		})
	}
}

// A holder that crashes makes no verdict, and what is not done while this machine stood still is not said
// to be the service's fault alone.
func TestWhatMakesNoVerdict(t *testing.T) {
	t.Parallel()
	for reason, inject := range map[string]func(b *bench){
		"ended by itself":         func(b *bench) { b.b.proc.Kill() },
		`-a\d+\) ended by itself`: func(b *bench) { b.a.proc.Kill() }, // which holds, without a deadline; a2 if it is repeated
		`it was not granted \(this machine stalled for \S+s meanwhile\)`: func(b *bench) {
			b.run.stalled.Add(int64(2 * time.Second))
			b.Fatalf("it was not granted")
		},
	} {
		report := compareOne(t, plan{only: []string{restarted.ID}, lab: []labService{{"file", func(b *bench) {
			startFile(b)
			delete(b.untried, restarted.ID)
			b.faults = []serverFault{{Fault: restarted, inject: func(b *bench) (string, func()) {
				inject(b)
				return "", func() {}
			}}}
		}}}})
		c := cell(t, report, check.Exclusion, restarted.ID)
		assert.Equal(t, history.Inconclusive, c.Verdict, "%+v", c)
		assert.Regexp(t, reason, c.Reason)
	}
}

// That a holder was stopped excuses nothing, in whichever trial: the machine did not stall.
func TestAStoppedHolderIsNoStall(t *testing.T) {
	lab.NeedPause(t)
	j, err := history.Create(t.TempDir())
	require.NoError(t, err)
	defer j.Close()
	h := &holder{bench: &bench{run: &run{journal: j}}, process: "a", proc: lab.StartProcess(t, "a",
		func() (*exec.Cmd, error) { return exec.CommandContext(context.Background(), "sleep", "60"), nil })}
	stall := history.Event{Kind: history.Stall, Process: "a", Value: 1e9}
	j.Add(history.Event{Kind: history.TrialBegin, Trial: "another"})
	h.hear(stall)
	h.stop()
	h.hear(stall)
	j.Add(history.Event{Kind: history.TrialEnd, Trial: "another"})
	events, err := j.End("another")
	require.NoError(t, err)
	assert.Len(t, events, 3, "%+v", events)
}

// A Redis that is restarted without its data gives a lock away: five of them do not, unless nobody is there
// to keep it from voting.
func TestProveRestartedWithoutItsData(t *testing.T) {
	lab.NeedProve(t)
	t.Parallel()
	t.Run("guard", func(t *testing.T) { restartsEmpty(t, "4s", history.Held) })
	t.Run("no guard", func(t *testing.T) { restartsEmpty(t, "off", history.Undeclared) })
}

func TestProveRestartedWithoutItsDataThatWasKept(t *testing.T) {
	lab.NeedProve(t)
	restartsEmpty(t, "4s", history.Held, lab.WithAppendOnly())
}

func restartsEmpty(t *testing.T, guard string, verdict history.Verdict, opts ...lab.Option) {
	t.Parallel()
	lab.Need(t, lab.ToolRedis)
	// The TTL is longer than a restart takes on a busy machine.
	says(t, plan{ttl: 3 * time.Second, only: []string{restartedEmpty.ID}, lab: []labService{
		{"redlock", func(b *bench) { redlockWith(b, "restart_guard="+guard, opts...) }},
	}}, check.Exclusion, restartedEmpty.ID, verdict)
}

// The user's own command makes a server forget.
func TestFaultsOfTheUsersOwn(t *testing.T) {
	t.Parallel()
	lab.Need(t, lab.ToolRedis)
	cli := lab.Need(t, "redis-cli")
	r := lab.StartRedis(t)
	dir := t.TempDir()
	says(t, plan{
		// The TTL is longer than the commands take on a busy machine: somebody asks before the holder renews.
		urls: []string{string(claimsRestart) + "://" + r.Addr()}, ttl: 3 * time.Second, only: []string{restarted.ID},
		faults: map[string]ownFault{restarted.ID: {
			inject: fmt.Sprintf("%s -p %d FLUSHALL", cli, r.Port()),
			heal:   "touch " + filepath.Join(dir, "healed"),
		}},
	}, check.Exclusion, restarted.ID, history.Broken)
	assert.FileExists(t, filepath.Join(dir, "healed"))
}

// A stall is why a round is repeated, but not one that has shown what is broken.
func TestWhatIsBrokenIsNotRepeated(t *testing.T) {
	t.Parallel()
	lab.Need(t, lab.ToolRedis)
	c := says(t, plan{ttl: 2 * time.Second, only: []string{restarted.ID}, lab: []labService{{string(claimsRestart), func(b *bench) {
		r := lab.StartRedis(b)
		b.at(string(claimsRestart)+"://"+r.Addr(), alone)
		b.faults = []serverFault{{Fault: restarted, inject: func(b *bench) (string, func()) {
			b.run.stalled.Add(int64(time.Minute))
			return fmt.Sprint(r.MustDo(b, "FLUSHALL")), func() {}
		}}}
	}}}}, check.Exclusion, restarted.ID, history.Broken)
	assert.Equal(t, fmt.Sprintf("%s-%d", claimsRestart, c.Trials+c.Set), c.Outcomes[0].Trial, "it was repeated: %+v", c)
}

// A machine on which processes wait for a processor gets longer TTLs, and fewer trials at once.
func TestNoMoreIsTriedThanTheMachineCarries(t *testing.T) {
	t.Parallel()
	for wait, want := range map[time.Duration]string{1: "2 at once · TTL 1s · TTL 2s", 20e6: "2 at once · TTL 1s · TTL 2s",
		21e6: "1 at once · TTL 2s · TTL 4s", 80e6: "1 at once · TTL 4s · TTL 8s", 1e9: "1 at once · TTL 4s · TTL 8s"} {
		r := &run{plan: plan{live: testLive{t}, processors: 1}}
		r.carry([]*bench{{ttl: time.Second}, {ttl: 2 * time.Second}, {ttl: 2 * time.Second}}, wait)
		assert.Equal(t, " · "+want, r.head.Machine, wait)
		assert.Equal(t, want[:1], fmt.Sprint(cap(r.places)), wait)
	}
	var started, under, most atomic.Int64
	report := compareOne(t, plan{processors: 1, urls: []string{"file", "file", "file", "file"}, only: []string{restarted.ID},
		lab: []labService{{"file", func(b *bench) {
			time.Sleep(time.Duration(b.index/3) * 2 * time.Second) // longer than holders take to start
			startFile(b)
			delete(b.untried, restarted.ID)
			b.faults = []serverFault{{Fault: restarted, before: func(*bench) {
				most.Store(max(most.Load(), under.Add(1)))
				assert.Equal(t, int64(4), started.Load(), "it is tried while another still starts")
			}, inject: func(*bench) (string, func()) { return "nothing", func() {} },
				after: func(*bench) { under.Add(-1) }}}
			started.Add(1)
		}}}})
	assert.Contains(t, []string{"1", "2"}, regexp.MustCompile(`(\d) at once`).FindStringSubmatch(report.Run.Machine)[1])
	assert.LessOrEqual(t, most.Load(), int64(2))
	assert.GreaterOrEqual(t, report.Trials, 4)
}

// Everything is tried once, whatever it takes, and then again and again while there is time. (Each may be
// tried twice: on a machine that stalls.)
func TestItIsTriedAgain(t *testing.T) {
	t.Parallel()
	for tries, want := range map[time.Duration]string{0: "", time.Hour: "it was interrupted"} {
		faults, dir := 0, filepath.Join(t.TempDir(), "run")
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		report, err := plan{openers: testOpeners(), live: testLive{t}, dir: dir,
			tries: tries, only: []string{restarted.ID}, lab: []labService{{"file", func(b *bench) {
				startFile(b)
				delete(b.untried, restarted.ID)
				b.faults = []serverFault{{Fault: restarted, inject: func(*bench) (string, func()) {
					if faults++; faults > 4 {
						cancel() // which cuts this trial short: it is not counted
					}
					return "nothing", func() {}
				}}}
			}}}}.run(ctx)
		require.NoError(t, err)
		assert.Equal(t, want, report.Interrupted)
		if want == "" {
			continue
		}
		c := cell(t, report, check.Exclusion, restarted.ID)
		assert.Equal(t, 4, c.Trials+c.Set)
	}
}

// A server that does not answer makes a holder lose its lease: whether it was given a processor, nobody knows.
func TestAServerThatDoesNotAnswerIsNotBlamed(t *testing.T) {
	t.Parallel()
	lab.Need(t, lab.ToolRedis)
	c := says(t, plan{ttl: time.Second, only: []string{healthy}, lab: []labService{{"redis", func(b *bench) {
		r := lab.StartRedis(b)
		link := lab.StartProxy(b, r.Addr())
		link.OnRequest("/kept", func(*lab.Link) {
			time.AfterFunc(300*time.Millisecond, func() { link.Requests(lab.Hold) })
			time.AfterFunc(2*time.Second, func() { link.Requests(lab.Pass) })
		})
		b.at("redis://"+link.Addr(), alone)
	}}}}, check.Kept, healthy, history.Inconclusive)
	assert.Regexp(t, `lost its lease.* an answer of its servers was due for \S+s$`, c.Reason)
}

// A terminal has one line of progress, drawn over itself, and news above it; none of it is left at the end.
func TestATerminalShowsOneLineOfProgress(t *testing.T) {
	t.Parallel()
	for _, interrupt := range []bool{false, true} {
		var live strings.Builder
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		_, err := plan{openers: testOpeners(), live: &live, inPlace: true, dir: filepath.Join(t.TempDir(), "run"),
			only: []string{healthy, restarted.ID}, lab: []labService{{"file", func(b *bench) {
				startFile(b)
				delete(b.untried, restarted.ID)
				b.faults = []serverFault{{Fault: restarted, inject: func(b *bench) (string, func()) {
					b.sleep(time.Second) // the line is drawn meanwhile
					if interrupt {
						cancel()
						b.sleep(time.Second)
					}
					b.Fatalf("news")
					return "", nil
				}}}
			}}}}.run(ctx)
		require.NoError(t, err)
		assert.Regexp(t, `\r1 of 2 trials · about \d+s left`, live.String())
		left := regexp.MustCompile(`(?m)^[^\n]*\r`).ReplaceAllString(live.String(), "")
		says := `(.*: restart: news.*\n)+`
		if interrupt {
			says = `Ending early\. .*\n`
		}
		assert.Regexp(t, `^.* a process waits up to .*\n(.*: repeated, because this machine stalled .*\n|`+says+`)*$`, left)
		assert.Regexp(t, says, left)
	}
	at := func(seconds int64) time.Time { return time.Unix(seconds, 0) }
	line := func(repeats int, now int64, shares ...share) string {
		return progressLine(shares, repeats, at(0), at(now), at(180))
	}
	assert.Equal(t, "0 of 30 trials", line(0, 1, share{0, 10, at(0)}, share{0, 20, at(0)}))
	assert.Equal(t, "5 of 30 trials · about 4m30s left", line(0, 90, share{0, 10, at(0)}, share{5, 20, at(60)}))
	assert.Equal(t, "9 of 30 trials · about 3m50s left", line(0, 90, share{4, 10, at(60)}, share{5, 20, at(80)}))
	assert.Equal(t, "19 of 20 trials · about 1s left", line(0, 190, share{19, 20, at(80)}))
	assert.Equal(t, "20 of 20 trials, 7 repeated · about 9s left", line(7, 171, share{20, 20, at(99)}))
	assert.Equal(t, "20 of 20 trials, 7 repeated · ending", line(7, 240, share{20, 20, at(99)}))
}

// What is required has to be shown: "?" is not enough, in whichever row of the rule.
func TestWhatIsRequiredIsNotInconclusive(t *testing.T) {
	t.Parallel()
	row := func(rule string, v history.Verdict) history.Row {
		return history.Row{Rule: rule, Title: rule + ": healthy", Cells: []history.Cell{{Verdict: v, Reason: "it stalled"}}}
	}
	r := &history.Report{Run: history.Run{Services: []history.Service{{Name: "s"}}}, Rows: []history.Row{
		row(check.Exclusion, history.Held), row(check.Exclusion, history.Inconclusive), row(check.Fencing, history.Held)}}
	status, why := (&plan{require: []string{check.Fencing}}).status(r)
	assert.Equal(t, ExitHeld, status, why)
	status, why = (&plan{require: []string{check.Exclusion}}).status(r)
	assert.Equal(t, ExitNotTried, status)
	assert.Equal(t, []string{"s: exclusion: healthy is required, but inconclusive (?): it stalled"}, why)
}
