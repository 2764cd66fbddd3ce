// Package record writes down what happened to a rank's coordinators and stagers, event by event
// with the commands that came of each, and replays it: both are pure state machines, so the same
// events must give the same commands. docs/record.md has the format.
package record
