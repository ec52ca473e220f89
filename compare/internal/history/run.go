package history

import (
	"time"

	"github.com/golockers/locker"
)

// Run describes a run: everything besides its events that is needed to judge them.
type Run struct {
	Began    time.Time `json:"began"`
	Machine  string    `json:"machine"` // where it took place, and with what
	Services []Service `json:"services"`
	Faults   []Fault   `json:"faults"`
}

// Service is one tried service.
type Service struct {
	Name     string     `json:"name"`              // short and unique: the head of its column
	URL      string     `json:"url,omitempty"`     // passwords masked
	Version  string     `json:"version,omitempty"` // of the servers, if known
	Missing  string     `json:"missing,omitempty"` // why it was not tried, and what would help
	Declared Guarantees `json:"declared"`
	// Untried says why a Fault, by its ID, is not tried on this service.
	Untried map[string]string `json:"not_tried,omitempty"`
}

// Guarantees is locker.Guarantees in words.
type Guarantees struct {
	Backend           string  `json:"backend"`
	Scope             string  `json:"scope"`
	Exclusion         string  `json:"exclusion"`
	Fencing           string  `json:"fencing"`
	Order             string  `json:"order"`
	DeadHolder        string  `json:"dead_holder"`
	DeadHolderSlackMS float64 `json:"dead_holder_slack_ms"`
	ServerCrashes     int     `json:"server_crashes"`
	SurvivesRestart   bool    `json:"survives_restart"`
	SurvivesFailover  bool    `json:"survives_failover"`
	SurvivesClockJump bool    `json:"survives_clock_jump"`
	SurvivesPause     bool    `json:"survives_pause"`
	RestsOn           string  `json:"rests_on,omitempty"`
}

// Declare puts g into words.
func Declare(g locker.Guarantees) Guarantees {
	return Guarantees{
		Backend: g.Backend, Scope: g.Scope.String(), Exclusion: g.Exclusion.String(), Fencing: g.Fencing.String(),
		Order: g.Order.String(), DeadHolder: g.DeadHolder.String(),
		DeadHolderSlackMS: float64(g.DeadHolderSlack) / float64(time.Millisecond),
		ServerCrashes:     g.ServerCrashes, SurvivesRestart: g.SurvivesRestart, SurvivesFailover: g.SurvivesFailover,
		SurvivesClockJump: g.SurvivesClockJump, SurvivesPause: g.SurvivesPause, RestsOn: g.RestsOn,
	}
}

// Fault is a fault of a service or of a holder.
type Fault struct {
	ID    string `json:"id"` // its one name, such as "holder-stopped"
	Class Class  `json:"class"`
	What  string `json:"what,omitempty"` // in a sentence: what happens, and what it shows
	When  string `json:"when,omitempty"` // for a headline: something happened "after a restart"
}

// Class is what a fault does. It says which declaration covers it, and what else the judge must know.
type Class string

// Classes.
const (
	Client   Class = "client"    // the network between a child and the service: cut, delayed, requests held
	Stopped  Class = "stopped"   // a child, from FaultBegin to FaultEnd: it cannot learn anything
	Killed   Class = "killed"    // a child ends for good with the evidence
	Server   Class = "server"    // what no declaration excludes: a member cut off from the others
	Down     Class = "down"      // servers are away, as many as FaultBegin's Value: see ServerCrashes
	Restart  Class = "restart"   // servers are killed and started again, with their data: SurvivesRestart
	DataLost Class = "data_lost" // servers are started again without their data: nothing covers it
	Failover Class = "failover"  // another server takes the place of one that failed: SurvivesFailover
	Pause    Class = "pause"     // a server is paused for longer than a TTL, and resumes: SurvivesPause
	Clock    Class = "clock"     // a server's wall clock is stepped: SurvivesClockJump
)

// The files of a run's directory.
const (
	journalFile = "history.jsonl"
	ReportFile  = "report.json"
	PageFile    = "report.html"
)
