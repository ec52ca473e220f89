package compare

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/golockers/locker/compare/internal/history"
)

// ownFault is something that the user's own commands do to services that exist already: docs/compare.md.
type ownFault struct {
	Name     string        `json:"name"`
	Services []string      `json:"services"` // none: all
	Inject   string        `json:"inject"`
	Proof    string        `json:"proof"`
	Heal     string        `json:"heal"`
	Lasts    string        `json:"lasts"`
	Does     history.Class `json:"does"`
	Servers  int           `json:"servers"`
}

func (f *ownFault) check() error {
	lasts, err := time.ParseDuration(cmp.Or(f.Lasts, "1s"))
	switch {
	case f.Name == "" || f.Inject == "":
		return errors.New("compare: a fault needs a name and a command: NAME=COMMAND, or \"name\" and " +
			"\"inject\" in the file")
	case strings.ContainsAny(f.Name, ",\n"):
		return fmt.Errorf("compare: fault %q: a name has no comma and is one line", f.Name)
	case err != nil || lasts <= 0:
		return fmt.Errorf("compare: fault %s: lasts: %q is no duration such as 10s", f.Name, f.Lasts)
	case f.Servers < 0:
		return fmt.Errorf("compare: fault %s: servers: %d is no number of servers", f.Name, f.Servers)
	}
	const does = "down, restart, data_lost, failover, clock, pause, server"
	if f.Does = cmp.Or(f.Does, history.Down); !slices.Contains(strings.Split(does, ", "), string(f.Does)) {
		return fmt.Errorf("compare: fault %s: does: %q is none of %s", f.Name, f.Does, does)
	}
	return nil
}

// readFaults reads a file of faults: a JSON array of them.
func readFaults(path string) (faults []ownFault, err error) {
	text, err := os.ReadFile(path)
	if err == nil {
		d := json.NewDecoder(bytes.NewReader(text))
		d.DisallowUnknownFields()
		switch err = d.Decode(&faults); {
		case err != nil:
		case d.More():
			err = errors.New("there is more after the first array: write one")
		case len(faults) == 0:
			err = errors.New("it has no fault")
		}
	}
	if err != nil {
		return nil, fmt.Errorf("compare: %s: %w", path, err)
	}
	return faults, nil
}

// fault is f as a bench has it.
func (f *ownFault) fault() serverFault {
	lasts, _ := time.ParseDuration(f.Lasts)
	return serverFault{
		Fault: history.Fault{ID: f.Name, Class: f.Does, What: "Done by: " + f.Inject},
		takes: f.Servers, lasts: lasts, long: lasts == 0, must: true, services: f.Services,
		inject: func(b *bench) string {
			out, err := shell(b.ctx, f.Inject)
			if err != nil {
				b.Fatalf("fault %s: %v", f.Name, err)
			}
			if f.Proof == "" {
				return "its command ended with status 0"
			}
			err = errors.New("never asked")
			b.wait(time.Minute, func() bool {
				out, err = shell(b.ctx, f.Proof)
				return err == nil
			})
			if err != nil {
				b.Fatalf("fault %s was not seen to take effect: %v", f.Name, err)
			}
			return cmp.Or(out, "the command that looks for it ended with status 0")
		},
		heal: func(b *bench) {
			if f.Heal == "" {
				return
			}
			// Also when the run has been interrupted.
			ctx, cancel := context.WithTimeout(context.WithoutCancel(b.ctx), 2*time.Minute)
			defer cancel()
			_, err := shell(ctx, f.Heal)
			if err != nil && b.ctx.Err() != nil {
				_, err = shell(ctx, f.Heal) // Ctrl-C is sent to the command, too
			}
			if err != nil {
				b.run.say("fault %s COULD NOT BE HEALED by %q: %v", f.Name, f.Heal, err)
				b.Fatalf("fault %s could not be healed: %v", f.Name, err)
			}
		},
	}
}

// staged is a service that exists already.
func (b *bench) staged(a address, faults []ownFault) {
	b.address = a
	for _, f := range labFaults {
		b.untried[f.ID] = "servers that are not the lab's are left alone: give a command that does it (--fault)"
	}
	for i := range faults {
		b.faults = append(b.faults, faults[i].fault())
	}
}

// shell runs a command, and returns the last line that it wrote.
func shell(ctx context.Context, command string) (string, error) {
	cmd := exec.CommandContext(ctx, "sh", "-c", command)
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	last := lines[len(lines)-1]
	if err != nil {
		return last, fmt.Errorf("%q: %w: %s", command, err, last)
	}
	return last, nil
}
