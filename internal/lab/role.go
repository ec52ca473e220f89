package lab

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
)

// roleEnv holds the roleCall of a child. Its presence is what makes a process a child.
const roleEnv = "LOCKER_TEST_ROLE"

type roleCall struct {
	Role string
	Args []string
}

// Roles are the parts that the test binary can play as a child, by name.
type Roles map[string]func(p *Parent)

// RunRole plays the role that this process was started for by [StartChild], and then exits with status
// 0. In a process that is no child it returns at once. A package with children calls it first in its TestMain.
func RunRole(roles Roles) {
	text, child := os.LookupEnv(roleEnv)
	if !child {
		return
	}
	// A child of the child is none, unless it is made one.
	_ = os.Unsetenv(roleEnv)
	var call roleCall
	err := json.Unmarshal([]byte(text), &call)
	play, known := roles[call.Role]
	if err != nil || !known {
		names := make([]string, 0, len(roles))
		for name := range roles {
			names = append(names, name)
		}
		slices.Sort(names)
		fmt.Fprintf(os.Stderr, "lab: no role %q in this test binary; it has %s\n", call.Role,
			strings.Join(names, ", "))
		os.Exit(2)
	}
	p := &Parent{Args: call.Args, lines: make(chan string)}
	go p.read()
	play(p)
	os.Exit(0)
}

// Parent is how a child talks to its test.
type Parent struct {
	// Args are what StartChild was given.
	Args []string

	lines chan string
}

// read ends the process when the parent is gone: this works everywhere, and needs no help of the kernel.
func (p *Parent) read() {
	scanner := bufio.NewScanner(os.Stdin)
	for scanner.Scan() {
		p.lines <- scanner.Text()
	}
	os.Exit(3)
}

// Say sends a line to the test. It may be called from any goroutine.
func (p *Parent) Say(format string, args ...any) {
	// One write, so that lines of several goroutines do not mix.
	_, _ = os.Stdout.WriteString(fmt.Sprintf(format, args...) + "\n")
}

// Hear waits for the next line that the test sends. If the test is gone, the process ends.
func (p *Parent) Hear() string { return <-p.lines }
