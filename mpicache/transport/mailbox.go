package transport

import "sync"

// A mailbox is an unbounded queue of calls for the one goroutine that drains it.
type mailbox struct {
	mu     sync.Mutex
	calls  []func()
	closed bool
	spare  []func() // the array of the last drain, used again
}

// put queues a call, unless the mailbox is closed; it reports whether the queue was empty before.
func (m *mailbox) put(call func()) (first bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return false
	}
	m.calls = append(m.calls, call)
	return len(m.calls) == 1
}

// drain runs the queued calls, in order, and returns how many there were. Calls queued meanwhile
// stay for the next drain.
func (m *mailbox) drain() int {
	m.mu.Lock()
	calls := m.calls
	m.calls = m.spare[:0]
	m.mu.Unlock()
	for i, call := range calls {
		call()
		calls[i] = nil
	}
	m.spare = calls
	return len(calls)
}

// empty reports whether no call is queued.
func (m *mailbox) empty() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.calls) == 0
}

// close makes later puts do nothing; queued calls stay.
func (m *mailbox) close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
}

// isClosed reports whether close has been called.
func (m *mailbox) isClosed() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.closed
}
