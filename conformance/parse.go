package conformance

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/golockers/locker"
)

// ScriptEnv is the environment variable with a script that [Run] plays instead of histories, as
// failures report it.
const ScriptEnv = "CONFORMANCE_SCRIPT"

// scriptOf returns the steps of the script to play; none: there is no such script.
func scriptOf() (steps []step, err error) {
	if text := os.Getenv(ScriptEnv); text != "" {
		if steps, err = parse(text); err != nil {
			err = fmt.Errorf("%s: %w", ScriptEnv, err)
		}
	}
	return steps, err
}

// The longest script, and the longest time of a step.
const mostSteps, longestStep = 1000, 10 * 366 * 24 * time.Hour

// parse reads a script as String writes it.
func parse(text string) (steps []step, err error) {
	for part := range strings.SplitSeq(text, ";") {
		words := strings.Fields(part)
		if len(words) == 0 { // the last one may end with a semicolon
			continue
		}
		st, err := parseStep(words)
		if err != nil {
			return nil, fmt.Errorf("step %d, %.80q: %w", len(steps)+1, strings.Join(words, " "), err)
		}
		if steps = append(steps, st); len(steps) > mostSteps {
			return nil, fmt.Errorf("there are more than %d steps", mostSteps)
		}
	}
	if len(steps) == 0 {
		return nil, errors.New("there is no step")
	}
	return steps, nil
}

var (
	plainVerbs = []verb{doCancel, doClose, doFinish}
	verbs      = []verb{doAcquire, doAgain, doWait, doTwice, doRenew, doRelease, doUndo, doPass, doRaise, doInspect, doList,
		doBreak, doDelete, doListen, doStop} // of two with the same beginning, the longer one is first
	limits = []limit{brief, middle, beyond, never}
)

func parseStep(words []string) (st step, err error) {
	rest := strings.Join(words[1:], " ")
	switch who, is := strings.CutSuffix(words[0], ":"); {
	case words[0] == "pause":
		st.do = doPause
		st.ttl, err = parseTime(rest)
		return st, err
	case words[0] == "servers:":
		st = step{do: doServers, who: other, server: server(rest)}
		return st, unless(slices.Contains(serverEvents, st.server), "nothing of servers is called %q", rest)
	case len(who) != 1 || !strings.Contains(letters[:prober], who):
		return st, fmt.Errorf("no client is called %q: they are %s to %s", who, letters[:1], letters[prober-1:prober])
	case is:
		st = step{do: doFault, who: strings.Index(letters, who), fault: fault(rest)}
		if rest == mended {
			st.fault = noFault
			return st, nil
		}
		return st, unless(slices.Contains(faults, st.fault), "no fault is called %q", rest)
	default:
		st.who = strings.Index(letters, who)
	}
	if slices.Contains(plainVerbs, verb(rest)) {
		st.do = verb(rest)
		return st, nil
	}
	i := slices.IndexFunc(verbs, func(v verb) bool { return strings.HasPrefix(rest+" ", string(v)+" ") })
	if i < 0 {
		return st, fmt.Errorf("a client cannot do %q", rest)
	}
	st.do = verbs[i]
	rest = strings.TrimSpace(rest[len(st.do):])
	for _, l := range limits {
		if before, is := strings.CutSuffix(" "+rest, " "+string(l)); is {
			st.limit, rest = l, before
			break
		}
	}
	words = strings.Fields(rest)
	if len(words) == 0 || words[0] != "0" && words[0] != "1" {
		return st, errors.New("after the verb comes the number of a name, 0 or 1")
	}
	st.name, _ = strconv.Atoi(words[0])
	return st, st.options(words[1:])
}

// options reads the options of a step: in the order in which String writes them, each once.
func (s *step) options(words []string) (err error) {
	for past := 0; len(words) > 0; {
		var n int64
		at, takes, value := 0, 2, strings.Join(words[1:min(2, len(words))], "")
		switch word := words[0]; {
		case word == "shared":
			at, takes, s.shared = 1, 1, true
		case word == "yielding":
			at, takes, s.yield = 2, 1, true
		case word == "before":
			at = 3
			n, err = parseNumber(value, 0, mostSteps)
			s.old = int(n)
		case word == "by" && s.do == doRaise:
			at = 4
			n, err = parseNumber(value, -1, highToken)
			s.ttl = time.Duration(n)
		case word == "MinHold":
			at = 5
			s.min, err = parseTime(value)
		case word == "label":
			at = 6
			if n, err = parseNumber(value, 0, int64(len(labels)-1)); err == nil {
				s.label = labels[n]
			}
		default:
			at, takes = 4, 1
			s.ttl, err = parseTime(word)
		}
		if err == nil && (at <= past || at == 4 && takes == 1 && s.do == doRaise) {
			err = fmt.Errorf("%q is in the wrong place", words[0])
		}
		if err != nil {
			return err
		}
		past, words = at, words[takes:]
	}
	return nil
}

func parseNumber(text string, least, most int64) (n int64, err error) {
	if n, err = strconv.ParseInt(text, 10, 64); err == nil && (n < least || n > most) {
		err = fmt.Errorf("%d is out of range", n)
	}
	return n, err
}

func parseTime(text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if err == nil && (d <= 0 || d > longestStep) {
		err = fmt.Errorf("%v is out of range", d)
	}
	return d, err
}

func unless(is bool, format string, args ...any) error {
	if is {
		return nil
	}
	return fmt.Errorf(format, args...)
}

// labels are those that scripts draw, except the last ones. A step names them by number.
var labels = []string{"", "kit", "pod-7 (12)", strings.Repeat("é", locker.MaxLabelLen/2), "123", `{"a":"b"}`, "a:b/c,d;e",
	"50% *[x] %s $1", "'quoted' \"twice\" \\", strings.Repeat("x", locker.MaxLabelLen), "日本 🔒", " ",
	strings.Repeat("<", locker.MaxLabelLen), "pod", "raises"}

const drawnLabels = 13
