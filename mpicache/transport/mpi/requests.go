package mpi

import "unsafe"

// Requests is an array of requests that are tested together. The zero value is an empty array.
type Requests struct {
	n, room         int
	array, statuses []byte
	places          []int32
}

// Len is the number of requests.
func (q *Requests) Len() int { return q.n }

// Append adds a request at place Len().
func (q *Requests) Append(r Request) {
	if q.n == q.room {
		q.room = max(64, 2*q.n)
		array := words(q.room * loaded.handleBytes)
		copy(array, q.array)
		q.array, q.statuses, q.places = array, words(q.room*loaded.statusBytes),
			make([]int32, q.room)
	}
	q.n++
	q.Set(q.n-1, r)
}

// words returns n bytes of memory, aligned for C's longest types.
func words(n int) []byte {
	memory := make([]uint64, (n+7)/8)
	return unsafe.Slice((*byte)(unsafe.Pointer(&memory[0])), n)
}

// Set puts another request at a place.
func (q *Requests) Set(place int, r Request) { loaded.putHandle(q.array, place, uint64(r)) }

// Remove removes an entry; the last request moves to its place.
func (q *Requests) Remove(place int) {
	q.n--
	size := loaded.handleBytes
	copy(q.array[place*size:(place+1)*size], q.array[q.n*size:])
}

// Testsome appends to done those requests that have finished; their places hold no request then,
// until Set or Remove.
func (q *Requests) Testsome(done []Done) ([]Done, error) {
	if q.n == 0 {
		return done, nil
	}
	l := &loaded
	results.a = 0
	code := call(l.testsome, uintptr(q.n), data(q.array),
		out(&results.a), out(&q.places[0]), data(q.statuses))
	found := int(results.a)
	if found == undefined {
		found = 0
	}
	if code != success && code != l.errInStatus {
		return done, fail("MPI_Testsome", code)
	}
	for i := range found {
		status, own := l.status(q.statuses, i), int32(success)
		if code == l.errInStatus {
			own = l.code(status)
		}
		done = append(done, finished(int(q.places[i]), own, status))
	}
	return done, nil
}

// Test appends to done the leading requests of rs that have finished, up to the first that has not.
func Test(rs []Request, done []Done) []Done {
	r := &results
	for i := range rs {
		inOut.request, r.a = uint64(rs[i]), 0
		code := call(loaded.test, out(&inOut.request), out(&r.a), out(&r.status))
		if code == success && r.a == 0 {
			break
		}
		done = append(done, finished(i, code, r.status[:]))
	}
	return done
}

// finished interprets the status and the code of an operation.
func finished(place int, code int32, status []byte) Done {
	if code != success {
		return Done{Place: place, Err: fail("MPI_Test", code)}
	}
	n, _ := received(status) // of a byte type the count is always defined
	return Done{Place: place, Bytes: n}
}
