//go:build mpi

// sbatch --signal sends SIGUSR1 or SIGUSR2 to every process of every step, at any moment: a rank must not die of it. They are
// blocked before anything else runs, threads inherit that, and Go lets them in on a thread of its own when the rank asks for them
// (os/signal). So none meets the handlers that MPI_Init installs, before Go's are back.

#include <signal.h>
#include <string.h>

static void rp_block(int argc, char **argv, char **envp) {
	(void)envp;
	if (argc < 2 || strcmp(argv[1], "serve") != 0) return; // other commands start children, which would inherit this
	sigset_t user;
	sigemptyset(&user);
	sigaddset(&user, SIGUSR1);
	sigaddset(&user, SIGUSR2);
	sigprocmask(SIG_BLOCK, &user, NULL);
}

// These functions run before those of shared libraries.
__attribute__((section(".preinit_array"), used)) static void (*const rp_first)(int, char **, char **) = rp_block;
