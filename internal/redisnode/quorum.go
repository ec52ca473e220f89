package redisnode

import (
	_ "embed"
	"errors"
	"strconv"
	"strings"
	"time"
)

// The questions that a quorum asks one node. None of them has a goroutine that waits for its answer: a hung node must not pile
// them up. The answer comes to a callback, from a goroutine of the Node; it must not block.

//go:embed quorum_counter.lua
var counterText string

//go:embed quorum_vote.lua
var voteText string

//go:embed quorum_raise.lua
var raiseText string

//go:embed quorum_renew.lua
var quorumRenewText string

//go:embed quorum_repair.lua
var repairText string

// Member is a Node as one of a quorum: one server, which all names are on.
type Member struct {
	node *Node
	lane *lane

	raise, renew *script
}

// NewMember returns n as a member of a quorum. Its client is a plain one, not a Cluster's.
func NewMember(n *Node) (*Member, error) {
	one, ok := n.routes.(oneRoute)
	if !ok {
		return nil, errors.New("redis: a Cluster cannot be one node of a quorum: give the client of one server")
	}
	return &Member{
		node: n, lane: one.the.plain,
		raise: newScript(counterText + raiseText),
		renew: newScript(counterText + quorumRenewText),
	}, nil
}

// Node returns the node itself.
func (m *Member) Node() *Node { return m.node }

// QuorumFenceKey returns the key of the fencing counter that a quorum raises, apart from the one of a single server.
func QuorumFenceKey(name string) string { return LockKey(name) + quorumFenceSuffix }

const quorumFenceSuffix = ":quorum"

// Question is one that is under way.
type Question struct {
	lane *lane
	call *call
}

// Withdraw gives up a question. It reports false if its callback has been or is about to be called. Otherwise that will not be called
// any more, and sent says whether the request may have been, or may yet be, carried out.
func (q Question) Withdraw() (ok, sent bool) {
	if q.lane == nil {
		return false, false
	}
	return q.lane.withdraw(q.call)
}

// ask starts a request; answer is called once with its reply, or with an *Error.
func (m *Member) ask(op string, s *script, cmd command, answer func(reply any, err error)) Question {
	c := newCall(s, cmd)
	c.answered = func(c *call) {
		switch {
		case c.err != nil:
			answer(nil, m.node.complete(c.err, op, ""))
		case c.cmd.Err() != nil:
			answer(nil, failed(op, m.node.addr, c.cmd.Err()))
		default:
			answer(c.cmd.Val(), nil)
		}
	}
	if err := m.lane.start(c); err != nil {
		answer(nil, m.node.complete(err, op, ""))
		return Question{}
	}
	return Question{m.lane, c}
}

// Claim is what all questions of one attempt at a lock have in common.
type Claim struct {
	Name  string
	Value string // the owner value, compared whole (R9)
	TTL   time.Duration
	// Fenced: the node keeps a counter for tokens. Token is the one of a lock that is held.
	Fenced bool
	Token  uint64
	Keep   bool // the counter is kept for ever

	keys *claimKeys // made by Prepared; nil: they are made for each question
}

// claimKeys are a claim's keys and owner value in the form in which commands take them.
type claimKeys struct{ lock, void, counter, wait, value any }

// Prepared returns c with its keys made, for all questions to all nodes.
func (c Claim) Prepared() Claim {
	c.keys = c.made()
	return c
}

func (c *Claim) made() *claimKeys {
	if c.keys != nil {
		return c.keys
	}
	key := LockKey(c.Name)
	return &claimKeys{key, key + voidSuffix + c.Value, key + quorumFenceSuffix, key + waitSuffix, c.Value}
}

func (c *Claim) keep() any {
	if c.Keep {
		return "keep"
	}
	return "expire"
}

// HolderLength is how much of a holder's value a refusal names (quorum_vote.lua).
const HolderLength = 16

// Vote is a node's answer to a Claim.
type Vote struct {
	Granted bool
	Token   uint64        // granted and fenced: the lowest that could follow on this node
	Raised  bool          // granted before to this claim (R11), and the counter raised to Token for it
	Holder  string        // refused: the beginning of the holder's value, up to HolderLength bytes
	Left    time.Duration // refused: the rest of the holder's TTL; negative: it never expires
	Foreign bool          // refused: the key is there but is no lock
	Void    bool          // refused: this very claim was taken back before
}

// Vote asks m for its vote, on a ballot that m has been given by Prepare. waiting: a release is to be published.
// The error is ErrRestarted, certainly not carried out, if the server does not know the ballot.
func (m *Member) Vote(b *Ballot, c Claim, waiting bool, answer func(Vote, error)) Question {
	k := c.made()
	var tokens any = "none"
	if c.Fenced {
		tokens = "tokens"
	}
	var cmd command
	if waiting {
		cmd = b.script.command(4, k.lock, k.void, k.counter, k.wait, tokens, k.value, milliseconds(c.TTL))
	} else {
		cmd = b.script.command(3, k.lock, k.void, k.counter, tokens, k.value, milliseconds(c.TTL))
	}
	return m.ask("vote", b.script, cmd, func(reply any, err error) {
		if err != nil {
			answer(Vote{}, m.restarted("vote", err))
			return
		}
		answer(m.vote(reply))
	})
}

