package lab_test

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/golockers/locker/internal/lab"
)

// echo says what it hears.
func echo(p *lab.Parent) {
	p.Say("ready %d %q", os.Getpid(), p.Args)
	for {
		p.Say("heard %s", p.Hear())
	}
}

// spin keeps several threads busy.
func spin(p *lab.Parent) {
	for range 3 {
		go func() {
			for i := 0; ; i++ {
				runtime.KeepAlive(i)
			}
		}()
	}
	p.Say("ready")
	select {}
}

// flood says far more than a pipe holds, and ends.
func flood(p *lab.Parent) {
	for range 20_000 {
		p.Say("%s", strings.Repeat("x", 100))
	}
	p.Say("done")
}

func TestChildTalksWithItsTest(t *testing.T) {
	c := lab.StartChild(t, "echo", "one", "two words", `"`)
	assert.Equal(t, fmt.Sprintf("%d %q", c.Pid(), []string{"one", "two words", `"`}), c.Expect(t, "ready", soon))
	c.Send(t, "hello there")
	c.Send(t, "again")
	assert.Equal(t, "hello there", c.Expect(t, "heard", soon))
	c.Expect(t, "heard again", soon)
	assert.Contains(t, c.Log(), "heard hello there")
	c.Kill()
	assert.NotEqual(t, 0, c.Wait(t, soon))
}

func TestChildEnds(t *testing.T) {
	assert.Equal(t, 7, lab.StartChild(t, "exit").Wait(t, soon))
	c := lab.StartChild(t, "leave")
	c.Expect(t, "bye", soon)
	assert.Equal(t, 0, c.Wait(t, soon))
	c = lab.StartChild(t, "flood")
	assert.Equal(t, 0, c.Wait(t, 10*soon), "it is not held up if nobody listens")
	c.Expect(t, "done", soon)
	c = lab.StartChild(t, "panic")
	assert.Equal(t, 2, c.Wait(t, soon))
	assert.Contains(t, c.Log(), "on purpose", "what a child dies of is in its log")
	c = lab.StartChild(t, "nosuch")
	assert.Equal(t, 2, c.Wait(t, soon))
	assert.Contains(t, c.Log(), `no role "nosuch" in this test binary; it has echo, exit`)
}
