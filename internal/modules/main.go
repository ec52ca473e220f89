// Command modules does what the go command does not do for a repository of several modules that are released
// together: see CONTRIBUTING.md. It is run by scripts/modules.
//
// Released are the modules that go.work uses. Each requires those that it needs at the same version, the one for
// which go.work has their directories. No go.mod that is released has a replace directive.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/mod/modfile"
	moduleversion "golang.org/x/mod/module"
)

const usage = `usage:
  modules list               the directories of the released modules, each after those that it requires
  modules tidy [-check]      go mod tidy, or whether it would change something
  modules alone ARGS         go ARGS in each of them without go.work: "vet ./..."
  modules newest ARGS        the same with the newest drivers, which scripts/newest/go.mod names
  modules release VERSION    write a version into go.mod, go.sum and go.work
  modules proxy DIR VERSION  make a module proxy of what a release would be
  modules prove              make one, build each module from it alone, and add them to an empty module
`

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "modules:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	top, err := topOf()
	if err != nil {
		return err
	}
	all, err := read(top)
	if err != nil {
		return err
	}
	switch arg := func(i int) bool { return len(args) > i }; {
	case len(args) == 1 && args[0] == "list":
		for _, m := range all {
			fmt.Println("./" + m.dir)
		}
		return nil
	case arg(0) && args[0] == "tidy" && (len(args) == 1 || len(args) == 2 && args[1] == "-check"):
		return each(all, func(m *module) error { return m.tidy(all, len(args) == 2) })
	case arg(1) && args[0] == "alone":
		return each(all, func(m *module) error { return m.alone(all, nil, args[1:]) })
	case arg(1) && args[0] == "newest":
		newest, err := os.ReadFile(filepath.Join(top, "scripts/newest/go.mod"))
		if err != nil {
			return err
		}
		file, err := modfile.Parse("scripts/newest/go.mod", newest, nil)
		if err != nil {
			return err
		}
		return each(all, func(m *module) error { return m.alone(all, file.Require, args[1:]) })
	case len(args) == 2 && args[0] == "release":
		return release(top, args[1])
	case len(args) == 3 && args[0] == "proxy":
		return makeProxy(top, args[2], args[1])
	case len(args) == 1 && args[0] == "prove":
		return prove(top)
	}
	return fmt.Errorf("it knows no such words; it knows\n%s", strings.TrimRight(usage, "\n"))
}

// topOf returns the directory that has go.work, above this program.
func topOf() (string, error) {
	dir, err := os.Getwd()
	return filepath.Clean(filepath.Join(dir, "../..")), err
}

// module is a module of this repository.
type module struct {
	top  string // the checkout
	dir  string // in it; "." is the root
	file *modfile.File
}

func (m *module) path() string { return filepath.Join(m.top, m.dir) }
func (m *module) name() string { return m.file.Module.Mod.Path }

// read returns the modules that go.work uses, each after those that it requires.
func read(top string) ([]*module, error) {
	text, err := os.ReadFile(filepath.Join(top, "go.work"))
	if err != nil {
		return nil, err
	}
	work, err := modfile.ParseWork("go.work", text, nil)
	if err != nil {
		return nil, err
	}
	var all []*module
	for _, use := range work.Use {
		m := &module{top: top, dir: filepath.Clean(use.Path)}
		if m.file, err = parse(filepath.Join(m.path(), "go.mod")); err != nil {
			return nil, err
		}
		if len(m.file.Replace) > 0 {
			return nil, fmt.Errorf("%s is released, and has a replace directive", m.file.Syntax.Name)
		}
		all = append(all, m)
	}
	return inOrder(all)
}

func parse(path string) (*modfile.File, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return modfile.Parse(path, text, nil)
}

// inOrder sorts modules so that each comes after those that it requires.
func inOrder(all []*module) ([]*module, error) {
	var sorted []*module
	for len(sorted) < len(all) {
		before := len(sorted)
		for _, m := range all {
			ready := !slices.ContainsFunc(m.siblings(all), func(s *module) bool { return !slices.Contains(sorted, s) })
			if ready && !slices.Contains(sorted, m) {
				sorted = append(sorted, m)
			}
		}
		if len(sorted) == before {
			return nil, errors.New("modules require each other in a circle: none could be released first")
		}
	}
	return sorted, nil
}

// siblings returns the modules of all that m requires.
func (m *module) siblings(all []*module) (required []*module) {
	for _, r := range m.file.Require {
		for _, s := range all {
			if s.name() == r.Mod.Path {
				required = append(required, s)
			}
		}
	}
	return required
}

func each(all []*module, do func(*module) error) error {
	var errs []error
	for _, m := range all {
		if err := do(m); err != nil {
			errs = append(errs, fmt.Errorf("./%s: %w", m.dir, err))
		}
	}
	return errors.Join(errs...)
}