// restarted makes NOSCRIPT, for a text that names a run of the server, an ErrRestarted.
func (m *Member) restarted(op string, err error) error {
	if isNoScript(errors.Unwrap(err)) {
		return &Error{Op: op, Addr: m.node.addr, Err: ErrRestarted}
	}
	return err
}

// codeRaised is an answer of quorum_vote.lua beside those of acquire.lua.
const codeRaised = 4

func (m *Member) vote(reply any) (Vote, error) {
	if n, ok := reply.(int64); ok {
		return Vote{Granted: true, Token: uint64(n)}, nil
	}
	v, _ := reply.([]any)
	if len(v) < 2 {
		return Vote{}, m.node.strange("vote", reply)
	}
	code, number, ok := pair(v[:2])
	left := leftOf(number)
	switch {
	case ok && code == codeHeld && len(v) == 3:
		holder, _ := v[2].(string)
		return Vote{Left: left, Holder: holder}, nil
	case ok && code == codeAgain:
		return Vote{Granted: true, Token: uint64(number)}, nil
	case ok && code == codeRaised:
		return Vote{Granted: true, Token: uint64(number), Raised: true}, nil
	case ok && code == codeVoid:
		return Vote{Void: true}, nil
	case ok && code == codeForeign:
		return Vote{Foreign: true, Left: left}, nil
	}
	return Vote{}, m.node.strange("vote", reply)
}

// Overtaken is the State of a lock whose token another holder's has reached or passed on this node: whatever the key says, it is lost here.
const Overtaken State = 3

// Raise is the second phase of a token: Mine if the node's counter now stands at c.Token for this claim.
func (m *Member) Raise(c Claim, answer func(State, error)) Question {
	k := c.made()
	cmd := m.raise.command(2, k.lock, k.counter, k.value, strconv.FormatUint(c.Token, 10), c.keep())
	return m.ask("raise the token", m.raise, cmd, m.state("raise the token", answer))
}

// Renew is Mine if the node had the lock, and now has it for another TTL.
func (m *Member) Renew(c Claim, answer func(State, error)) Question {
	k := c.made()
	var cmd command
	if c.Fenced {
		cmd = m.renew.command(2, k.lock, k.counter, k.value, milliseconds(c.TTL), strconv.FormatUint(c.Token, 10), c.keep())
	} else {
		cmd = m.renew.command(1, k.lock, k.value, milliseconds(c.TTL))
	}
	return m.ask("renew", m.renew, cmd, m.state("renew", answer))
}

// Repair gives the node a lock that it does not have: Mine if it has it now, Gone if the claim is void. Like a vote it needs a ballot, and fails
// with ErrRestarted.
func (m *Member) Repair(b *Ballot, c Claim, answer func(State, error)) Question {
	k := c.made()
	var cmd command
	if c.Fenced {
		cmd = b.repair.command(3, k.lock, k.void, k.counter, k.value, milliseconds(c.TTL), strconv.FormatUint(c.Token, 10), c.keep())
	} else {
		cmd = b.repair.command(2, k.lock, k.void, k.value, milliseconds(c.TTL))
	}
	state := m.state("repair", answer)
	return m.ask("repair", b.repair, cmd, func(reply any, err error) {
		if err != nil {
			err = m.restarted("repair", err)
		}
		state(reply, err)
	})
}

// Release removes the lock: Mine if it was there. void > 0 leaves a note for so long, so that what is still under way with this value is refused.
func (m *Member) Release(c Claim, void time.Duration, answer func(State, error)) Question {
	k := c.made()
	s := m.node.scripts.release
	var cmd command
	if void > 0 {
		cmd = s.command(3, k.lock, k.wait, k.void, m.node.publish, k.value, milliseconds(void))
	} else {
		cmd = s.command(2, k.lock, k.wait, m.node.publish, k.value)
	}
	return m.ask("release", s, cmd, m.state("release", answer))
}

// state wraps a callback for the scripts that answer with a State.
func (m *Member) state(op string, answer func(State, error)) func(any, error) {
	return func(reply any, err error) {
		if err != nil {
			answer(Gone, err)
			return
		}
		n, ok := reply.(int64)
		if !ok || n < int64(Gone) || n > int64(Overtaken) {
			answer(Gone, m.node.strange(op, reply))
			return
		}
		answer(State(n), nil)
	}
}

// Look reads the state of a lock, with the token of the quorum's counter.
func (m *Member) Look(name string, answer func(Status, error)) Question {
	k := (&Claim{Name: name}).made()
	s := m.node.scripts.inspect
	return m.ask("inspect", s, s.command(3, k.lock, k.counter, k.wait), func(reply any, err error) {
		if err != nil {
			answer(Status{}, err)
			return
		}
		v, ok := reply.([]any)
		if !ok || len(v) != 4 {
			answer(Status{}, m.node.strange("inspect", reply))
			return
		}
		var st Status
		st.Value, st.Held = v[0].(string)
		if left, ok := v[1].(int64); ok && st.Held {
			st.Left = time.Duration(left) * time.Millisecond
		}
		if counter, ok := v[2].(string); ok {
			token, _, _ := strings.Cut(counter, " ")
			st.Token, _ = strconv.ParseUint(token, 10, 64)
		}
		answer(st, nil)
	})
}
