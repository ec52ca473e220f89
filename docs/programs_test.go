// Package docs_test runs the programs of the documentation.
package docs_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

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
	assert.Len(t, pageprograms.Quotes(t, "fencing.md"), 1)
	program, err := os.ReadFile(filepath.Join(examples, "account", "main.go"))
	require.NoError(t, err)
	page, err := os.ReadFile("fencing.md")
	require.NoError(t, err)
	assert.Contains(t, string(page), "```go\n"+string(program)+"```\n", "the program as a whole, to be copied")
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
	link, seen := regexp.MustCompile(`\]\(([^) :#]*)(?:#([^)]*))?\)`), 0
	for _, page := range append(pages, more...) {
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		for _, m := range link.FindAllStringSubmatch(string(text), -1) {
			seen++
			to := page
			if m[1] != "" {
				to = filepath.Join(filepath.Dir(page), m[1])
			}
			there, err := os.Stat(to)
			if assert.NoError(t, err, page) && m[2] != "" && !there.IsDir() {
				assert.Contains(t, headings(t, to), m[2], "%s links to a heading of %s", page, to)
			}
		}
	}
	assert.Greater(t, seen, 40)
}

var notInAnchors = regexp.MustCompile(`[^\pL\pN _-]`)

// headings returns the headings of a page, as links name them.
func headings(t *testing.T, page string) (anchors []string) {
	t.Helper()
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	for _, m := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(string(text), -1) {
		anchors = append(anchors, strings.ReplaceAll(notInAnchors.ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-"))
	}
	return anchors
}

// words counts the words of a page, and those of its prose: tables and programs are looked up, not read.
func words(text string) (all, prose int) {
	all = len(strings.Fields(text))
	inProgram := false
	for line := range strings.Lines(text) {
		fence := strings.HasPrefix(strings.TrimSpace(line), "```")
		if fence {
			inProgram = !inProgram
		}
		if !fence && !inProgram && !strings.HasPrefix(line, "|") && !strings.HasPrefix(line, "    ") {
			prose += len(strings.Fields(line))
		}
	}
	return all, prose
}

// A page says first what it is for, and a long one lists its headings. The rules have their numbers in design.md
// alone, and nobody reads a book.
func TestPagesAreRead(t *testing.T) {
	pages, err := filepath.Glob("*.md")
	require.NoError(t, err)
	total := 0
	for _, page := range append(pages, "../README.md", "../CHANGELOG.md") {
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		all, prose := words(string(text))
		switch page {
		case "../README.md":
			assert.LessOrEqual(t, all, 1300, page)
		case "../CHANGELOG.md":
			assert.LessOrEqual(t, all, 700, "%s: a version takes one page", page)
		default:
			total += all
			if page != "design.md" && page != "peers.md" { // which are not for users, or compare
				assert.LessOrEqual(t, prose, 1500, page)
			}
		}
		if page != "design.md" {
			assert.NotRegexp(t, `\bR\d+\b`, string(text), page)
		}
		lines := strings.Split(string(text), "\n")
		assert.Greater(t, len(strings.Fields(lines[2])), 5, "%s does not say first what it is for", page)
		if len(lines) > 100 && !strings.HasPrefix(page, "..") { // those are read whole
			assert.Contains(t, strings.Join(lines[:20], "\n"), "](#", "%s has %d lines", page, len(lines))
		}
	}
	assert.LessOrEqual(t, total, 20_000, "all pages")
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

// Contention pages nobody, and whoever is woken up reads what to do first.
func TestAlertsPageOnlyForFailuresAndSayWhatToDo(t *testing.T) {
	rules, err := os.ReadFile("observe/alerts.yml")
	require.NoError(t, err)
	page, err := os.ReadFile("production.md")
	require.NoError(t, err)
	alerts := strings.Split(string(rules), "- alert: ")[1:]
	for _, alert := range alerts {
		name, rule, _ := strings.Cut(alert, "\n")
		assert.Regexp(t, `(?m)^ +runbook: \S.{20,}$`, rule, name)
		urgent := "no"
		if strings.Contains(rule, "severity: critical") {
			urgent = "yes"
			assert.NotRegexp(t, `outcome(!=|[^"]*"[^"]*(held|canceled|closed))`, rule, "%s pages for contention", name)
		}
		assert.Contains(t, string(page), "| "+name+" | "+urgent+" |")
	}
	assert.Len(t, alerts, 7)
}

// The program of production.md leads, says that it is ready, and ends in order when it is told to.
func TestProveTheProgramOfProduction(t *testing.T) {
	lab.NeedProve(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	addr := l.Addr().String()
	require.NoError(t, l.Close())
	cmd := exec.CommandContext(t.Context(), pageprograms.Build(t, examples, "scheduler", `":8080"`, `"`+addr+`"`))
	cmd.Env = append(os.Environ(), "LOCKER_BACKEND=file://"+t.TempDir())
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	said := bufio.NewScanner(out)
	require.True(t, said.Scan())
	assert.Equal(t, "leads", said.Text())
	require.Eventually(t, func() bool {
		resp, err := http.Get("http://" + addr + "/ready")
		if err != nil {
			return false
		}
		defer func() { _ = resp.Body.Close() }()
		text, err := io.ReadAll(resp.Body)
		return err == nil && string(text) == "leads: true\n"
	}, 30*time.Second, 10*time.Millisecond)
	require.NoError(t, cmd.Process.Signal(os.Interrupt))
	require.NoError(t, cmd.Wait())
}

var manifests = regexp.MustCompile("(?s)```yaml\n(.*?)```")

// A cluster takes the objects of production.md, and the Role has the rights that package kubernetes asks for.
func TestProveKubernetesTakesTheManifests(t *testing.T) {
	lab.NeedProve(t)
	page, err := os.ReadFile("production.md")
	require.NoError(t, err)
	k := lab.StartKubernetes(t)
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: k.Certs.ClientConfig()}}
	require.NoError(t, k.Ask(http.MethodPost, "/api/v1/namespaces", map[string]any{"metadata": map[string]any{"name": "x"}}, nil))
	paths := map[string]string{
		"Deployment": "apps/v1", "CronJob": "batch/v1",
		"Role": "rbac.authorization.k8s.io/v1", "RoleBinding": "rbac.authorization.k8s.io/v1",
	}
	for _, block := range manifests.FindAllStringSubmatch(string(page), -1) {
		for object := range strings.SplitSeq(block[1], "---\n") {
			kind := regexp.MustCompile(`(?m)^kind: (\w+)$`).FindStringSubmatch(object)[1]
			url := fmt.Sprintf("%s/apis/%s/namespaces/x/%ss?fieldValidation=Strict", k.URL(), paths[kind], strings.ToLower(kind))
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(object))
			require.NoError(t, err)
			req.Header.Set("Authorization", "Bearer "+lab.AdminToken)
			req.Header.Set("Content-Type", "application/yaml")
			resp, err := client.Do(req)
			require.NoError(t, err)
			said, _ := io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			assert.Equal(t, http.StatusCreated, resp.StatusCode, "%s: %s", kind, said)
			delete(paths, kind)
		}
	}
	assert.Empty(t, paths, "kinds that the page does not have")
	doc, err := os.ReadFile("../cas/kubernetes/doc.go")
	require.NoError(t, err)
	verbs := regexp.MustCompile(`verbs: \[.*\]`)
	assert.Equal(t, verbs.FindString(string(doc)), verbs.FindString(string(page)))
}
