package door

import (
	"errors"
	"fmt"
)

// Codes of error replies.
const (
	CodeProtocol = 1
	CodeRequest  = 2
	CodeNotReady = 3
)

// An Error is an error reply to a request that is well-formed.
type Error struct {
	Code     uint16
	Sentence string
}

func (r Error) Error() string { return r.Sentence }

// Refuse returns an Error with CodeRequest.
func Refuse(format string, args ...any) error {
	return Error{CodeRequest, fmt.Sprintf(format, args...)}
}

// NotReady returns an Error with CodeNotReady: the client reads storage, and may ask again.
func NotReady(format string, args ...any) error {
	return Error{CodeNotReady, fmt.Sprintf(format, args...)}
}

// ErrFrame is wrapped by every error about bytes that are not a frame of this protocol.
var ErrFrame = errors.New("not a frame of rankpool's protocol")

// Broken returns the error for a frame that the protocol does not allow.
func Broken(format string, args ...any) error {
	return fmt.Errorf("door: %s: %w", fmt.Sprintf(format, args...), ErrFrame)
}
