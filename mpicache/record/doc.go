// Package record writes down what happened to a rank's stagers, event by event with the commands
// that came of each, and replays it: a stager is a pure state machine, so the same events must give
// the same commands. docs/record.md has the format.
package record
