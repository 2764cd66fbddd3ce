package scheduler

// onShrunk gives up residents whose memory is taken away, and then as many more as the smaller partition has no room for. What is
// needed at this moment is freed when that is over. None of it goes to the tier: memory is short now.
func (s *Stager) onShrunk(e Shrunk) {
	for _, id := range e.IDs {
		if s.own.cache.Resident(id) {
			s.own.cache.Remove(id)
			s.settle(id)
		}
	}
	s.own.cache.Resize(e.CapacityBytes, s.settle)
}
