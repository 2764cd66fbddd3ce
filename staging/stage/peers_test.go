package stage

import "rankpool/mpicache/transport"

// memory is a rank of a group inside the test.
type memory struct {
	*transport.Local
	posts func(kind byte) // is called before a message is sent
}

// newMemory returns the n ranks of a group.
func newMemory(n int) []*memory {
	group := make([]*memory, n)
	for i, rank := range transport.NewLocal(n) {
		group[i] = &memory{rank.(*transport.Local), func(byte) {}}
	}
	return group
}

func (m *memory) Post(to int, msg []byte) {
	m.posts(msg[0])
	m.Local.Post(to, msg)
}
