"""A real Slurm on this machine for the tests, and its jobs: submits one, watches it, disturbs it,
and returns its result."""

import json
import os
import re
import shutil
import socket
import subprocess
import time
from pathlib import Path

import run

HERE = Path(__file__).parent
FIRST, PAST = 50, 100  # numbers of testbeds for tests; those below are a developer's


class Testbed:
    """Four nodes under Slurm, from up() to down(). Nodes are virtual: they share /tmp, and nothing
    else if namespaces are available."""

    def __init__(self):
        self.number, self._claim = claim()
        self.env = {**os.environ, "RANKPOOL_TESTBED": str(self.number)}
        self.folder = self._end = None

    def up(self):
        done = subprocess.run(
            [HERE / "testbed/up.sh"], env=self.env, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        name, path = done.stdout.strip().split("=")
        self.env[name] = path
        self.folder = Path(path).parent
        self.shared = (self.folder / "mode").read_text().strip() == "shared"
        # The testbed comes down when this process ends, however it ends.
        down = ["sh", "-c", 'cat >/dev/null; exec "$0"', HERE / "testbed/down.sh"]
        self._end = subprocess.Popen(
            down, env=self.env, stdin=subprocess.PIPE, start_new_session=True
        )

    def user(self, mpi):
        """The environment of a user who has loaded the module of an MPI, or of none, and has
        rankpool in $PATH."""
        path = f"{run.RANKPOOL.parent}:{os.environ['PATH']}"
        env = {
            **self.env,
            "PATH": f"{self.module(mpi)}:{path}" if mpi else path,
            "PYTHONFAULTHANDLER": "1",
        }
        if not mpi:
            env["RANKPOOL_MPI_LIBRARY"] = "/no/libmpi.so"
        if self.shared:
            env["MASTER_ADDR"] = "127.0.0.1"  # only Slurm knows the nodes' names
        return {**env, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}

    def module(self, mpi):
        """A folder for $PATH whose mpirun is that of an MPI."""
        folder = self.folder / "modules" / mpi
        folder.mkdir(parents=True, exist_ok=True)
        mpirun = folder / "mpirun"
        if not mpirun.exists():
            mpirun.symlink_to(shutil.which(f"mpirun.{mpi}"))
        return folder

    def down(self):
        if self._end:
            self._end.stdin.close()
            assert self._end.wait() == 0, "the testbed did not come down"
        self._claim.close()

    def call(self, *argv, env=None, cwd=None):
        """Runs a Slurm command and returns what it printed."""
        argv = [str(word) for word in argv]
        done = subprocess.run(
            argv, env=env or self.env, cwd=cwd, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{argv}: {done.stderr}"
        return done.stdout.strip()

    def shared_memory(self):
        """The /dev/shm of each node, by node name; if the nodes share the machine's, that one."""
        pids = (
            {}
            if self.shared
            else {
                path.name.split(".")[1]: path.read_text().strip()
                for path in self.folder.glob("slurmd.*.pid")
            }
        )
        return {node: Path(f"/proc/{pid}/root/dev/shm") for node, pid in pids.items()} or {
            "all": run.SHM
        }


def claim():
    """Returns the number of a testbed that no other test has, and a socket that reserves it, which
    the kernel frees when the process ends."""
    asked = os.environ.get("RANKPOOL_TESTBED")
    for number in [int(asked)] if asked else range(FIRST, PAST):
        hold = socket.socket(socket.AF_UNIX)
        try:
            hold.bind(f"\0rankpool-testbed-{number}")
            return number, hold
        except OSError:
            hold.close()
    raise AssertionError(f"another test has testbed {asked}" if asked else "all testbeds are taken")


class Job(run.Watched):
    """A batch job; its script runs in `folder`, with the rankpool of an MPI first in $PATH."""

    def __init__(self, bed, folder, script, mpi="openmpi", options=(), env=()):
        super().__init__(folder)
        self.bed = bed
        self.env = {**bed.user(mpi), **dict(env)}
        (self.folder / "job.sh").write_text(
            script if script.startswith("#!") else "#!/bin/bash\n" + script
        )
        self.sessions_before = set(self.sessions())
        argv = ["sbatch", "--parsable", "--output=stdout", "--error=stderr", *options, "job.sh"]
        done = subprocess.run(
            [str(word) for word in argv],
            cwd=folder,
            env=self.env,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        self.id = done.stdout.strip()

    # --- observing ---

    def state(self):
        """What Slurm reports about the job, as a dictionary."""
        words = self.bed.call("scontrol", "show", "job", "--oneliner", self.id).split()
        return dict(word.split("=", 1) for word in words if "=" in word)

    def mine(self, environment):
        return (
            f"SLURM_JOB_ID={self.id}" in environment
            and f"SLURM_CONF={self.env['SLURM_CONF']}" in environment
        )

    def ranks(self, node=None):
        """The processes that are ranks of the cache, of all nodes or of one (node1, …)."""
        return [
            pid
            for pid, (env, argv) in self.processes().items()
            if argv[0].endswith("rankpool")
            and "serve" in argv[1:2]
            and (not node or f"SLURMD_NODENAME={node}" in env)
        ]

    def sessions(self):
        """The session folders that this user's runs have on all nodes."""
        shms = set(self.bed.shared_memory().values())
        return [path for shm in shms for path in shm.glob(f"*rankpool-{os.getuid()}-*")]

    def ready(self, ranks):
        """Whether all ranks accept at their doors."""
        folders = {
            path
            for session in self.sessions()
            if session.name.endswith(f"slurm{self.id}")
            for path in session.glob("r*")
        }
        return sum((path / "ready").exists() for path in folders) == ranks

    # --- acting ---

    def wait_for(self, condition, what, ended_is_failure=True):
        """Returns when condition() holds; fails when the job ends before that."""
        until = time.monotonic() + run.PATIENCE_SECONDS
        while not condition():
            state = self.state()["JobState"]
            over = ended_is_failure and state not in (
                "PENDING",
                "RUNNING",
                "CONFIGURING",
                "SIGNALING",
                "COMPLETING",
            )
            assert not over, f"the job ended ({state}) before {what}\n{self.text('stderr')}"
            assert time.monotonic() < until, f"waited in vain for {what}: {state}\n{self.stacks()}"
            time.sleep(0.02)

    def cancel(self):
        self.bed.call("scancel", self.id)

    def finish(self, left_sessions=False):
        """Waits for the end, asserts that nothing of the job is left on the nodes, and returns a
        run.Result.

        Sessions of ranks that were killed may be left; the next run removes them.
        """
        ended = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "PREEMPTED")
        self.wait_for(lambda: self.state()["JobState"] in ended, "its end", ended_is_failure=False)
        until = time.monotonic() + 20
        while (
            left := [*self.processes().values(), *([] if left_sessions else self.own_sessions())]
        ) and time.monotonic() < until:
            time.sleep(0.05)
        assert not left, f"the job left {left}\n{self.text('stderr')}"
        code, number = (int(part) for part in self.state()["ExitCode"].split(":"))
        events = [json.loads(line) for line in self.text("run.jsonl").splitlines()]
        return run.Result(
            code or number and 128 + number,
            self.text("stdout"),
            self.text("stderr"),
            events,
            self.batches(),
        )

    def own_sessions(self):
        """Sessions of this job, and new ones of launchers that have ended."""
        new = set(self.sessions()) - self.sessions_before
        return [
            path
            for path in new
            if path.name.endswith(f"slurm{self.id}") or launcher_gone(path.name)
        ]


def pending(pid, number):
    """Whether a signal is pending for a process, which is stopped."""
    status = Path(f"/proc/{pid}/status").read_text()
    return any(
        int(mask, 16) >> (number - 1) & 1 for mask in re.findall(r"^S..Pnd:\s*(\w+)", status, re.M)
    )


def launcher_gone(name):
    found = re.search(r"-pid(\d+)-", name)
    return bool(found) and not Path("/proc", found[1]).exists()
