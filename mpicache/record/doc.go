// Package record records the events of a rank's coordinators and stagers, each with the commands
// that it caused, and replays them: both are pure state machines, so the same events must cause the
// same commands. docs/record.md has the format.
package record
