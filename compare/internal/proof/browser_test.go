package proof_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker/compare/internal/check"
	"github.com/golockers/locker/compare/internal/history"
	"github.com/golockers/locker/compare/internal/report"
)

// browser is a page of a report in a headless Chromium without a network.
type browser struct {
	t   *testing.T
	ctx context.Context

	mu       sync.Mutex
	troubles []string // what the page wrote to the console, threw, or asked a network for
}

func chromium(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	if os.Getenv("LOCKER_REQUIRE_SERVERS") != "" {
		t.Fatal("no chromium here: ./scripts/servers installs it")
	}
	t.Skip("no chromium here")
	return ""
}

// judged are the verdicts on trials of a real run; what its services declare can be changed.
func judged(t *testing.T, name string, change func(run *history.Run)) *history.Report {
	t.Helper()
	var real struct {
		Run    history.Run
		Events []history.Event
	}
	text, err := os.ReadFile("../report/testdata/" + name + ".json")
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &real))
	change(&real.Run)
	return check.Check(&real.Run, real.Events)
}

// sample is a report in which Redis declares one thing that it does not keep.
func sample(t *testing.T) *history.Report {
	return judged(t, "run", func(run *history.Run) { run.Services[0].Declared.SurvivesClockJump = true })
}

func openReport(t *testing.T, r *history.Report) *browser {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, report.Save(r, dir))

	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewExecAllocator(ctx, append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(chromium(t)), chromedp.NoSandbox, chromedp.DisableGPU, chromedp.UserDataDir(t.TempDir()),
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-component-update", true),
		chromedp.Flag("disable-sync", true))...)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	t.Cleanup(cancel)
	b := &browser{t: t, ctx: ctx}
	address := "file://" + filepath.ToSlash(filepath.Join(dir, history.PageFile))
	require.NoError(t, chromedp.Listen(ctx, func(e any) {
		switch e := e.(type) {
		case *runtime.EventExceptionThrown:
			b.trouble("exception: " + jsonOf(e.ExceptionDetails))
		case *runtime.EventConsoleAPICalled:
			b.trouble("console: " + jsonOf(e.Args))
		case *log.EventEntryAdded:
			b.trouble("log: " + e.Entry.Text)
		case *network.EventRequestWillBeSent:
			if url := e.Request.URL; !strings.HasPrefix(url, address) && !strings.HasPrefix(url, "data:") {
				b.trouble("network: " + url)
			}
		}
	}))
	call(b, network.Enable, network.EnableParams{})
	call(b, log.Enable, cdp.Empty{})
	b.run(chromedp.Navigate(address))
	t.Cleanup(func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		assert.Empty(t, b.troubles)
	})
	return b
}

func (b *browser) trouble(s string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.troubles = append(b.troubles, s)
}

func (b *browser) run(actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	require.NoError(b.t, chromedp.Do(b.ctx, actions...))
}

func call[P, R any](b *browser, command cdp.Command[P, R], params P) {
	b.t.Helper()
	_, err := chromedp.Call(b.ctx, command, params)
	require.NoError(b.t, err)
}

// ask evaluates an expression in the page.
func ask[T any](b *browser, expression string) T {
	b.t.Helper()
	answer, err := chromedp.Run(b.ctx, chromedp.Evaluate[T](expression))
	require.NoError(b.t, err)
	return answer
}

// until waits until an expression is true.
func (b *browser) until(expression string) {
	b.t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for ; !ask[bool](b, "!!("+expression+")"); time.Sleep(20 * time.Millisecond) {
		require.True(b.t, time.Now().Before(deadline), expression)
	}
}

func (b *browser) click(selector string) { b.run(chromedp.Click(chromedp.CSS(selector))) }

// look leaves a picture in the directory that LOCKER_PICTURES names, for people.
func (b *browser) look(name string) {
	if dir := os.Getenv("LOCKER_PICTURES"); dir != "" {
		picture, err := chromedp.Run(b.ctx, chromedp.CaptureScreenshot())
		require.NoError(b.t, err)
		require.NoError(b.t, os.WriteFile(filepath.Join(dir, name+".png"), picture, 0o644))
	}
}

func (b *browser) size(width, height int64) {
	b.run(chromedp.EmulateViewport(width, height))
}