// withReplacements writes a go.mod and a go.sum of m in which siblings are found in the checkout, whatever version is
// required, for what ignores go.work. It returns the path of that go.mod.
func (m *module) withReplacements(all []*module, newest []*modfile.Require) (path string, err error) {
	dir, err := os.MkdirTemp("", "modules")
	if err != nil {
		return "", err
	}
	file, err := parse(filepath.Join(m.path(), "go.mod"))
	if err != nil {
		return "", err
	}
	for _, s := range all {
		if s.name() != m.name() {
			if err := file.AddReplace(s.name(), "", s.path(), ""); err != nil {
				return "", err
			}
		}
	}
	for _, n := range newest {
		if has(file, n.Mod.Path) {
			if err := file.AddRequire(n.Mod.Path, n.Mod.Version); err != nil {
				return "", err
			}
		}
	}
	sums, _ := os.ReadFile(filepath.Join(m.path(), "go.sum")) // a module that requires nothing has none
	path = filepath.Join(dir, "go.mod")
	return path, errors.Join(os.WriteFile(path, modfile.Format(file.Syntax), 0o644),
		os.WriteFile(filepath.Join(dir, "go.sum"), sums, 0o644))
}

func has(file *modfile.File, path string) bool {
	return slices.ContainsFunc(file.Require, func(r *modfile.Require) bool { return r.Mod.Path == path })
}

// tidy is go mod tidy, which by itself would ask the network for siblings.
func (m *module) tidy(all []*module, check bool) error {
	path, err := m.withReplacements(all, nil)
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(filepath.Dir(path)) }()
	if err := m.goCommand(nil, "mod", "tidy", "-modfile="+path); err != nil {
		return err
	}
	file, err := parse(path)
	if err != nil {
		return err
	}
	for _, s := range all {
		_ = file.DropReplace(s.name(), "") // it is there, but for the module itself
	}
	file.Cleanup()
	sums, err := os.ReadFile(filepath.Join(filepath.Dir(path), "go.sum"))
	if err != nil && !errors.Is(err, os.ErrNotExist) { // one that requires nothing has none
		return err
	}
	err = nil
	sums = m.withSiblings(sums, all)
	for name, text := range map[string][]byte{"go.mod": modfile.Format(file.Syntax), "go.sum": sums} {
		target := filepath.Join(m.path(), name)
		is, _ := os.ReadFile(target)
		switch {
		case bytes.Equal(is, text):
		case check:
			err = errors.Join(err, fmt.Errorf("%s is not tidy: run scripts/modules tidy", name))
		default:
			err = errors.Join(err, os.WriteFile(target, text, 0o644))
		}
	}
	return err
}

// withSiblings adds the sums of siblings that go.sum has: those of a version that is released, which a replacement
// does without.
func (m *module) withSiblings(sums []byte, all []*module) []byte {
	is, _ := os.ReadFile(filepath.Join(m.path(), "go.sum"))
	lines := slices.Collect(strings.Lines(string(sums)))
	before := len(lines)
	for line := range strings.Lines(string(is)) {
		name, _, _ := strings.Cut(line, " ")
		ours := slices.ContainsFunc(all, func(s *module) bool { return s.name() == name })
		if ours && !slices.Contains(lines, line) {
			lines = append(lines, line)
		}
	}
	if len(lines) == before {
		return sums
	}
	// The order of the go command: v1.3.0 is before v1.11.1.
	var order []moduleversion.Version
	of := make(map[moduleversion.Version]string)
	for _, line := range lines {
		fields := strings.Fields(line)
		v := moduleversion.Version{Path: fields[0], Version: fields[1]}
		order, of[v] = append(order, v), line
	}
	moduleversion.Sort(order)
	var text strings.Builder
	for _, v := range order {
		text.WriteString(of[v])
	}
	return []byte(text.String())
}

// alone runs the go command in the module as if it were in a repository of its own.
func (m *module) alone(all []*module, newest []*modfile.Require, args []string) error {
	path, err := m.withReplacements(all, newest)
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(filepath.Dir(path)) }()
	readOnly := "-mod=readonly" // what is required has to be enough
	if newest != nil {
		readOnly = "-mod=mod"
	}
	fmt.Printf("./%s: go %s\n", m.dir, strings.Join(args, " "))
	flags := []string{"-modfile=" + path, readOnly}
	return m.goCommand(nil, slices.Concat(args[:1], flags, args[1:])...)
}

// goCommand runs the go command in the module's directory, without go.work.
func (m *module) goCommand(env []string, args ...string) error {
	cmd := exec.CommandContext(context.Background(), "go", args...)
	cmd.Dir = m.path()
	cmd.Env = append(append(os.Environ(), "GOWORK=off", "GOFLAGS=-buildvcs=false"), env...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("go %s: %w", strings.Join(args, " "), err)
	}
	return nil
}
