package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/mod/modfile"
	moduleversion "golang.org/x/mod/module"
	"golang.org/x/mod/semver"
	"golang.org/x/mod/zip"
)

// release writes a version into the checkout, and says which tags make the release. The sum of each module is in the
// go.sum of those that require it, so one after the other is tidied and put into a proxy.
func release(top, version string) error {
	// Whatever differs from what is tagged has another sum.
	status := exec.CommandContext(context.Background(), "git", "status", "--porcelain")
	status.Dir = top
	if out, err := status.Output(); err != nil || len(out) > 0 {
		return errors.Join(err, fmt.Errorf("commit first what is not committed: the sums are those of what is tagged\n%s", out))
	}
	return inCopy(top, version, func(work string, all []*module) error {
		proxy := filepath.Join(work, "proxy")
		// What is tried here is not what is tagged: it has a cache of its own.
		env, err := proxyEnv(proxy, "GOMODCACHE="+filepath.Join(work, "modules"))
		if err != nil {
			return err
		}
		tree, names := all[0].top, []string{"go.work", "scripts/newest/go.work"}
		for _, name := range names { // first: they are in the root module
			if err := writeWork(filepath.Join(tree, name), all, version); err != nil {
				return err
			}
		}
		for _, m := range all {
			if err := errors.Join(m.require(all, version), m.goCommand(env, "mod", "tidy"), m.pack(version, proxy)); err != nil {
				return fmt.Errorf("./%s: %w", m.dir, err)
			}
		}
		tags := make([]string, 0, len(all))
		for _, m := range all {
			names = append(names, filepath.Join(m.dir, "go.mod"), filepath.Join(m.dir, "go.sum"))
			tags = append(tags, path.Join(m.dir, version))
		}
		for _, name := range names {
			text, err := os.ReadFile(filepath.Join(tree, name))
			if err == nil {
				err = os.WriteFile(filepath.Join(top, name), text, 0o644)
			}
			if err != nil {
				return err
			}
		}
		fmt.Printf("Commit this, and then tag that commit:\n  for tag in %s; do git tag $tag; done\n", strings.Join(tags, " "))
		return nil
	})
}

// makeProxy leaves a module proxy in a directory, and the checkout as it is. Who takes a module from it looks at no
// go.sum but its own, so that those are left as they are.
func makeProxy(top, version, proxy string) error {
	if !filepath.IsAbs(proxy) {
		proxy = filepath.Join(os.Getenv("CALLED_IN"), proxy) // this program runs in its own folder
	}
	return inCopy(top, version, func(_ string, all []*module) error {
		return each(all, func(m *module) error { return errors.Join(m.require(all, version), m.pack(version, proxy)) })
	})
}

// prove tries what a release would be: each module builds with what its go.mod and go.sum say, and an empty module
// adds the root, a backend, all of them and the command.
func prove(top string) (err error) {
	version := fmt.Sprintf("v0.0.1-prove.%d", time.Now().UnixNano()) // there is no other in the module cache
	return inCopy(top, version, func(work string, all []*module) (err error) {
		proxy := filepath.Join(work, "proxy")
		env, err := proxyEnv(proxy)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, forget(version)) }()
		for _, m := range all {
			if err := errors.Join(m.require(all, version), m.goCommand(env, "mod", "tidy"), m.pack(version, proxy),
				m.goCommand(append(slices.Clone(env), "GOFLAGS=-mod=readonly -modcacherw"), "build", "./...")); err != nil {
				return fmt.Errorf("./%s: %w", m.dir, err)
			}
			fmt.Printf("./%s builds by itself\n", m.dir)
		}
		root := all[0].name()
		for what, main := range map[string]string{
			"":          "var _ locker.Locker",
			"/single":   "var _ = single.Openers",
			"/backends": "var _ = backends.Open",
		} {
			user := &module{top: work, dir: "user" + what}
			text := fmt.Sprintf("package main\n\nimport %q\n\n%s\n\nfunc main() {}\n", root+what, main)
			if err := errors.Join(os.MkdirAll(user.path(), 0o755), user.goCommand(env, "mod", "init", "example.com/user"),
				os.WriteFile(filepath.Join(user.path(), "main.go"), []byte(text), 0o644),
				user.goCommand(env, "get", root+what+"@"+version), user.goCommand(env, "build", "-o", os.DevNull, ".")); err != nil {
				return err
			}
		}
		bin := &module{top: work, dir: "bin"}
		if err := errors.Join(os.MkdirAll(bin.path(), 0o755),
			bin.goCommand(append(env, "GOFLAGS=-modcacherw", "GOBIN="+bin.path()), "install", root+"/cmd/locker@"+version)); err != nil {
			return err
		}
		out, err := exec.CommandContext(context.Background(), filepath.Join(bin.path(), "locker"), "--version").Output()
		if err == nil && !strings.Contains(string(out), version) {
			err = fmt.Errorf("the command says that it is %q, and not %s", out, version)
		}
		fmt.Printf("An empty module adds the root, single, backends and the command: %s", out)
		return err
	})
}

