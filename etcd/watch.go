package etcd

import (
	"context"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
)

// watcher makes watches: see [watches].
type watcher interface {
	deletion(key string) (told <-chan news, stop func())
}

// watches makes watches, many on one stream. The driver's own have a goroutine each, and hang for ever where
// etcd refuses a watch in the moment in which the last of a stream ends.
type watches struct {
	pool *pool

	mu  sync.Mutex
	now *watchStream // on which the next ones are made; nil: on a new one
}

// watch tells of the deletion of one key, from now on: a watch from the past, which needs no look once it is
// confirmed, is served every 100 ms only.
//
//	asked ──► confirmed ──► deleted
//	  └───────────┴───────────┴─────► failed
//
// It tells each of the last three at most once. Whoever is told confirmed or failed looks: the key can have
// gone before.
type watch struct {
	news      chan news
	confirmed bool
}

type news struct {
	is       watchState
	revision int64 // as of which it was confirmed or deleted
}

type watchState int

const (
	confirmed watchState = iota
	deleted
	failed // there will be no more
)

// watchStream is a stream and the watches on it. It logs in when it is opened, and keeps that token: once it
// has expired, etcd refuses each new watch. The next one goes to a new stream then (R26); those that are
// confirmed go on, and the stream ends with the last.
type watchStream struct {
	all  *watches // whose mu guards the rest
	end  context.CancelFunc
	kick chan struct{}
	last int64            // watch made
	on   map[int64]*watch // by number
	out  []*pb.WatchRequest
}

// deletion watches key until stop is called.
func (ws *watches) deletion(key string) (told <-chan news, stop func()) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	s := ws.now
	if s == nil {
		s = &watchStream{all: ws, kick: make(chan struct{}, 1), on: map[int64]*watch{}}
		ctx, end := context.WithCancel(ws.pool.life)
		s.end, ws.now = end, s
		if !ws.pool.start(func() { s.run(ctx) }) {
			defer s.fail()
		}
	}
	s.last++
	number, w := s.last, &watch{news: make(chan news, 3)}
	s.on[number] = w
	noPuts := []pb.WatchCreateRequest_FilterType{pb.WatchCreateRequest_NOPUT}
	s.send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{
		CreateRequest: &pb.WatchCreateRequest{Key: []byte(key), WatchId: number, Filters: noPuts},
	}})
	return w.news, func() {
		ws.mu.Lock()
		defer ws.mu.Unlock()
		if s.on[number] != nil {
			s.send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CancelRequest{
				CancelRequest: &pb.WatchCancelRequest{WatchId: number},
			}})
			s.remove(number)
		}
	}
}

// send has the stream's goroutine send a request: that may take time. mu is held.
func (s *watchStream) send(req *pb.WatchRequest) {
	s.out = append(s.out, req)
	select {
	case s.kick <- struct{}{}:
	default:
	}
}

// remove forgets a watch, and ends the stream with the last one. mu is held.
func (s *watchStream) remove(number int64) {
	if delete(s.on, number); len(s.on) == 0 {
		s.leave()
		s.end()
	}
}

// leave has the next watch made on another stream. mu is held.
func (s *watchStream) leave() {
	if s.all.now == s {
		s.all.now = nil
	}
}

// run opens the stream and receives until it ends.
func (s *watchStream) run(ctx context.Context) {
	defer s.end()
	p := s.all.pool
	m, _, _ := p.pick(1)
	late := time.AfterFunc(p.timeout, s.end) // logging in may take as long as it likes
	err := m.join(ctx)
	if err == nil {
		var stream pb.Watch_WatchClient
		stream, err = pb.NewWatchClient(m.conn).Watch(withLeader(m.on(ctx)), grpc.WaitForReady(false))
		if late.Stop(); err == nil {
			p.work.Go(func() { s.sendTo(ctx, stream) })
		}
		for err == nil {
			var resp *pb.WatchResponse
			if resp, err = stream.Recv(); err == nil {
				s.receive(resp)
			}
		}
	}
	if ctx.Err() == nil {
		p.avoid(m)
	}
	s.all.mu.Lock()
	defer s.all.mu.Unlock()
	s.fail()
}

// fail ends what is left of the stream. mu is held.
func (s *watchStream) fail() {
	s.leave()
	for number, w := range s.on {
		s.tell(number, w, news{is: failed})
	}
}

func (s *watchStream) sendTo(ctx context.Context, stream pb.Watch_WatchClient) {
	for {
		s.all.mu.Lock()
		out := s.out
		s.out = nil
		s.all.mu.Unlock()
		for _, req := range out {
			if stream.Send(req) != nil {
				return // Recv says why
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-s.kick:
		}
	}
}

// receive tells what etcd says.
func (s *watchStream) receive(resp *pb.WatchResponse) {
	s.all.mu.Lock()
	defer s.all.mu.Unlock()
	w := s.on[resp.WatchId]
	switch {
	case resp.Created && resp.Canceled:
		// Which one it refused, it does not say: most often it refuses all that follow.
		s.leave()
		for number, w := range s.on {
			if !w.confirmed {
				s.tell(number, w, news{is: failed})
			}
		}
	case w == nil: // it was stopped
	case resp.Canceled:
		s.tell(resp.WatchId, w, news{is: failed})
	case resp.Created:
		w.confirmed = true
		s.tell(resp.WatchId, w, news{confirmed, resp.Header.Revision})
	case len(resp.Events) > 0:
		s.tell(resp.WatchId, w, news{deleted, resp.Header.Revision})
	}
}

// tell is for those that wait: nobody is waited for. mu is held.
func (s *watchStream) tell(number int64, w *watch, n news) {
	select {
	case w.news <- n:
	default: // deleted more than once
	}
	if n.is == failed {
		s.remove(number)
	}
}
