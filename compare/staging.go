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

// Fault is something that the user's own commands do to services that exist already.
type Fault struct {
	// Name is what it is called in the table, in report.json, and in Plan.Only.
	Name string `json:"name"`
	// Services are the names of those that it is done to, as in the table, such as "redis"; none means all.
	Services []string `json:"services,omitempty"`
	// Inject is given to sh -c. The fault has taken effect when it ends with status 0, and so does Proof.
	Inject string `json:"inject"`
	// Proof is asked until it ends with status 0, for at most a minute; what it writes is the evidence.
	Proof string `json:"proof,omitempty"`
	// Heal undoes it; it is run whatever happens, also on Ctrl-C.
	Heal string `json:"heal,omitempty"`
	// Lasts is the time between Inject and Heal, such as "10s"; by default it is a bit longer than a TTL.
	Lasts string `json:"lasts,omitempty"`
	// Does says which declaration covers it: down (the default), restart, data_lost, failover, clock, pause,
	// server.
	Does history.Class `json:"does,omitempty"`
	// Servers is how many servers it takes away.
	Servers int `json:"servers,omitempty"`
}

func (f *Fault) check() error {
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
	does := []history.Class{"", history.Down, history.Restart, history.DataLost, history.Failover,
		history.Clock, history.Pause, history.Server}
	if !slices.Contains(does, f.Does) {
		return fmt.Errorf("compare: fault %s: does: %q is none of down, restart, data_lost, failover, "+
			"clock, pause, server", f.Name, f.Does)
	}
	return nil
}

func (f *Fault) describe() history.Fault {
	return history.Fault{ID: f.Name, Class: cmp.Or(f.Does, history.Down), What: "Done by: " + f.Inject}
}

// ReadFaults reads a file of faults: a JSON array of [Fault].
func ReadFaults(path string) ([]Fault, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("compare: %w", err)
	}
	var faults []Fault
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	err = d.Decode(&faults)
	if err == nil && d.More() {
		err = errors.New("there is more after the first array: write one")
	}
	if err == nil && len(faults) == 0 {
		err = errors.New("it has no fault")
	}
	if err != nil {
		return nil, fmt.Errorf("compare: %s: %w", path, err)
	}
	return faults, nil
}

// staged is a service that exists already.
func staged(a address, faults []Fault) service {
	s := service{address: a, untried: map[string]string{}}
	for _, f := range labFaults {
		s.untried[f.ID] = "servers that are not the lab's are left alone: give a command that does it (--fault)"
	}
	for _, f := range faults {
		s.faults = append(s.faults, f.server())
	}
	return s
}

// server is the fault as a bench runs it.
func (f Fault) server() serverFault {
	lasts, _ := time.ParseDuration(f.Lasts)
	own := serverFault{fault: f.describe(), takes: f.Servers, lasts: lasts, long: lasts == 0, must: true,
		services: f.Services}
	own.inject = func(b *bench) string {
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
	}
	own.heal = func(b *bench) {
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
			b.run.live.say("fault %s COULD NOT BE HEALED by %q: %v", f.Name, f.Heal, err)
			b.Fatalf("fault %s could not be healed: %v", f.Name, err)
		}
	}
	return own
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
