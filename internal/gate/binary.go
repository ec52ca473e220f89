package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"hash/fnv"
	"os"
	"os/exec"
	"os/signal"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// group is a list of packages that are tested with the same flags.
type group struct {
	only     bool // compile, and run nothing
	after    bool // the group before it
	atOnce   int  // packages at the same time
	nice     bool
	timeout  time.Duration // of a package
	build    []string      // flags of the go command
	dir      string        // of another module
	flags    []string      // of the test binaries
	packages []string
}

// parse reads the groups that a command line has, with "--" between them.
func parse(args []string) (groups []group, err error) {
	for len(args) > 0 {
		end := slices.Index(args, "--")
		if end < 0 {
			end = len(args)
		}
		var g group
		f := flag.NewFlagSet("gate", flag.ContinueOnError)
		f.BoolVar(&g.only, "c", false, "compile the tests and run none")
		f.BoolVar(&g.after, "after", false, "begin when the group before it has ended")
		f.StringVar(&g.dir, "C", "", "as that of the go command")
		f.IntVar(&g.atOnce, "p", runtime.GOMAXPROCS(0), "test so many packages at the same time")
		f.BoolVar(&g.nice, "nice", false, "run them with what others leave of the machine")
		f.DurationVar(&g.timeout, "timeout", 10*time.Minute, "as that of go test")
		f.BoolFunc("race", "as that of go test", func(string) error { g.build = append(g.build, "-race"); return nil })
		f.BoolFunc("short", "as that of go test", func(string) error { g.flags = append(g.flags, "-test.short"); return nil })
		f.Func("ldflags", "as that of go test", func(v string) error { g.build = append(g.build, "-ldflags="+v); return nil })
		for _, name := range []string{"run", "skip", "parallel", "count", "shuffle"} {
			f.Func(name, "as that of go test", func(v string) error { g.flags = append(g.flags, "-test."+name+"="+v); return nil })
		}
		if err := f.Parse(args[:end]); err != nil {
			return nil, err
		}
		g.packages = f.Args()
		groups, args = append(groups, g), args[min(end+1, len(args)):]
	}
	return groups, nil
}

// binary is the compiled tests of a package, and how they are run.
type binary struct {
	pkg, dir, path string
	of             *group
}

// compileAll compiles the tests of all groups.
func (g *gate) compileAll(groups []group) (binaries [][]binary, err error) {
	json, err := g.command("", "go", "tool", "-n", "test2json")
	g.json = strings.TrimSpace(json)
	for i := range groups {
		if err != nil {
			return nil, err
		}
		var of []binary
		of, err = g.compile(&groups[i])
		binaries = append(binaries, of)
	}
	return binaries, err
}

// compile brings the test binaries of a group up to date, and returns them in its order. What fails is said by the
// go command.
func (g *gate) compile(of *group) (all []binary, err error) {
	listed, err := g.command(of.dir, "go", slices.Concat([]string{"list", "-f",
		"{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}\t{{.Dir}}{{end}}"}, of.packages)...)
	if err != nil {
		return nil, err
	}
	// Binaries of other modules, with other flags and with other versions have the same names.
	here, err := filepath.Abs(filepath.Join(g.dir, of.dir))
	if err != nil {
		return nil, err
	}
	sum := fnv.New64a()
	fmt.Fprintln(sum, here, of.build, os.Getenv("GOWORK"))
	dir := filepath.Join(g.bins, strconv.FormatUint(sum.Sum64(), 36))
	calls := make(map[string][]string) // packages by directory: in each a name is there once
	for line := range strings.Lines(listed) {
		pkg, source, _ := strings.Cut(strings.TrimSpace(line), "\t")
		b := binary{pkg: pkg, dir: source, of: of}
		if pkg == "" || slices.ContainsFunc(all, func(other binary) bool { return other.pkg == pkg }) {
			continue
		}
		to := dir
		for ; b.path == "" || slices.ContainsFunc(all, func(other binary) bool { return other.path == b.path }); to += "+" {
			b.path = filepath.Join(to, path.Base(pkg)+".test")
		}
		to = filepath.Dir(b.path)
		calls[to] = append(calls[to], pkg)
		all = append(all, b)
	}
	for to, packages := range calls {
		_, err := g.command(of.dir, "go", slices.Concat([]string{"test", "-c", "-vet=off", "-o", to + string(os.PathSeparator)},
			of.build, packages)...)
		if err != nil {
			return nil, err
		}
	}
	return all, nil
}

// command returns what a command in a directory prints, or what it says of why it failed.
func (g *gate) command(dir, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(context.Background(), name, args...)
	cmd.Dir = filepath.Join(g.dir, dir)
	out, err := cmd.Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		err = fmt.Errorf("%s %s: %w\n%s", name, args[0], err, exit.Stderr)
	}
	return string(out), err
}

// becomeArg makes gate a test binary. test2json ignores SIGINT and SIGQUIT, and so would the tests and all that they
// start; what a process catches is not ignored any more by the one that it becomes.
const becomeArg = "__become"

// become does not return if args say so.
func become(args []string) {
	if len(args) < 2 || args[0] != becomeArg {
		return
	}
	signal.Notify(make(chan os.Signal, 1), os.Interrupt, syscall.SIGQUIT)
	fmt.Fprintln(os.Stderr, "gate:", syscall.Exec(args[1], args[1:], os.Environ()))
	os.Exit(2)
}

// play runs the tests of a package, and prints what those say that fail.
func (g *gate) play(b binary, more ...string) (results, error) {
	// A binary ends by itself when its time is over; one that does not even do that is ended.
	ctx, cancel := context.WithTimeout(context.Background(), b.of.timeout+time.Minute)
	defer cancel()
	gate, err := os.Executable()
	if err != nil {
		return results{}, err
	}
	args := slices.Concat([]string{g.json, "-t", "-p", b.pkg, gate, becomeArg, b.path, "-test.v=test2json",
		"-test.paniconexit0", "-test.timeout=" + b.of.timeout.String()}, b.of.flags, more)
	if b.of.nice {
		args = slices.Concat([]string{"nice"}, args)
	}
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Dir, cmd.Stderr = b.dir, g.out
	// The race detector lets each process that ends sleep for a second, those that tests start among them.
	cmd.Env = append(os.Environ(), "PWD="+b.dir, "GORACE="+os.Getenv("GORACE")+" atexit_sleep_ms=0")
	out, err := cmd.StdoutPipe()
	if err != nil {
		return results{}, err
	}
	if err := cmd.Start(); err != nil {
		return results{}, err
	}
	r := read(g.meter, b.pkg, out, g.out)
	if err := cmd.Wait(); ctx.Err() != nil {
		return r, fmt.Errorf("the tests of %s did not end: %w", b.pkg, err)
	}
	for i := range r.failed {
		r.failed[i].of = b
	}
	s := &r.took[0]
	s.work = cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime() // of the servers, too, that they have started
	said := map[string]string{"pass": "ok", "skip": "?", "fail": "FAIL"}[s.end]
	fmt.Fprintf(g.out, "%-4s %s %.1fs, %.1fs of processors\n", said, b.pkg, s.wall.Seconds(), s.work.Seconds())
	return r, nil
}
