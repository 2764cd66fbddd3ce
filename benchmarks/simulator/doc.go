// Package simulator runs cache systems over losses recorded from training, and counts where draws are served from. The system rankpool is
// run by the real schedulers, one a rank; the published systems are run as pools; a time model says how long an epoch takes.
package simulator
