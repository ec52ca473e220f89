package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
)

// topic is what contenders are compared in.
type topic struct {
	pkg, name  string
	contenders []*contender // in the order in which they were first seen
}

// contender has one result for each round.
type contender struct {
	name   string
	rounds []metrics
}

// metrics are the numbers of one line, by unit.
type metrics map[string]float64

func (t *topic) find(name string) *contender {
	for _, c := range t.contenders {
		if c.name == name {
			return c
		}
	}
	return nil
}

const failure = "--- FAIL: "

// parse reads the output of test binaries, one after the other. The error says
// which benchmarks failed.
func parse(in io.Reader) ([]*topic, error) {
	var topics []*topic
	var pkg string
	var failed []error
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := lines.Text()
		switch {
		case strings.HasPrefix(line, "pkg: "):
			pkg = strings.TrimPrefix(line, "pkg: ")
		case strings.Contains(line, failure), strings.HasPrefix(line, "panic: "):
			// The name may stand before it, if the benchmark had begun to print.
			what := line[max(strings.Index(line, failure), 0):]
			failed = append(failed, fmt.Errorf("%s: %s", pkg, what))
		case strings.HasPrefix(line, "Benchmark"):
			if path, m := result(line); m != nil {
				topics = add(topics, pkg, path, m)
			}
		}
	}
	return topics, errors.Join(append(failed, lines.Err())...)
}

// tail is what the testing package adds to a name: a number where the name was
// taken, and GOMAXPROCS.
var tail = regexp.MustCompile(`(#\d+)?(-\d+)?$`)

// result reads one line: name, iterations, and pairs of value and unit. It
// returns nil if the line is not that.
func result(line string) (path string, m metrics) {
	f := strings.Fields(line)
	if len(f) < 2 || len(f)%2 != 0 {
		return "", nil
	}
	if _, err := strconv.Atoi(f[1]); err != nil {
		return "", nil
	}
	m = metrics{}
	for i := 2; i < len(f); i += 2 {
		v, err := strconv.ParseFloat(f[i], 64)
		if err != nil {
			return "", nil
		}
		m[f[i+1]] = v
	}
	return tail.ReplaceAllString(strings.TrimPrefix(f[0], "Benchmark"), ""), m
}

// add files a result under its topic and contender.
func add(topics []*topic, pkg, path string, m metrics) []*topic {
	slash := strings.LastIndexByte(path, '/')
	if slash < 0 {
		return topics // it has no contenders
	}
	name, who := path[:slash], path[slash+1:]
	var t *topic
	for _, have := range topics {
		if have.pkg == pkg && have.name == name {
			t = have
		}
	}
	if t == nil {
		t = &topic{pkg: pkg, name: name}
		topics = append(topics, t)
	}
	c := t.find(who)
	if c == nil {
		c = &contender{name: who}
		t.contenders = append(t.contenders, c)
	}
	c.rounds = append(c.rounds, m)
	return topics
}
