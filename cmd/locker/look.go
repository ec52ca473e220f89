package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"github.com/golockers/locker"
	"github.com/golockers/locker/internal/clock"
)

// look is what is known of a name.
type look struct {
	locker.State
	slots  []look // that are held, of a name that is not held itself
	unseen error  // why the slots were not looked at
}

// slotsTimeout bounds the look for slots: on Redis, it goes through all keys of the server.
const slotsTimeout = 2 * time.Second

var errNotListed = errors.New("the service has not listed them in time")

// inspect looks at names, and then at the slots of those that are not held, as far as that is possible.
func inspect(ctx context.Context, client *locker.Client, names []string) (all []look, err error) {
	for _, name := range names {
		one := look{}
		if one.State, err = client.Inspect(ctx, name); err != nil {
			break
		}
		all = append(all, one)
	}
	ctx, cancel := context.WithTimeout(ctx, slotsTimeout)
	defer cancel()
	for i := range all {
		if !all[i].Held {
			if all[i].unseen = all[i].findSlots(ctx, client); all[i].unseen != nil && ctx.Err() != nil {
				all[i].unseen = errNotListed
			}
		}
	}
	return all, err
}

// list looks at all names with a prefix, and sorts them.
func list(ctx context.Context, client *locker.Client, prefix []string) (all []look, failed error) {
	for st, err := range client.List(ctx, strings.Join(prefix, "")) {
		if failed = err; err == nil { // an error is the last that it yields
			all = append(all, look{State: st})
		}
	}
	slices.SortFunc(all, func(a, b look) int { return strings.Compare(a.Name, b.Name) })
	return all, failed
}

// slotOf matches what package slots puts behind a name: for the slots, and for the locks at which callers wait for one.
var slotOf = regexp.MustCompile(`^(\d+|door\d+)$`)

// findSlots looks for slots of a name that is not held itself. Some clients may not list names. A part of the slots
// would look like all of them.
func (l *look) findSlots(ctx context.Context, client *locker.Client) error {
	all, err := list(ctx, client, []string{l.Name, "/"})
	if err != nil {
		return err
	}
	for _, one := range all {
		switch kind := slotOf.FindString(strings.TrimPrefix(one.Name, l.Name+"/")); {
		case kind == "" || !one.Held:
		case kind[0] != 'd':
			l.slots = append(l.slots, one)
		default: // its holder waits, and others behind it
			l.Waiters = max(l.Waiters, 0) + 1 + max(one.Waiters, 0)
			l.Waiting = append(append(l.Waiting, one.Label), one.Waiting...)
		}
	}
	l.Waiting = l.Waiting[:min(len(l.Waiting), 16)] // as of any lock
	slices.SortStableFunc(l.slots, func(a, b look) int { return cmp.Compare(len(a.Name), len(b.Name)) })
	return nil
}

// MarshalJSON is documented in the help of locker inspect.
func (l look) MarshalJSON() ([]byte, error) {
	o := struct {
		Name      string    `json:"name"`
		Held      bool      `json:"held"`
		Label     string    `json:"label,omitempty"`
		Remaining int64     `json:"remaining_ms,omitempty"`
		Token     uint64    `json:"token,omitempty"`
		Waiters   *int      `json:"waiters,omitempty"`
		Waiting   []string  `json:"waiting,omitempty"`
		Sharers   int       `json:"sharers,omitempty"`
		Sharing   []string  `json:"sharing,omitempty"`
		Since     time.Time `json:"since,omitzero"`
		KeptUntil time.Time `json:"kept_until,omitzero"`
		Slots     []look    `json:"slots,omitempty"`
	}{l.Name, l.Held, l.Label, 0, l.Token, nil, l.Waiting, l.Sharers, l.Sharing, l.Since, l.KeptUntil, l.slots}
	if l.Remaining > 0 {
		o.Remaining = max(1, l.Remaining.Milliseconds())
	}
	if l.Waiters >= 0 {
		o.Waiters = &l.Waiters
	}
	return json.Marshal(o)
}

// lines is a line about each name, and each of its slots.
func lines(all []look) (text string) {
	for _, one := range all {
		text += lineOf(one) + "\n" + lines(one.slots)
	}
	return text
}

// table is a row about each name.
func table(all []look) string {
	var text strings.Builder
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "NAME\tHOLDER\tSINCE\tEXPIRES\tTOKEN\tWAITING")
	for _, l := range all {
		row := []string{printable(l.Name), heldBy(l.State), at(l.Since), expires(l.State), "", waiting(l.State)}
		if l.Token != 0 {
			row[4] = strconv.FormatUint(l.Token, 10)
		}
		for i, cell := range row {
			row[i] = cmp.Or(cell, "-")
		}
		fmt.Fprintln(w, strings.Join(row, "\t"))
	}
	_ = w.Flush()
	return text.String()
}

// lineOf is a line about one name.
func lineOf(l look) string {
	text := strconv.Quote(l.Name)
	switch {
	case l.Held:
		text += ": held" + strings.TrimSuffix(" by "+holding(l.State), " by ")
	case len(l.slots) > 0:
		text += fmt.Sprintf(": slots held: %d", len(l.slots))
	default:
		text += ": free"
	}
	if l.Token != 0 {
		text += fmt.Sprintf(", token %d", l.Token)
	}
	if w := waiting(l.State); w != "" && w != "0" {
		text += ", waiting: " + w
	}
	return text
}

// holding says who holds a lock, since when and for how long.
func holding(s locker.State) string {
	text := heldBy(s)
	if since := at(s.Since); since != "" {
		text += ", since " + since
	}
	switch e := expires(s); {
	case !s.KeptUntil.IsZero():
		text += ", " + e
	case e != "":
		text += ", expires " + e + " unless renewed"
	}
	return text
}

// expires says how long a lock lasts; "" if that is not known, or as long as its process.
func expires(s locker.State) string {
	switch {
	case !s.KeptUntil.IsZero():
		return "kept by --min-hold until " + at(s.KeptUntil)
	case s.Remaining > 0:
		return "in " + clock.Text(s.Remaining.Round(time.Second))
	}
	return ""
}

// at is a time as clocks show it here; "" if it is not known.
func at(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.Local().Format(time.DateTime)
}

// waiting is how many wait, and who; "" if that is not known.
func waiting(s locker.State) string {
	who := printable(strings.Join(s.Waiting, ", "))
	switch {
	case s.Waiters < 0:
		return who
	case who == "":
		return strconv.Itoa(s.Waiters)
	}
	return fmt.Sprintf("%d (%s)", s.Waiters, who)
}

// heldBy is who holds the name, or who share it; "" if that is not known.
func heldBy(s locker.State) string {
	if s.Sharers == 0 {
		return printable(s.Label)
	}
	text := strings.TrimSuffix(fmt.Sprintf("%d sharers", s.Sharers), map[bool]string{true: "s"}[s.Sharers == 1])
	if len(s.Sharing) > 0 {
		text += ": " + printable(strings.Join(s.Sharing, ", "))
	}
	return text
}

// printable quotes what a terminal should not be given as it is: whoever can
// write to the service chooses the label.
func printable(label string) string {
	if strings.ContainsFunc(label, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return strconv.Quote(label)
	}
	return label
}
