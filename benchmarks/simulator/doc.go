// Package simulator runs cache systems over losses recorded from training, and counts where draws
// are served from. The system rankpool is run by the real schedulers, one per rank; the published
// systems are run as pools; a time model gives the duration of an epoch.
package simulator
