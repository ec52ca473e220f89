package locker

import "sync"

// maxWorkers bounds how many requests without a caller of their own
// (renewals, take-backs, releases at Close) are under way at once.
const maxWorkers = 512

// workers runs jobs in goroutines that exist only while there is work.
type workers struct {
	mu      sync.Mutex
	queue   []func()
	running int
	busy    inFlight
}

// do runs job soon, in the order of the calls, and does not wait for it.
func (w *workers) do(job func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.running == maxWorkers {
		w.queue = append(w.queue, job)
		return
	}
	w.running++
	w.busy.add()
	go w.work(job)
}

func (w *workers) work(job func()) {
	defer w.busy.done()
	for job != nil {
		job()
		job = w.next()
	}
}

func (w *workers) next() func() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.queue) == 0 {
		w.queue = nil
		w.running--
		return nil
	}
	job := w.queue[0]
	w.queue[0] = nil
	w.queue = w.queue[1:]
	return job
}
