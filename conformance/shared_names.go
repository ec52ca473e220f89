package conformance

import (
	"errors"
	"fmt"
	"slices"

	"github.com/golockers/locker"
)

// sharedNames are names that a service may use for what it keeps of the sharers of name.
func sharedNames(name string) (names []string) {
	parts := []string{"shared", "sharers", "sharing", "share", "readers", "reader", "read", "r", "s", "set",
		"gate", "gates", "note", "notes",
		"w", "writer", "writers", "wait", "waits", "fence", "token", "gen", "generation", "count", "lock",
		"write", "x", "0", "1"}
	for _, part := range parts {
		for _, sep := range []string{":", "/", "-", ".", "\x00", "#", "_", ""} {
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
	names := slices.Concat(sharedNames(name), []string{name + ":" + s.run})
	for _, n := range s.h.Names {
		names = append(names, name+n)
	}
	var holds []locker.Hold
	for i, n := range names {
		for _, req := range []locker.Request{s.request(n, s.long), s.shares(n, s.long)} {
			grant, err := s.askWith(other, req)
			if err != nil {
				s.broken(fmt.Sprintf("sharers hold %q, a writer waits for it, and Acquire of %s, which "+
					"nobody has, returned %v (shared: %t)", name, show(n), err, req.Shared), cause)
			}
			if req.Shared || i%2 == 0 { // one after the other, so that all of them are held
				s.release(grant.Hold)
			} else {
				holds = append(holds, grant.Hold)
				break
			}
		}
	}
	again := s.shares(name, s.long)
	again.Owner = owner()
	s.renew(first.Hold)
	s.refuse(other, again, fmt.Sprintf("while a writer waited for a name, and %d names like it were held",
		len(holds)), cause)
	leave()
	<-in
	s.release(first.Hold)
	w := s.acquireNow(b, s.request(name, s.long),
		"when the sharer of a name had released it, and names like it were held")
	for _, hold := range holds {
		s.renew(hold)
		s.release(hold)
	}
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
