//go:build linux || darwin || freebsd

package fileguard_test

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"strconv"
	"syscall"

	"github.com/golockers/locker/fencing"
	"github.com/golockers/locker/fencing/fileguard"
	"github.com/golockers/locker/internal/lab"
)

// roles are what this test binary does as a child. Their first argument is the
// guarded path.
var roles = lab.Roles{
	"crash": crash,
	"race":  raceRole,
	"stop":  stop,
	"user":  user,
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// crash does what it is told with a token, and is killed after a step of it.
func crash(p *lab.Parent) {
	g := must(fileguard.New(p.Args[0]))
	token := must(fencing.Parse(p.Args[2]))
	g.OnStep(func(step string) {
		if step == p.Args[3] {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
	})
	p.Say("done %v", act(g, p.Args[1], token))
}

// act writes the token's own digits, or removes the file.
func act(g *fileguard.Guard, what string, token fencing.Token) error {
	if what == "remove" {
		return g.Remove(context.Background(), token)
	}
	return g.WriteFile(context.Background(), token, []byte(token.String()), 0o644)
}

// raceRole writes with tokens that rise over time, from a base on, but come in
// any order.
func raceRole(p *lab.Parent) {
	g := must(fileguard.New(p.Args[0]))
	base := must(strconv.Atoi(p.Args[1]))
	p.Say("ready")
	p.Hear()
	refused := 0
	for n := range must(strconv.Atoi(p.Args[2])) {
		what := "write"
		if rand.IntN(10) == 0 {
			what = "remove"
		}
		err := act(g, what, fencing.Token(base+4*n+rand.IntN(40)))
		if errors.Is(err, fencing.ErrStale) {
			refused++
		} else if err != nil {
			p.Say("error %v", err)
			return
		}
	}
	p.Say("done %d", refused)
}

// stop is in the middle of a write until it is told to go on.
func stop(p *lab.Parent) {
	g := must(fileguard.New(p.Args[0]))
	err := g.Write(context.Background(), must(fencing.Parse(p.Args[1])), 0o644, func(w io.Writer) error {
		p.Say("inside")
		p.Hear()
		_, err := io.WriteString(w, p.Args[1])
		return err
	})
	p.Say("done %v", err)
}

// user is another user of the host: not root, and in one group besides.
func user(p *lab.Parent) {
	id := must(strconv.Atoi(p.Args[3]))
	group := must(strconv.Atoi(p.Args[4]))
	if err := errors.Join(syscall.Setgroups([]int{group}), syscall.Setgid(id), syscall.Setuid(id)); err != nil {
		panic(err)
	}
	syscall.Umask(0o077)
	g := must(fileguard.New(p.Args[0]))
	p.Say("done %v", act(g, p.Args[1], must(fencing.Parse(p.Args[2]))))
}
