package mpicache

import "rankpool/mpicache/message"

// onMessage handles another rank's message.
func (n *Node) onMessage(from int, msg []byte) {
	if len(msg) == 1 && msg[0] == message.Bye && n.report != nil {
		n.cfg.Watch.Left(from)
		n.report.bye()
		return
	}
	kind, about, body, whole := message.Parse(msg)
	if !whole || about.Set >= len(n.rank.Sets) {
		n.cfg.Log.Error("malformed message", "from", from, "bytes", len(msg))
		return
	}
	switch set := n.rank.Sets[about.Set]; kind {
	case message.Ask:
		set.Store().OnAsk(from, about, body)
	case message.Answer:
		set.Store().OnAnswer(from, body)
	case message.Stats:
		n.observer.onStats(from, body)
	default:
		set.OnMessage(from, kind, about, body)
	}
}
