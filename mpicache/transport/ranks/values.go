package ranks

import (
	"bytes"
	"context"
	"encoding/gob"
	"fmt"
)

// Encode encodes v for Decode; the result is never empty. It panics if gob cannot encode v's type.
func Encode(v any) []byte {
	var out bytes.Buffer
	if err := gob.NewEncoder(&out).Encode(v); err != nil {
		panic(fmt.Sprintf("ranks: a message cannot be encoded: %v", err))
	}
	return out.Bytes()
}

// Decode reads what Encode wrote into v.
func Decode(body []byte, v any) error {
	if err := gob.NewDecoder(bytes.NewReader(body)).Decode(v); err != nil {
		return fmt.Errorf("ranks: a message from another rank is damaged: %w", err)
	}
	return nil
}

// Spread sends rank 0's v to all ranks, down a binary tree; elsewhere it fills in v. Every rank
// must call it. It returns ctx's cause when ctx ends.
func Spread[T any](ctx context.Context, m *Mux, channel byte, v *T) error {
	var body []byte
	if m.Rank() == 0 {
		body = Encode(v)
	} else {
		got, err := m.Receive(ctx, channel)
		if err != nil {
			return err
		}
		body = got.Body
	}
	for child := 2*m.Rank() + 1; child <= 2*m.Rank()+2 && child < m.Size(); child++ {
		m.Send(child, channel, body)
	}
	if m.Rank() == 0 {
		return nil
	}
	return Decode(body, v)
}

// Gather sends every rank's v to rank 0, which returns them by rank; the others return nil. It
// returns ctx's cause when ctx ends.
func Gather[T any](ctx context.Context, m *Mux, channel byte, v T) ([]T, error) {
	m.Send(0, channel, Encode(&v))
	if m.Rank() != 0 {
		return nil, nil
	}
	return receiveAll[T](ctx, m, channel, func(int) {})
}

// Exchange sends every rank's v to all ranks, and returns them by rank. Every rank must call it,
// and each exchange needs a channel of its own. came is called with the number of values that have
// arrived. Errors: VersionError of the first such rank, and ctx's cause when ctx ends.
func Exchange[T any](ctx context.Context, m *Mux, channel byte, v T, came func(n int)) (
	[]T, error,
) {
	body := Encode(&v)
	for to := range m.Size() {
		m.Send(to, channel, body)
	}
	return receiveAll[T](ctx, m, channel, came)
}

// A VersionError means that a rank's value has another type here.
type VersionError struct {
	Rank int
	Err  error
}

func (e *VersionError) Error() string {
	return fmt.Sprintf("rank %d runs another version of rankpool: start the same program on all "+
		"nodes (%v)", e.Rank, e.Err)
}

func (e *VersionError) Unwrap() error { return e.Err }

// Share sends every rank's v to all ranks through rank 0, and returns them by rank. Every rank must
// call it, and each call needs a channel of its own. It returns ctx's cause when ctx ends.
func Share[T any](ctx context.Context, m *Mux, channel byte, v T) ([]T, error) {
	all, err := Gather(ctx, m, channel, v)
	if err != nil {
		return nil, err
	}
	return all, Spread(ctx, m, channel, &all)
}

// Barrier waits until every rank has called it, as Share does.
func Barrier(ctx context.Context, m *Mux, channel byte) error {
	_, err := Share(ctx, m, channel, true)
	return err
}

// receiveAll receives a value from each rank; the first one from a rank counts.
func receiveAll[T any](ctx context.Context, m *Mux, channel byte, came func(n int)) ([]T, error) {
	bodies, all := make([][]byte, m.Size()), make([]T, m.Size())
	for n := 0; n < len(all); {
		got, err := m.Receive(ctx, channel)
		if err != nil {
			return nil, err
		}
		if bodies[got.From] == nil {
			bodies[got.From] = got.Body
			n++
			came(n)
		}
	}
	for rank, body := range bodies {
		if err := Decode(body, &all[rank]); err != nil {
			return nil, &VersionError{rank, err}
		}
	}
	return all, nil
}
