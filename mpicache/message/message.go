// Package message has the messages between ranks: a kind, the data set's number, the job's name
// after its length, its u32 generation if it has a name, then the payload. All ranks run the same
// build.
package message

import (
	"encoding/binary"
	"encoding/json"
	"fmt"

	"rankpool/mpicache/fields"
	"rankpool/mpicache/transport"
)

// The kinds of messages.
const (
	Opened  = 1  // Spec as JSON, of a trainer of the sender
	Reports = 2  // records of trainers
	Ask     = 3  // u32 ticket, u32 bulk, u32 epoch, u32 batch, u32 ids…
	Answer  = 4  // u32 ticket, u8 status…
	Count   = 5  // an epoch's counts, as JSON
	Bye     = 6  // the sender has sent all counts
	Stats   = 7  // stats.Reading as JSON, to rank 0
	Source  = 12 // protocol.Sourced as JSON: the sender has made a plan
	Refused = 13 // a sentence: the sender makes no plan
	Idle    = 15 // one byte: whether the job has processes on the sender
	Saved   = 16 // protocol.Saved as JSON: rank 0 has saved the state of a checkpoint
	List    = 17 // a piece of a trainer's part of an epoch, see training/list.go
)

// About names the training that a message is about. Trainings that have the same name, one after
// the other, differ in their generation: how many of that name have ended before.
type About struct {
	Set        int    // the data set's number
	Job        string // "": the training without a name
	Generation uint32
}

// Begin returns the beginning of a message about the training.
func (a About) Begin(kind byte) []byte {
	msg := append([]byte{kind, byte(a.Set), byte(len(a.Job))}, a.Job...)
	if a.Job != "" {
		msg = binary.LittleEndian.AppendUint32(msg, a.Generation)
	}
	return msg
}

// Parse returns the parts of a message, whole unless its beginning is cut off.
func Parse(msg []byte) (kind byte, about About, body []byte, whole bool) {
	c := fields.Reader{Rest: msg}
	head := c.Bytes(3)
	about = About{Set: int(head[1]), Job: string(c.Bytes(int(head[2])))}
	if about.Job != "" {
		about.Generation = c.U32()
	}
	return head[0], about, c.Rest, !c.Short
}

// JSON returns v, whose type is ours, as JSON.
func JSON(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("mpicache: a %T is not JSON: %v", v, err))
	}
	return text
}

// ToOthers sends a message to all other ranks.
func ToOthers(t transport.Transport, msg []byte) {
	for r := range t.Size() {
		if r != t.Rank() {
			t.Post(r, msg)
		}
	}
}