// The page shows the table, says first what is declared and broken, and a click
// on a cell shows its trials and its witness, which can be zoomed.
func TestThePageInABrowser(t *testing.T) {
	b := openReport(t, sample(t))
	b.size(1300, 900)
	b.until(`document.querySelectorAll("#table td > button").length > 60`)
	assert.Regexp(t, `^1 of \d+ promises BROKEN: redis: exclusion under clock-jump\. redis let two holders in `,
		ask[string](b, `document.querySelector("h1").textContent`))
	assert.Equal(t, "exclusion: clock-jump",
		ask[string](b, `document.querySelector("#table tbody tr:not(.group) th").textContent`))
	assert.Equal(t, "BROKEN 1 of 1", ask[string](b,
		`document.querySelector("#table tbody td > button.bad").textContent`))
	b.look("table-light")

	b.click("#table td > button.bad")
	b.until(`document.querySelector("dialog[open] .time svg .band")`)
	says := ask[string](b, `document.querySelector("dialog").innerText`)
	assert.Regexp(t,
		`BROKEN by 1 of 1 fault\. The worst: redis-a2/\d+ and redis-\w+/\d+ held at once for \S+\.`, says)
	assert.Contains(t, says, "Promised: survives clock-jump")
	b.look("cell-light")
	// Both who held at once have a lane, and their beliefs lie in the band.
	both := `(() => {
		const band = document.querySelector(".time .band").getBoundingClientRect();
		return [...document.querySelectorAll(".time g rect")].map((r) => r.getBoundingClientRect())
			.filter((r) => r.left <= band.left + 1 && r.right >= band.right - 3).length;
	})()`
	assert.Equal(t, 2, ask[int](b, both))
	width := `document.querySelector(".time .band").getBoundingClientRect().width`
	before := ask[float64](b, width)
	b.click(`button[aria-label="zoom to where it breaks"]`)
	near := ask[float64](b, width)
	assert.Greater(t, near, 2*before)
	assert.Equal(t, 2, ask[int](b, both))
	b.look("cell-zoomed")
	// The wheel zooms around the pointer, and a drag moves.
	at := ask[struct{ X, Y float64 }](b, `(() => {
		const r = document.querySelector(".time .band").getBoundingClientRect();
		return {X: r.left + r.width / 2, Y: r.top + 30} })()`)
	mouse := func(what input.DispatchMouseEventType, x float64, set func(p *input.DispatchMouseEventParams)) {
		b.run(chromedp.MouseEvent(what, x, at.Y, set))
	}
	mouse(input.DispatchMouseEventTypeMouseWheel, at.X,
		func(p *input.DispatchMouseEventParams) { p.DeltaX, p.DeltaY = 0.01, 200 })
	b.until(width + ` < ` + jsonOf(near*0.8))
	left := `document.querySelector(".time .band").getBoundingClientRect().left`
	was := ask[float64](b, left)
	mouse(input.DispatchMouseEventTypeMousePressed, at.X,
		func(p *input.DispatchMouseEventParams) { p.Button, p.ClickCount = "left", 1 })
	mouse(input.DispatchMouseEventTypeMouseMoved, at.X+90,
		func(p *input.DispatchMouseEventParams) { p.Button, p.Buttons = "left", 1 })
	mouse(input.DispatchMouseEventTypeMouseReleased, at.X+90,
		func(p *input.DispatchMouseEventParams) { p.Button, p.ClickCount = "left", 1 })
	b.until(left + ` > ` + jsonOf(was+50))
	b.run(chromedp.KeyEvent("\x1b"))
	b.until(`!document.querySelector("dialog[open]")`)

	// Rows that say the same of several faults unfold.
	rows := `[...document.querySelectorAll("#table tbody tr")].filter((r) => !r.hidden).length`
	folded := ask[int](b, rows)
	b.click(".fold")
	assert.Greater(t, ask[int](b, rows), folded)
}

// Each known bad lock is BROKEN in the row that is meant for it, and a click there draws what happened:
// who held, when, and where it breaks. The histories are of runs of TestKnownBadLocksAreBroken of
// package compare.
func TestTheWitnessOfEachBadLock(t *testing.T) {
	r := judged(t, "badlocks", func(*history.Run) {})
	b := openReport(t, r)
	b.size(1300, 900)
	b.until(`document.querySelectorAll("#table td > button").length > 60`)
	ask[bool](b, `document.querySelectorAll(".fold").forEach((f) => f.click()) || true`)
	for flaw, row := range map[string]string{
		"no-owner-check":   "exclusion/unlock-late",
		"own-signal":       "told/holder-cut-off",
		"boasts":           "exclusion/holder-cut-off",
		"renews-nothing":   "exclusion",
		"renews-others":    "exclusion/holder-stopped",
		"shared-session":   "exclusion",
		"looks-then-locks": "exclusion",
		"forgets-tokens":   "fencing",
		"client-tokens":    "fencing",
		"never-expires":    "freed/holder-killed",
		"leaves-ghosts":    "freed/replies-lost",
		"loses-leases":     "kept",
		"ignores-errors":   "exclusion/requests-late",
	} {
		cell := `button[data-cell="` + row + "@" + flaw + `"]`
		b.until(`document.querySelector('` + cell + `')`)
		assert.Equal(t, "BROKEN 1 of 1", ask[string](b, `document.querySelector('`+cell+`').textContent`), flaw)
		ask[bool](b, `document.querySelector('`+cell+`').click() || true`)
		b.until(`document.querySelector("dialog[open] .time svg .band")`)
		says := ask[string](b, `document.querySelector("dialog .time").getAttribute("aria-label")`)
		assert.Contains(t, says, flaw+"-", "the one who is to blame has a name")
		// Who is named has a lane, there is a belief in it, and the break lies in the picture.
		if row != "freed/replies-lost" { // which nobody held
			assert.Positive(t, ask[int](b, `document.querySelectorAll("dialog .time g rect").length`), flaw)
		}
		assert.Contains(t, ask[string](b, `document.querySelector("dialog .time svg").textContent`), flaw+"-", flaw)
		assert.True(t, ask[bool](b, `(() => {
			const band = document.querySelector(".time .band").getBoundingClientRect();
			const pic = document.querySelector(".time svg").getBoundingClientRect();
			return band.right > pic.left && band.left < pic.right && band.width > 0 && band.height > 0 })()`), flaw)
		b.look("bad-" + flaw)
		b.run(chromedp.KeyEvent("\x1b"))
		b.until(`!document.querySelector("dialog[open]")`)
	}
}