// forget removes what a version that was tried has left in the module cache.
func forget(version string) error {
	cache, err := exec.CommandContext(context.Background(), "go", "env", "GOMODCACHE").Output()
	if err != nil {
		return err
	}
	top := filepath.Join(strings.TrimSpace(string(cache)))
	return exec.CommandContext(context.Background(), "find", filepath.Join(top, "github.com/golockers"), filepath.Join(top, "cache/download/github.com/golockers"),
		"(", "-name", "*@"+version, "-o", "-name", version+".*", ")", "-prune", "-exec", "rm", "-rf", "{}", "+").Run()
}

// inCopy does something with the modules of a copy of the checkout, in a directory that is removed afterwards.
func inCopy(top, version string, do func(work string, all []*module) error) (err error) {
	if !semver.IsValid(version) || semver.Canonical(version) != version || semver.Compare(version, "v2.0.0-0") >= 0 {
		return fmt.Errorf("%q is no version of these modules, such as v0.1.0", version)
	}
	work, err := os.MkdirTemp("", "release")
	if err != nil {
		return err
	}
	defer func() {
		err = errors.Join(err, exec.CommandContext(context.Background(), "chmod", "-R", "u+w", work).Run(), os.RemoveAll(work))
	}()
	tree := filepath.Join(work, "tree")
	if err := copyCheckout(top, tree); err != nil {
		return err
	}
	all, err := read(tree)
	if err != nil {
		return err
	}
	return do(work, all)
}

// proxyEnv has the go command find our modules in proxy, and all others where it found them until now.
func proxyEnv(proxy string, more ...string) ([]string, error) {
	out, err := exec.CommandContext(context.Background(), "go", "env", "GOMODCACHE", "GOPROXY").Output()
	had, next, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	return append([]string{"GOFLAGS=-mod=mod -modcacherw", "GONOSUMDB=github.com/golockers/locker",
		"GOPROXY=file://" + proxy + ",file://" + filepath.Join(had, "cache/download") + "," + next}, more...), err
}

// require gives what a module requires of us a version.
func (m *module) require(all []*module, version string) error {
	for _, s := range m.siblings(all) {
		if err := m.file.AddRequire(s.name(), version); err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(m.path(), "go.mod"), modfile.Format(m.file.Syntax), 0o644)
}

// pack puts a module into a proxy. A module in a folder that has no license has that of the repository.
func (m *module) pack(version, proxy string) error {
	const license = "LICENSE"
	own := filepath.Join(m.path(), license)
	if of, err := os.ReadFile(filepath.Join(m.top, license)); err == nil {
		if _, err := os.Stat(own); err != nil {
			if err := os.WriteFile(own, of, 0o644); err != nil {
				return err
			}
			defer func() { _ = os.Remove(own) }()
		}
	}
	text, err := os.ReadFile(filepath.Join(m.path(), "go.mod"))
	if err != nil {
		return err
	}
	dir := filepath.Join(proxy, m.name(), "@v")
	var packed bytes.Buffer
	info := fmt.Sprintf(`{"Version":%q,"Time":%q}`, version, time.Now().UTC().Format(time.RFC3339))
	return errors.Join(os.MkdirAll(dir, 0o755),
		zip.CreateFromDir(&packed, moduleversion.Version{Path: m.name(), Version: version}, m.path()),
		os.WriteFile(filepath.Join(dir, version+".zip"), packed.Bytes(), 0o644),
		os.WriteFile(filepath.Join(dir, version+".mod"), text, 0o644),
		os.WriteFile(filepath.Join(dir, version+".info"), []byte(info), 0o644),
		os.WriteFile(filepath.Join(dir, "list"), []byte(version+"\n"), 0o644))
}

// writeWork has a go.work find the modules of a version in the checkout.
func writeWork(path string, all []*module, version string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	work, err := modfile.ParseWork(path, text, nil)
	if err != nil {
		return err
	}
	for _, r := range work.Replace {
		r.Old.Version = version
		r.Syntax.Token[len(r.Syntax.Token)-3] = version
	}
	if len(work.Replace) != len(all) {
		return fmt.Errorf("%s has %d replacements for %d modules", path, len(work.Replace), len(all))
	}
	return os.WriteFile(path, modfile.Format(work.Syntax), 0o644)
}

// copyCheckout copies what git knows of, as it is now.
func copyCheckout(from, to string) error {
	list := exec.CommandContext(context.Background(), "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	list.Dir = from
	out, err := list.Output()
	if err != nil {
		return fmt.Errorf("git ls-files: %w", err)
	}
	for name := range strings.SplitSeq(strings.TrimRight(string(out), "\x00"), "\x00") {
		text, err := os.ReadFile(filepath.Join(from, name))
		if errors.Is(err, os.ErrNotExist) {
			continue // it is removed, and not yet committed
		}
		target := filepath.Join(to, name)
		if err = errors.Join(err, os.MkdirAll(filepath.Dir(target), 0o755), os.WriteFile(target, text, 0o644)); err != nil {
			return err
		}
	}
	return nil
}
