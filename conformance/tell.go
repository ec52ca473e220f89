package conformance

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"
)

// brokenScript is a script, and the rules that it broke.
type brokenScript struct {
	n     int
	sc    script // without what: it is not one script
	found []violation
	more  []string      // what the harness reported
	slow  time.Duration // the longest time of a healthy call

	scripts int  // that break the same rule
	shorter bool // some steps were left out, and the rest still breaks the rule
	terse   bool // reported only with what is needed to play it again
	timely  bool // it depends on timing: played again, it broke nothing
}

func (b brokenScript) failed() bool { return len(b.found)+len(b.more) > 0 }

func (b brokenScript) breaks(rule string) bool {
	return slices.ContainsFunc(b.found, func(v violation) bool { return v.rule.name == rule })
}

// rule is the first broken rule; "": none.
func (b brokenScript) rule() string {
	if len(b.found) == 0 {
		return ""
	}
	return b.found[0].rule.name
}

// only is the script with its violation of one rule.
func (b brokenScript) only(rule string) brokenScript {
	i := slices.IndexFunc(b.found, func(v violation) bool { return v.rule.name == rule })
	b.found, b.more = b.found[i:i+1:i+1], nil
	return b
}

// findings are each broken rule once, with the shortest script that breaks it, and the harness's
// messages.
type findings struct {
	all     []brokenScript
	scripts int // that broke something
}

// byRule puts the rules first whose breach costs users most.
func byRule(broken []brokenScript) (f findings) {
	for _, r := range rules {
		var of []brokenScript
		for _, b := range broken {
			if b.breaks(r.name) {
				of = append(of, b.only(r.name))
			}
		}
		if len(of) > 0 {
			least := slices.MinFunc(of, func(a, b brokenScript) int { return cmp.Compare(len(a.sc.steps), len(b.sc.steps)) })
			least.scripts = len(of)
			f.all = append(f.all, least)
		}
	}
	for _, b := range broken {
		if b.failed() {
			f.scripts++
		}
		f.say(b)
	}
	return f
}

// say adds what the harness reported, unless it is already there.
func (f *findings) say(b brokenScript) {
	for _, text := range b.more {
		first, _, _ := strings.Cut(text, "\n")
		i := slices.IndexFunc(f.all, func(c brokenScript) bool {
			return len(c.more) > 0 && strings.HasPrefix(c.more[0]+"\n", first+"\n")
		})
		if i < 0 {
			f.all = append(f.all, brokenScript{n: b.n, sc: b.sc, more: []string{text}, scripts: 1})
		} else {
			f.all[i].scripts++
		}
	}
}

// merge adds others' findings about rules not yet known to be broken.
func (f *findings) merge(others findings) {
	for _, b := range others.all {
		if !slices.ContainsFunc(f.all, func(c brokenScript) bool { return c.rule() == b.rule() }) {
			f.all = append(f.all, b)
		}
	}
	slices.SortStableFunc(f.all, func(a, b brokenScript) int { return cmp.Compare(place(a.rule()), place(b.rule())) })
}

// place is a rule's place in the report; anything else comes last.
func place(name string) int {
	if i := slices.IndexFunc(rules, func(r rule) bool { return r.name == name }); i >= 0 {
		return i
	}
	return len(rules)
}

// tell reports what is broken, in the order in which to fix it.
func (p plan) tell(f findings) string {
	var b strings.Builder
	n := 0
	for _, one := range f.all {
		n += len(one.found)
	}
	if n > 0 {
		fmt.Fprintf(&b, "%d of %d rules broken in %s; fix them in this order:\n", n, len(rules), count(f.scripts, "script"))
	}
	for i, one := range f.all {
		if len(f.all) > 1 {
			fmt.Fprintf(&b, "%d. ", i+1)
		}
		if i >= mostShortened { // the earlier ones should be fixed first
			one = one.brief()
		}
		b.WriteString(p.tellOne(one) + "\n")
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// brief leaves out the calls and the names.
func (b brokenScript) brief() brokenScript {
	b.found = slices.Clone(b.found)
	for i := range b.found {
		b.found[i].hint, b.found[i].told = "", nil
	}
	b.terse = true
	return b
}

func count(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}

func (p plan) tellOne(b brokenScript) (text string) {
	for _, v := range b.found {
		text += v.tell(b.scripts) + "\n"
	}
	for _, m := range b.more {
		text += m + "\n"
	}
	again := fmt.Sprintf("%s=%d", SeedEnv, p.seed)
	if b.sc.what != "" {
		again += fmt.Sprintf("/%d", b.n)
		if !b.sc.plain && !b.terse {
			text += "  names: " + b.sc.tellNames() + "\n"
		}
	}
	switch {
	case b.sc.plain:
		again = b.sc.paste()
	case b.shorter:
		again += " " + b.sc.paste()
	case b.sc.what != "" && !b.terse:
		text += "  script: " + b.sc.what + ": " + b.sc.String() + "\n"
	}
	if b.timely {
		text += "  It depends on timing: played again by itself, this script broke nothing.\n"
	}
	if os.Getenv(proveEnv) != "" {
		again = proveEnv + "=1 " + again
	}
	if p.test == "" {
		return text + "  again: " + again + ", and the same call of Check"
	}
	return fmt.Sprintf("%s  again: %s go test -run '^%s$' .", text, again, strings.ReplaceAll(p.test, "/", "$/^"))
}

// paste is the script in a form for a shell.
func (s script) paste() string { return fmt.Sprintf("%s='%s'", ScriptEnv, s) }

// proveEnv enables this module's tests named TestProve….
const proveEnv = "LOCKER_PROVE"
