package scheduler

// onPreloaded makes residents of what was brought in before the first plan, in the order given, as far as the partition takes it; the
// rest is freed. When each is drawn next is not known yet: the first plan says it.
func (s *Stager) onPreloaded(e Preloaded) {
	for _, id := range e.IDs {
		if s.copies.get(id).state != absent {
			continue // it is here already
		}
		if Owner(id, s.cfg.Ranks) == s.cfg.Rank && s.own.cache.fits(id) {
			s.own.cache.Draw(Use{ID: id}, nobody)
		}
		s.setState(id, here, FromLocal)
	}
}
