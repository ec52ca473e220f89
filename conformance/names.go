package conformance

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/golockers/locker"
)

// troublesome are names that some encoding maps to one, or that reach outside their space. A part of
// the trial's own is added before or after, or both if the encoding treats ends specially.
func troublesome() []string {
	return []string{
		"", "x", "X", "x ", " x", "x.", ".x", "x..", "x\t", "x\n", "x\r\n", "x\x00", "x\x00y", "\x00x",
		".", "..", "/", "//", "x/", "/x", "x/y", "x//y", "x/./y", "x/../x", "../x", "../../x", "x/..", "./x",
		"x\\y", "..\\x", "C:\\x", "c:x",
		"{x}", "{x", "x}", "{}", "{x}{y}", "}x{", "{x}:fence", "x:fence", "x:wait", "x:y", "x:",
		":x", "{x}:fence:y",
		"x-0000000001", "x-lock-0000000001", "x.lock", "x.tmp", "x~", "#x#", "x/lock", "x/0",
		"%", "%2F", "%2f", "%252F", "%00", "x%20", "x+", "x y", "%x", "x%", "%2", "+", "=", "==", "x=",
		"-", "_", "-x", "--",
		"*", "?", "x*", "x?", "[x]", "$x", "${x}", "~", "~x", "`x`", "'x'", "\"x\"", "x;y", "x|y", "x&y",
		"<x>", "x,y", "(x)", "!x", "@x", "^x",
		"é", "e\u0301", "É", "ß", "ss", "SS", "İ", "i", "I", "ı", "ﬁ", "fi", "Å", "\u212b", "Ω", "\u2126",
		"ö", "o\u0308", "ｘ", "х",
		"日本語", "🔒", "🔒🔒", "\u200b", "x\u200b", "\ufeff", "\ufeffx", "\u202ex", "\u2028", "\u00a0", "x\u00a0",
		"\U0010ffff", "\ufffd", "\u0085",
		"con", "CON", "nul", "aux.txt", "com1", "lpt1", "null", "nil", "true", "0", "00", "-1", "1e3", "1000",
		"zookeeper", "__sessions__", "quota", "\x1b[2J", "\x7f", "\x01",
		"a", "ab", "abc", "aa", "aaa", "eA==", "eA", "78", "0x78", "x78",
	}
}

// long returns names of the given length that differ only in one byte, where some services stop
// comparing.
func longNames(length int) (names []string) {
	for _, at := range []int{0, 63, 64, 127, 128, 254, 255, 256, 511} {
		if at >= length {
			break
		}
		b := []byte(strings.Repeat("n", length))
		b[at] = 'm'
		names = append(names, string(b))
	}
	return append(names, strings.Repeat("n", length), strings.Repeat("n", length-1))
}

func checkNames(s *trial) {
	const cause = "names are encoded so that two become one: by folding case, cleaning paths, trimming, " +
		"cutting, or a separator that a name can contain"
	c, other := s.client(), s.client()
	var names []string
	for _, n := range slices.Concat(troublesome(), s.h.Names) {
		names = append(names, s.run+n, n+s.run)
	}
	names[0], names[1] = s.run+"-1", s.run+"-2" // "" before and after are the same
	for _, n := range longNames(locker.MaxNameLen - len(s.run)) {
		names = append(names, s.run+n)
	}
	// Two bytes per character, and the longest possible.
	names = append(names, s.run+strings.Repeat("é", (locker.MaxNameLen-len(s.run))/2),
		s.run+strings.Repeat("\x00", locker.MaxNameLen-len(s.run)))
	// Purely special names are tried alone, if they are free.
	for _, n := range []string{".", "..", "/", "//", "../..", "%", "*", "{}", "\x00", " "} {
		l, err := s.tryLock(c, n, locker.TTL(s.long))
		switch {
		case errors.Is(err, locker.ErrHeld):
			s.broken(fmt.Sprintf("the name %q is held although nobody locked it", n), cause)
		case err != nil:
			s.broken(fmt.Sprintf("Lock of %q failed: %v", n, err),
				"the name reaches the service without being encoded")
		}
		s.unlock(l)
	}

	held := make(map[string]*locker.Lease)
	for _, n := range names {
		if held[n] != nil {
			continue
		}
		l, err := s.tryLock(c, n, locker.TTL(s.long))
		switch {
		case errors.Is(err, locker.ErrHeld):
			s.report(fmt.Sprintf("%s is held although nobody locked it: it is the same lock as another of "+
				"the suite's names", show(n)), cause)
			continue
		case err != nil:
			s.report(fmt.Sprintf("Lock of %s failed: %v", show(n), err), "the name reaches the service "+
				"without being encoded, or is too long for it: hash what is too long")
			continue
		}
		held[n] = l
	}
	s.listAll(c, held)
	for n, l := range held {
		if _, err := s.tryLock(other, n, locker.TTL(s.long)); !errors.Is(err, locker.ErrHeld) {
			s.report(fmt.Sprintf("%s is held, and TryLock of another client returned %v", show(n), err),
				"the encoding of the name differs between clients, or two names share a lock")
		}
		if err := l.Unlock(s.within(s.patience())); err != nil {
			s.report(fmt.Sprintf("Unlock of %s failed: %v", show(n), err), cause)
		}
	}
	for _, bad := range []string{"", strings.Repeat("n", locker.MaxNameLen+1), "x\xff"} {
		if _, err := s.tryLock(c, bad); err == nil || errors.Is(err, locker.ErrHeld) {
			s.report(fmt.Sprintf("the bad name %s was not refused: %v", show(bad), err),
				"an engine that does not check names")
		}
	}
}

// listAll asks for all names at once.
func (s *trial) listAll(c *locker.Client, held map[string]*locker.Lease) {
	told := map[string]int{}
	for st, err := range c.List(s.within(s.patience()), "") {
		if errors.Is(err, errors.ErrUnsupported) {
			return
		}
		if err != nil {
			s.report(fmt.Sprintf("List failed: %v", err), "")
			return
		}
		told[st.Name]++
	}
	for n := range held {
		if told[n] != 1 {
			s.report(fmt.Sprintf("%s is held, and List reported it %d times", show(n), told[n]),
				"the name is not decoded as it was encoded, or its key is taken for something else")
		}
	}
}

// show returns a name in printable form.
func show(name string) string {
	if len(name) > 80 {
		return fmt.Sprintf("a name of %d bytes (%q…)", len(name), name[:40])
	}
	return fmt.Sprintf("%q", name)
}
