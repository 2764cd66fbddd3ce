package record

import (
	"fmt"
	"maps"
	"slices"

	"rankpool/scheduler"
)

// The commands' kinds in a recording; they never change their meaning.
const (
	kindFetch byte = iota + 1
	kindAsk
	kindSend
	kindDeliver
	kindFree
	kindStore
	kindRecall
	kindErase
	kindEndTier
)

func codeFetch(c *coder, f *scheduler.Fetch) {
	num(c, &f.ID)
	num(c, &f.Need)
}

func codeAsk(c *coder, a *scheduler.Ask) {
	num(c, &a.Peer)
	num(c, &a.Ticket)
	num(c, &a.Epoch)
	num(c, &a.Batch)
	list(c, &a.IDs)
}

func codeSend(c *coder, s *scheduler.Send) {
	num(c, &s.Peer)
	num(c, &s.Ticket)
	list(c, &s.IDs)
	list(c, &s.Status)
}

func codeDeliver(c *coder, d *scheduler.Deliver) {
	num(c, &d.Ticket)
	num(c, &d.Lease)
	list(c, &d.IDs)
	list(c, &d.Source)
	places := slices.Sorted(maps.Keys(d.Errs))
	list(c, &places)
	if c.reading && len(places) > 0 {
		d.Errs = map[int]error{}
	}
	for _, place := range places {
		err := d.Errs[place]
		c.problem(&err)
		d.Errs[place] = err
	}
}

func codeFree(c *coder, f *scheduler.Free)   { num(c, &f.ID) }
func codeStore(c *coder, s *scheduler.Store) { num(c, &s.ID) }
func codeErase(c *coder, e *scheduler.Erase) { num(c, &e.ID) }
func codeEndTier(*coder, *scheduler.EndTier) {}

func codeRecall(c *coder, r *scheduler.Recall) {
	num(c, &r.ID)
	num(c, &r.Need)
}

var commandReaders = map[byte]func(*coder) any{
	kindFetch: get(codeFetch), kindAsk: get(codeAsk), kindSend: get(codeSend), kindDeliver: get(codeDeliver), kindFree: get(codeFree),
	kindStore: get(codeStore), kindRecall: get(codeRecall), kindErase: get(codeErase), kindEndTier: get(codeEndTier),
}

func writeCommand(c *coder, command scheduler.Command) {
	switch d := command.(type) {
	case scheduler.Fetch:
		put(c, kindFetch, codeFetch, d)
	case scheduler.Ask:
		put(c, kindAsk, codeAsk, d)
	case scheduler.Send:
		put(c, kindSend, codeSend, d)
	case scheduler.Deliver:
		put(c, kindDeliver, codeDeliver, d)
	case scheduler.Free:
		put(c, kindFree, codeFree, d)
	case scheduler.Store:
		put(c, kindStore, codeStore, d)
	case scheduler.Recall:
		put(c, kindRecall, codeRecall, d)
	case scheduler.Erase:
		put(c, kindErase, codeErase, d)
	case scheduler.EndTier:
		put(c, kindEndTier, codeEndTier, d)
	default:
		panic(fmt.Sprintf("record: a command of type %T cannot be written.", command))
	}
}

func writeCommands(c *coder, commands []scheduler.Command) {
	n := len(commands)
	num(c, &n)
	for _, command := range commands {
		writeCommand(c, command)
	}
}

// readCommands returns the commands of an event; c.err is set when they make no sense.
func readCommands(c *coder) []scheduler.Command {
	n := c.count(0, 1)
	commands := make([]scheduler.Command, 0, n)
	for range n {
		read := commandReaders[c.fixed(1)[0]]
		if read == nil {
			c.fail()
			return nil
		}
		command, ok := read(c).(scheduler.Command)
		if !ok {
			c.fail()
			return nil
		}
		commands = append(commands, command)
	}
	return commands
}
