package conformance

import (
	"errors"
	"fmt"
	"slices"

	"github.com/golockers/locker"
)

// sharedNames are names that a service may use for what it keeps of the sharers of name.
func sharedNames(name string) (names []string) {
	parts := []string{"shared", "sharers", "sharing", "readers", "read", "r", "s", "gate", "notes",
		"w", "writers", "wait", "fence", "tokens", "generation", "0"}
	for _, part := range parts {
		for _, sep := range []string{":", "/", "-", "\x00", ""} {
			names = append(names, name+sep+part, part+sep+name, "{"+name+"}"+sep+part)
		}
	}
	return append(names, name+"\x00", name+":", name+"/", name+"/shared/x", name+":s:x",
		name+"/write-0000000001", name+"/read-0000000001",
		name+"/s-0000000001", name+"/lock-s-0000000001", name+":"+owner(), name+"/"+owner(),
		name+"\x00"+owner())
}

func checkSharedNames(s *trial) {
	const cause = "what is kept for sharers, or for a writer that waits, has a key that is another name's " +
		"key, too"
	name := s.name("crafted")
	b, other, writer := s.backend(), s.backend(), s.client()
	first := s.share(b, name, s.long)
	leave, in := s.writing(writer, name, s.long)
	s.gated(other, name)
	names := sharedNames(name)
	for _, n := range s.h.Names {
		names = append(names, name+n)
	}
	slices.Sort(names)
	names = slices.Compact(names) // two that ask for one at once are in each other's way
	// Every second name stays held, so that it can be told from the others, too.
	const callers = 8
	holds := make([]locker.Hold, len(names))
	var parts []func()
	for part := range callers {
		parts = append(parts, func() {
			for i := part; i < len(names); i += callers {
				for _, req := range []locker.Request{s.shares(names[i], s.long), s.request(names[i], s.long)} {
					grant, err := s.askWith(other, req)
					switch {
					case err != nil:
						s.broken(fmt.Sprintf("sharers hold %q, a writer waits for it, and Acquire of %s, "+
							"which nobody has, returned %v (shared: %t)", name, show(names[i]), err, req.Shared), cause)
					case req.Shared || i/callers%2 == 0:
						s.release(grant.Hold)
					default:
						holds[i] = grant.Hold
					}
				}
			}
		})
	}
	s.together(parts...)
	holds = slices.DeleteFunc(holds, func(h locker.Hold) bool { return h == nil })
	s.renew(first.Hold)
	s.refuse(other, s.shares(name, s.long),
		fmt.Sprintf("while a writer waited for a name, and %d names like it were held", len(holds)), cause)
	leave()
	<-in
	s.eventually(s.soon, func() bool { return s.knock(other, name) == nil }) // its place is taken back behind it
	s.release(first.Hold)
	w := s.acquireNow(b, s.request(name, s.long),
		"when the sharer of a name had released it, and names like it were held")
	all := s.group()
	for _, hold := range holds {
		all.Go(func() {
			s.renew(hold)
			s.release(hold)
		})
	}
	all.Wait()
	s.refuse(other, s.shares(name, s.long), "when all names like that of a writer had been released", cause)
	s.renew(w)
	s.release(w)
	s.craftedOwner(b, other)
	s.nothingLeft(name)
}

// craftedOwner asks with an owner that holds the name in the other way.
func (s *trial) craftedOwner(b, other locker.Backend) {
	for _, shared := range []bool{true, false} {
		req := s.request(s.name(fmt.Sprintf("crafted-owner-%t", shared)), s.long)
		req.Shared = shared
		grant, err := s.askWith(b, req)
		if err != nil {
			s.broken(fmt.Sprintf("Acquire of a free name failed: %v", err), ofError(err))
		}
		crafted := req
		crafted.Shared = !shared
		for _, c := range []locker.Backend{b, other} {
			if second, err := s.askWith(c, crafted); err == nil || second.Hold != nil && errors.Is(err,
				locker.ErrHeld) {
				s.broken(fmt.Sprintf("an owner holds a name (shared: %t), and its request to hold it in "+
					"the other way returned %v", shared, err),
					"who finds its owner in place has been granted what it asks for only if that is what "+
						"is there")
			}
		}
		s.renew(grant.Hold)
		third := s.request(req.Name, s.long)
		s.refuse(other, third, fmt.Sprintf("while an owner held a name that had asked for it in both ways "+
			"(shared: %t)", shared), besideSharers)
		s.release(grant.Hold)
		s.release(s.acquireNow(other, third, "when the only holder had released a name"))
	}
}
