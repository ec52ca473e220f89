package redisnode

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// ErrRestarted is the cause where a server does not know the ballot that it was given: it was restarted, or has forgotten its scripts.
var ErrRestarted = errors.New("the server was restarted or has forgotten its scripts")

// Identity is which run of which server answers at an address.
type Identity struct {
	RunID   string
	Uptime  time.Duration // as the server's wall clock has it, in whole seconds, and up to a second too long
	Version string        // of Redis, or the one that the server is compatible with
	// Durable: every write is on disk before it is answered (appendonly yes, appendfsync always, and no-appendfsync-on-rewrite no, since with yes
	// it is not while the server writes a snapshot), so that a restart forgets nothing. False also where that cannot be read.
	Durable bool
}

// Identify asks the server who it is.
func (m *Member) Identify(ctx context.Context) (Identity, error) {
	const op = "identify"
	id, err := inBackground(m.node, ctx, func() (Identity, error) {
		pipe := m.node.client.Pipeline()
		info := pipe.Info(m.node.ctx, "server")
		aof := pipe.ConfigGet(m.node.ctx, "*append*")
		_, execErr := pipe.Exec(m.node.ctx)
		if err := info.Err(); err != nil {
			return Identity{}, err
		}
		id := parseIdentity(info.Val())
		if id.RunID == "" && execErr != nil {
			return id, execErr // no connection: the commands themselves do not say so
		}
		if id.RunID == "" {
			return id, errors.New("INFO server names no run_id")
		}
		kept := aof.Val()
		id.Durable = aof.Err() == nil && kept["appendonly"] == "yes" && kept["appendfsync"] == "always" && kept["no-appendfsync-on-rewrite"] == "no"
		return id, nil
	})
	if err != nil {
		return id, m.node.complete(err, op, "")
	}
	return id, nil
}

func parseIdentity(text string) Identity {
	var id Identity
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimRight(line, "\r\n"), ":")
		switch name {
		case "run_id":
			id.RunID = value
		case "redis_version":
			id.Version = value
		case "uptime_in_seconds":
			seconds, _ := strconv.ParseInt(value, 10, 64)
			id.Uptime = time.Duration(seconds) * time.Second
		}
	}
	return id
}

// Ballot is what a server was given to vote on: the scripts of Vote and Repair, with the server's run_id in their texts.
type Ballot struct {
	script, repair *script
	RunID          string
}

// AnyBallot is for a server that does not say who it is: it votes whatever has happened to it.
func AnyBallot() *Ballot {
	return newBallot(Identity{}, voteText, counterText+repairText)
}

func newBallot(id Identity, vote, repair string) *Ballot {
	b := &Ballot{script: newScript(vote), repair: newScript(repair), RunID: id.RunID}
	b.script.bundle, b.script.plain = bundleAcquires, 3
	return b
}

// Prepare gives the server of id its ballot. From then on a vote is either that run's, or fails with ErrRestarted. The error is
// ErrRestarted if it is another run that answers now.
func (m *Member) Prepare(ctx context.Context, id Identity) (*Ballot, error) {
	const op = "prepare"
	b := newBallot(id, ballotText(id, voteText), ballotText(id, counterText+repairText))
	b.script.strict, b.repair.strict = true, true
	ran, err := inBackground(m.node, ctx, func() (string, error) {
		// A pipeline is one connection, and a connection is one run of a server: if the INFO after it is of this run, the LOAD before it was.
		pipe := m.node.client.Pipeline()
		load := pipe.ScriptLoad(m.node.ctx, b.script.text.(string))
		loadRepair := pipe.ScriptLoad(m.node.ctx, b.repair.text.(string))
		info := pipe.Info(m.node.ctx, "server")
		if _, err := pipe.Exec(m.node.ctx); err != nil {
			return "", err
		}
		return parseIdentity(info.Val()).RunID, cmp.Or(load.Err(), loadRepair.Err())
	})
	if err != nil {
		return nil, m.node.complete(err, op, "")
	}
	if ran != id.RunID {
		return nil, &Error{Op: op, Addr: m.node.addr, Err: ErrRestarted}
	}
	return b, nil
}

// ballotText is the text of a script for one run of a server. Since 7.0 a server keeps no script over a restart. Before that it may, with its
// data: there the script itself looks who runs it, which costs the server some microseconds more.
func ballotText(id Identity, body string) string {
	text := "-- for " + id.RunID + "\n" + body
	major, _, _ := strings.Cut(id.Version, ".")
	if n, err := strconv.Atoi(major); err == nil && n >= 7 {
		return text
	}
	return fmt.Sprintf("if not string.find(redis.call('INFO', 'server'), 'run_id:%s', 1, true) then\n\treturn redis.error_reply('NOSCRIPT for another run of this server')\nend\n%s", id.RunID, body)
}