// wide is a report of so many services, with large figures.
func wide(t *testing.T, services int) *history.Report {
	r := sample(t)
	names := []string{"redis", "zookeeper", "rueidislock", "redlock", "redsync", "etcd-mutex", "redislock",
		"postgres", "zk.lock"}[:services]
	s := r.Run.Services[0]
	s.Version, s.Declared.Exclusion, s.Declared.RestsOn = "ZooKeeper 3.9.4", "none", "our engine's timer renews it"
	r.Run.Services = nil
	for i := range r.Rows {
		cell := r.Rows[i].Cells[0]
		if cell.Trials *= 128; cell.Broken > 0 {
			cell.Broken = cell.Trials - 5
		}
		r.Rows[i].Cells = nil
		for _, cell.Service = range names {
			r.Rows[i].Cells = append(r.Rows[i].Cells, cell)
		}
	}
	for _, s.Name = range names {
		r.Run.Services = append(r.Run.Services, s)
	}
	return r
}

// Whatever the number of services, the table fits its page, and no cell is cut off. How a lock of which
// nothing is declared is tried is said.
func TestTheTableFitsThePage(t *testing.T) {
	for services, widths := range map[int][]int64{2: {700, 1300}, 3: {700}, 4: {700, 800, 1300},
		5: {800, 1000, 1300}, 6: {900, 1024, 1300}, 9: {1200, 1480}} {
		b := openReport(t, wide(t, services))
		for _, width := range widths {
			b.size(width, 900)
			b.until(`document.querySelectorAll("#table td > button").length > 60`)
			b.look(fmt.Sprintf("%d-services-%d", services, width))
			// The page is told of its new width when the browser has drawn it.
			b.until(`[...document.querySelectorAll(".scroll, #table td > button")]
				.every((b) => b.scrollWidth <= b.clientWidth + 1)`)
		}
		assert.Contains(t, ask[string](b, `document.querySelector("main").innerText`),
			"redis: our engine's timer renews it.")
	}
}

// On a phone, nothing but the table is wider than the screen, a cell fits it, no header breaks inside a word, and
// no label of a timeline is cut off.
func TestThePageOnAPhone(t *testing.T) {
	b := openReport(t, wide(t, 9))
	for _, width := range []int64{360, 400, 1200} {
		b.size(width, 800)
		b.until(`document.querySelectorAll("#table td > button").length > 60 && innerWidth === ` + jsonOf(width))
		assert.LessOrEqual(t, ask[int64](b, `document.documentElement.scrollWidth`), width)
		b.look(fmt.Sprintf("table-%d", width))
		b.click("#table td > button.bad")
		b.until(`document.querySelector("dialog[open] .time svg .band")`)
		assert.LessOrEqual(t, ask[int64](b, `document.querySelector("dialog").scrollWidth`), width)
		b.look(fmt.Sprintf("cell-%d", width))
		// Also where the lines of time are moved to the edge.
		for range 2 {
			assert.Empty(t, ask[[]string](b, `(() => {
				const pic = document.querySelector(".time svg").getBoundingClientRect();
				return [...document.querySelectorAll(".time svg text")].filter((x) => {
					const r = x.getBoundingClientRect();
					return r.left < pic.left || r.right > pic.right;
				}).map((x) => x.textContent) })()`), width)
			b.click(`button[aria-label="zoom to where it breaks"]`)
		}
		assert.Empty(t, ask[[]string](b, `[...document.querySelectorAll("th, h1, h2, h3")].flatMap((h) => {
			const broken = [], texts = document.createTreeWalker(h, NodeFilter.SHOW_TEXT), range = document.createRange();
			while (texts.nextNode()) for (const m of texts.currentNode.data.matchAll(/[^\s/]+/g)) {
				range.setStart(texts.currentNode, m.index);
				range.setEnd(texts.currentNode, m.index + m[0].length);
				if (new Set([...range.getClientRects()].map((r) => r.top)).size > 1) broken.push(m[0]);
			}
			return broken;
		})`), width)
		b.run(chromedp.KeyEvent("\x1b"))
		b.until(`!document.querySelector("dialog[open]")`)
	}
}

func jsonOf(x any) string {
	b, _ := json.Marshal(x)
	return string(b)
}
