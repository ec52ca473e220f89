package proof_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker/compare/internal/history"
)

// drawn checks that a file is what it would be if it were made today. With LOCKER_DRAW it is made.
func drawn(t *testing.T, path, content string) {
	t.Helper()
	if os.Getenv("LOCKER_DRAW") != "" {
		require.NoError(t, os.WriteFile(path, []byte(content), 0o644))
	}
	old, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, string(old), content, "%s is stale: LOCKER_DRAW=1 go test -run Pictures", path)
}

// timeline makes the open timeline a picture of its own, with the legend below, as lines of text.
const timeline = `(() => {
	const from = document.querySelector(".time svg"), [, , width, height] = from.getAttribute("viewBox").split(" ").map(Number);
	const pic = from.cloneNode(true);
	let x = 12, y = height + 12;
	for (const sign of document.querySelectorAll(".signs > span")) {
		const words = sign.textContent, wide = 40 + 6.2 * words.length;
		if (x + wide > width) [x, y] = [12, y + 24];
		const s = sign.querySelector("svg").cloneNode(true);
		for (const [k, v] of Object.entries({x, y, width: 22, height: 22})) s.setAttribute(k, v);
		const label = document.createElementNS("http://www.w3.org/2000/svg", "text");
		for (const [k, v] of Object.entries({x: x + 28, y: y + 15})) label.setAttribute(k, v);
		label.append(words);
		pic.append(s, label);
		x += wide;
	}
	pic.setAttribute("viewBox", "0 0 " + width + " " + (y + 30));
	pic.setAttribute("width", width);
	pic.setAttribute("height", y + 30);
	return new XMLSerializer().serializeToString(pic).replaceAll("><", ">\n<")
		.replace(/\d+\.\d\d+/g, (n) => String(Math.round(n * 10) / 10));
})()`

// The pictures of docs/peers.md are timelines of witnesses: an SVG each, which is light or dark as its reader's
// screen is.
func TestThePicturesOfPeers(t *testing.T) {
	style, err := os.ReadFile("../report/page.css")
	require.NoError(t, err)
	colors := map[bool]string{}
	for _, c := range regexp.MustCompile(`(--\w+): light-dark\((#\w+), (#\w+)\)`).FindAllStringSubmatch(string(style), -1) {
		colors[false] += c[1] + ":" + c[2] + ";"
		colors[true] += c[1] + ":" + c[3] + ";"
	}
	css := "\n<style>\nsvg{" + colors[false] + "color:var(--quiet);background:var(--ground);" +
		"font-family:system-ui,-apple-system,\"Segoe UI\",Roboto,\"DejaVu Sans\",sans-serif}\n" +
		"@media(prefers-color-scheme:dark){svg{" + colors[true] + "}}\nsvg svg{background:none}\n"
	for _, rule := range regexp.MustCompile(`(?m)^(?:svg|\.time) (?:text|\.\w+) \{.*\}`).FindAllString(string(style), -1) {
		css += regexp.MustCompile(`^\.time`).ReplaceAllString(rule, "svg") + "\n"
	}
	b := openReport(t, judged(t, "../../proof/testdata/peers", func(*history.Run) {}))
	for cell, name := range map[string]string{"exclusion/holder-cut-off@etcd-mutex": "etcd",
		"exclusion/holder-cut-off@rueidislock": "rueidislock", "exclusion/restart-empty@redsync": "redsync"} {
		ask[bool](b, `document.querySelector('button[data-cell="`+cell+`"]').click() || true`)
		b.until(`document.querySelector("dialog[open] .time svg .band")`)
		ask[bool](b, `!!(document.querySelector(".time").style.width = "1000px")`)
		b.until(`document.querySelector(".time svg").getAttribute("viewBox").startsWith("0 0 998 ")`)
		picture := regexp.MustCompile(`^<svg[^>]*>`).ReplaceAllString(ask[string](b, timeline), "$0"+css+"</style>")
		drawn(t, "../../../docs/peers-"+name+".svg", picture+"\n")
		b.run(chromedp.KeyEvent("\x1b"))
		b.until(`!document.querySelector("dialog[open]")`)
	}
}

// The picture of a table is a light one and a dark one of the page, whose words are in testdata: another browser
// draws other pixels.
func TestThePicturesOfTheTable(t *testing.T) {
	text, err := os.ReadFile("testdata/table.json")
	require.NoError(t, err)
	r := new(history.Report)
	require.NoError(t, json.Unmarshal(text, r))
	b := openReport(t, r)
	b.size(1240, 1000)
	b.until(`document.querySelectorAll("#table td > button").length > 60`)
	drawn(t, "testdata/table.txt", ask[string](b, `document.body.innerText`))
	for file, scheme := range map[string]string{"compare.png": "light", "compare-dark.png": "dark"} {
		ask[string](b, `document.documentElement.style.colorScheme = "`+scheme+`"`)
		if os.Getenv("LOCKER_DRAW") != "" {
			picture, err := chromedp.Run(b.ctx, chromedp.CaptureScreenshot())
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(filepath.Join("../../../docs", file), picture, 0o644))
		}
	}
}
