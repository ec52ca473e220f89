// Package docs_test runs the programs of the documentation.
package docs_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker/internal/lab"
	"github.com/golockers/locker/internal/pageprograms"
)

const examples = "../examples"

// The programs that the page on fencing quotes do what it says, each time. Those for
// SQL need its servers; internal/sqltest runs them.
func TestProveTheProgramsOfFencing(t *testing.T) {
	lab.NeedProve(t)
	for name, addresses := range map[string]func(t *testing.T) []string{
		"redis": func(t *testing.T) []string { return []string{"localhost:6379", lab.StartRedis(t).Addr()} },
		"http":  func(t *testing.T) []string { return []string{"localhost:6379", lab.StartRedis(t).Addr()} },
		"etcd":  func(t *testing.T) []string { return []string{"localhost:2379", lab.StartEtcd(t, 1).Addrs()[0]} },
		"zookeeper": func(t *testing.T) []string {
			return []string{"localhost:2181", lab.StartZooKeeper(t).Addr()}
		},
		"file": func(*testing.T) []string { return nil },
	} {
		t.Run(name, func(t *testing.T) {
			pageprograms.RunTwice(t, pageprograms.Build(t, examples, name, addresses(t)...), pageprograms.Story)
		})
	}
}

func TestPagesQuoteWhatIsThere(t *testing.T) {
	assert.NotEmpty(t, pageprograms.Quotes(t, "fencing.md"))
	assert.Len(t, pageprograms.Quotes(t, "moving.md"), 2)
	assert.Len(t, pageprograms.Quotes(t, "backend.md"), 1)
}

func TestProveTheProgramOfMoving(t *testing.T) {
	lab.NeedProve(t)
	const output = `before holds, meanwhile is refused: true, the token rises: true
meanwhile holds, before is refused: true, the token rises: true
meanwhile holds, after is refused: true, the token rises: true
after holds, meanwhile is refused: true, the token rises: true
after holds, meanwhile is refused: true, the token rises: true
meanwhile holds, after is refused: true, the token rises: true
meanwhile holds, before is refused: true, the token rises: true
before holds, meanwhile is refused: true, the token rises: true
before and after hold it at the same time: true
`
	pageprograms.RunTwice(t, pageprograms.Build(t, examples, "moving"), output)
}

func TestProveTheProgramOfMovingFromAnotherLibrary(t *testing.T) {
	lab.NeedProve(t)
	server := lab.StartRedis(t)
	const output = `beside it, the old lock is redislock: not obtained
and the new one locker: trylock "order/42": the lock is held by another
both were held: true
`
	pageprograms.RunTwice(t, pageprograms.Build(t, "../compare/peers", "moving", "localhost:6379", server.Addr()), output)
}

// A link in a page that leads nowhere is seen by strangers first.
func TestLinksOfThePagesLeadSomewhere(t *testing.T) {
	pages, err := filepath.Glob("*.md")
	require.NoError(t, err)
	more, err := filepath.Glob("../*.md")
	require.NoError(t, err)
	link, seen := regexp.MustCompile(`\]\(([^), :#]+)(#[^)]*)?\)`), 0
	for _, page := range append(pages, more...) {
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		for _, m := range link.FindAllStringSubmatch(string(text), -1) {
			seen++
			_, err := os.Stat(filepath.Join(filepath.Dir(page), m[1]))
			assert.NoError(t, err, page)
		}
	}
	assert.Greater(t, seen, 40)
}

func TestReadmeIsReadInFiveMinutes(t *testing.T) {
	text, err := os.ReadFile("../README.md")
	require.NoError(t, err)
	assert.LessOrEqual(t, len(strings.Fields(string(text))), 1300, "words")
}

// A page says first what it is for, and a long one lists its headings. The rules have their numbers in design.md
// alone, and nobody reads a book.
func TestPagesAreRead(t *testing.T) {
	pages, err := filepath.Glob("*.md")
	require.NoError(t, err)
	words := map[bool]int{}
	for _, page := range append(pages, "../README.md") {
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		words[page == "design.md"] += len(strings.Fields(string(text)))
		if page != "design.md" {
			assert.NotRegexp(t, `\bR\d+\b`, string(text), page)
		}
		lines := strings.Split(string(text), "\n")
		assert.Greater(t, len(strings.Fields(lines[2])), 5, "%s does not say first what it is for", page)
		if len(lines) > 100 && page != "../README.md" { // which is read whole
			assert.Contains(t, strings.Join(lines[:20], "\n"), "](#", "%s has %d lines", page, len(lines))
		}
	}
	assert.LessOrEqual(t, words[false], 16_800, "all pages but design.md")
	assert.LessOrEqual(t, words[true], 4_500, "design.md")
}

func TestThePageOnIntegrationsNamesEveryAdapter(t *testing.T) {
	page, err := os.ReadFile("integrations.md")
	require.NoError(t, err)
	sources, err := filepath.Glob("../adapt/*.go")
	require.NoError(t, err)
	constructor := regexp.MustCompile(`(?m)^func ([A-Z]\w+)[([]`)
	seen := 0
	for _, source := range sources {
		text, err := os.ReadFile(source)
		require.NoError(t, err)
		if strings.HasSuffix(source, "_test.go") {
			continue
		}
		for _, m := range constructor.FindAllStringSubmatch(string(text), -1) {
			seen++
			assert.Contains(t, string(page), "adapt."+m[1])
		}
	}
	assert.GreaterOrEqual(t, seen, 3)
}
