"""Runs of rankpool for the tests: starts one, watches it, disturbs it, and returns its result."""

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from dataclasses import dataclass
from pathlib import Path

from dataset import GLOBAL_BATCH

HERE = Path(__file__).parent
ROOT = HERE.parent
EXAMPLES = ROOT / "python" / "examples"
# one program for every MPI
RANKPOOL = Path(os.environ.get("RANKPOOL", ROOT / "bin" / "rankpool")).resolve()
LAB = RANKPOOL.with_name("rankpool-lab")
# For tests that count reads: a rank that waits too long for another, as on a busy machine, reads
# samples itself.
PATIENT = ["--tune", "peer-timeout=1m"]
PATIENCE_SECONDS = 300  # for what takes a few seconds on an idle machine
STOP_SECONDS = 60  # until every thread of a process has seen that it should stop
SHM = Path("/dev/shm")
LIBRARY = {"openmpi": "libmpi.so.40", "mpich": "libmpich.so.12"}
# An MPICH rank that is killed in MPI_Init leaves such files in SHM.
MPI_LEAVES = ("ucx_shm_posix", "mpich_shar_tmp")

# For mpirun by hand. Open MPI 5's has no --quiet, warns about interfaces that TCP cannot match, and
# fails if the one that it speaks by goes away, such as those of test_network.
MPIRUN_ENV = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_orte_execute_quiet": "1",
    "OMPI_MCA_btl": "^tcp,uct,openib,ofi",
    "PMIX_MCA_ptl_base_if_include": "lo",
}  # fmt: skip


@dataclass
class Result:
    """The result of a run that has ended."""

    code: int
    stdout: str
    stderr: str
    events: list  # of the run log
    batches: list  # lines of the digest log, EPOCH BATCH HEX

    @property
    def digest(self):
        """The SHA-256 of the whole stream, as train.py prints it."""
        found = [line.split()[1] for line in self.stdout.splitlines() if line.startswith("digest ")]
        assert len(found) == 1, f"{len(found)} digests\n{self.stdout}\n{self.stderr}"
        return found[0]

    @property
    def epochs(self):
        return [event for event in self.events if event["event"] == "epoch"]

    @property
    def summary(self):
        (found,) = [event for event in self.events if event["event"] == "summary"]
        return found

    def check(self, epochs, draws):
        """Asserts that the run ended well and that every draw of every epoch is in the run log;
        returns itself."""
        assert self.code == 0, self.stderr
        assert [event["epoch"] for event in self.epochs] == list(range(epochs)), self.stderr
        for e in self.epochs:
            read = e["hits_local"] + e["hits_remote"] + e["storage_reads"] + e["fallback_reads"]
            assert e["draws"] == draws and read == draws, e
        assert self.summary["fallback_reads"] == sum(e["fallback_reads"] for e in self.epochs)
        return self


class Watched:
    """A training under way in a folder, with all its processes; a subclass knows which they are."""

    def __init__(self, folder):
        self.folder = Path(folder)

    def text(self, name):
        path = self.folder / name
        return path.read_text(errors="replace") if path.exists() else ""

    def batches(self):
        """The global batches trained so far, as lines of the digest log."""
        return self.text("digest").splitlines()

    def processes(self):
        """The live processes: the environment and arguments of each, by process number."""
        found = {}
        for entry in os.listdir("/proc"):
            if entry.isdigit():
                try:
                    environment = (
                        Path("/proc", entry, "environ").read_text(errors="replace").split("\0")
                    )
                    if self.mine(environment):
                        found[int(entry)] = (
                            environment, Path("/proc", entry, "cmdline").read_text().split("\0"),
                        )
                except OSError:
                    pass  # it ended, or is not ours
        return found

    def trainers(self):
        """The training processes and their workers."""
        return [
            pid
            for pid, (env, _) in self.processes().items()
            if any(v.startswith("RANKPOOL_SOCKET=") for v in env)
        ]

    def wait_for_batches(self, n):
        self.wait_for(lambda: len(self.batches()) >= n, f"{n} batches were trained")

    def go(self, batch):
        """Lets a training that is paused after a batch continue."""
        (self.folder / f"go-{batch}").touch()

    def kill(self, pids, number=signal.SIGKILL):
        """Signals processes; after SIGSTOP, it returns when they have stopped."""
        for pid in pids:
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                pass
        if number == signal.SIGSTOP:
            until = time.monotonic() + STOP_SECONDS
            while not all(stands_still(pid) for pid in pids):
                assert time.monotonic() < until, f"one of {pids} does not stop"
                time.sleep(0.001)

    def stacks(self):
        """Ends the ranks and trainers, which print what they were doing, and returns stderr."""
        hung = {pid for pid, (_, argv) in self.processes().items() if argv[1:2] != ["run"]}
        self.kill(hung, signal.SIGABRT)  # Go and Python show their stacks
        until = time.monotonic() + 5
        while hung & set(self.processes()) and time.monotonic() < until:
            time.sleep(0.1)
        return self.text("stderr")


class Run(Watched):
    """A run of rankpool under way; each of its processes has a mark in its environment."""

    def __init__(self, folder, argv, stderr=None, env=None):
        super().__init__(folder)
        self.argv = [str(word) for word in argv]
        self.mark = f"RANKPOOL_E2E={uuid.uuid4()}"
        env = {
            **os.environ, "PYTHONFAULTHANDLER": "1", **dict([self.mark.split("=")]), **(env or {}),
        }  # fmt: skip
        self.shared_before = set(os.listdir(SHM))
        with open(self.folder / "stdout", "wb") as out, open(self.folder / "stderr", "wb") as err:
            self.process = subprocess.Popen(
                self.argv, cwd=folder, stdin=subprocess.DEVNULL, stdout=out, stderr=stderr or err,
                env=env,
            )

    # --- observing ---

    def mine(self, environment):
        return self.mark in environment

    def ranks(self):
        """The processes that are ranks of the cache."""
        return [
            pid
            for pid, (_, argv) in self.processes().items()
            if argv[:2] == [self.argv[0], "serve"]
        ]

    def mpiruns(self):
        """The processes that are an mpirun; Open MPI 5's calls itself prterun."""
        names = ("mpirun", "mpiexec", "prterun")
        return [
            pid
            for pid, (_, argv) in self.processes().items()
            if Path(argv[0]).name.startswith(names)
        ]

    def session(self):
        """The session folder in /dev/shm, None when there is none."""
        return next(SHM.glob(f"rankpool-{os.getuid()}-pid{self.process.pid}-*"), None)

    def ready(self, ranks):
        """Whether all ranks accept at their doors."""
        return self.session() and len(list(self.session().glob("r*/ready"))) == ranks

    def leftovers(self):
        """The names that were added to /dev/shm since the run began and that no live process or
        other run uses."""
        new = {
            entry.name
            for entry in os.scandir(SHM)
            if entry.name not in self.shared_before and ours(entry)
        }
        own = {name for name in new if f"-pid{self.process.pid}-" in name}
        others = {name for name in new if name.startswith(("rankpool-", ".rankpool-"))} - own
        held = set()
        for maps in Path("/proc").glob("[0-9]*/maps"):
            try:
                content = maps.read_text(errors="replace")
            except OSError:
                continue
            held |= {name for name in new if f"{SHM}/{name}" in content}
        return sorted(new - others - held)

    # --- acting ---

    def wait_for(self, condition, what):
        """Returns when condition() holds; fails when the run ends before that."""
        until = time.monotonic() + PATIENCE_SECONDS
        while not condition():
            code = self.process.poll()
            assert code is None, (
                f"the run ended before {what}, code "
                f"{code}\n{self.text('stdout')}\n{self.text('stderr')}"
            )
            assert time.monotonic() < until, (
                f"waited in vain for {what}, after {len(self.batches())} batches\n{self.stacks()}"
            )
            time.sleep(0.005)

    def remains(self, allowed=()):
        """Returns what a run that has ended left behind, except what is allowed: processes, and
        names in /dev/shm.

        Other tests run at the same time, and their names come and go: only names that are there
        every time count.
        """
        until, left = time.monotonic() + 20, None
        while True:
            processes = self.processes()
            names = set(self.leftovers()) - set(allowed)
            left = names if processes or left is None else left & names
            if not processes and not left or time.monotonic() > until:
                return [*processes.values(), *sorted(left)]
            time.sleep(0.02)

    def finish(self, may_leave=()):
        """Waits for the end, asserts that nothing of the run is left on the machine, and returns
        the result. Names in /dev/shm that begin with one of `may_leave` may be left."""
        try:
            self.process.wait(PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the run does not end: {self.argv}\n{self.stacks()}") from None
        left = [what for what in self.remains() if not str(what).startswith(tuple(may_leave))]
        assert not left, f"the run left {left}\n{self.text('stderr')}"
        events = [json.loads(line) for line in self.text("run.jsonl").splitlines()]
        return Result(
            self.process.returncode, self.text("stdout"), self.text("stderr"), events,
            self.batches(),
        )


def ours(entry):
    """Whether a file is this user's and still there."""
    try:
        return entry.stat(follow_symlinks=False).st_uid == os.getuid()
    except FileNotFoundError:
        return False


def stands_still(pid):
    """Whether every thread of a process is stopped or has ended. A thread that waits for a
    processor sees SIGSTOP only when it gets one; the others run until then."""
    for status in Path(f"/proc/{pid}/task").glob("*/stat"):
        try:
            state = status.read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue  # it has ended
        if state not in "TtZX":
            return False
    return True


def slab_of(pid):
    """Opens a rank's memory for samples, as any process of the user may; returns None if it has
    none."""
    for entry in os.listdir(f"/proc/{pid}/fd"):
        path = f"/proc/{pid}/fd/{entry}"
        try:
            if "rankpool-slab" in os.readlink(path):
                return os.open(path, os.O_RDWR)
        except OSError:
            pass  # it is closed by now
    return None


def plain(root, *args):
    """Returns the digest of the stream that PyTorch's own DistributedSampler would have given."""
    command = [sys.executable, EXAMPLES / "plain.py", root, *args]
    done = subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, check=True
    )
    return done.stdout.split()[1]


def training(args=(), trainers=1, torch=False, pause=()):
    """Returns the command of trainer.py, or with `torch` of python/examples/train.py, which does
    the same with PyTorch and takes seconds to start. The global batch is that of all tests.
    Training pauses after the batches `pause`: see Watched.go."""
    program = EXAMPLES / "train.py" if torch else HERE / "trainer.py"
    paused = [HERE / "paused.py", ",".join(map(str, pause))] if pause else []
    return [
        sys.executable, *paused, program, "--batch-size", GLOBAL_BATCH // trainers,
        "--digest", "--digest-log", "digest", *args,
    ]  # fmt: skip


def start(
    folder, data, ranks=1, memory="20%", window="1MiB", mpi=None, args=(), options=(),
    trainers_per_rank=1, command=None,
    torch=False, pause=(), stderr=None, env=None,
):  # fmt: skip
    """Starts a training in folder. `args`, `torch` and `pause` are those of `training`,
    whose result `command` replaces; `options` are rankpool's, and `env` are more variables of its
    environment. `stderr` is a descriptor to use instead of the file of that name."""
    argv = [RANKPOOL, "run", "--ranks", ranks]
    if ranks > 1:
        env = {"RANKPOOL_MPI_LIBRARY": LIBRARY[mpi or "openmpi"], **(env or {})}
    argv += ["--trainers-per-rank", trainers_per_rank, "--memory", memory]
    argv += ["--log", "run.jsonl", "--tune", f"window={window},progress=0"]
    for one in data if isinstance(data, (list, tuple)) else [data]:
        argv += ["--data", one]
    command = (
        training(args, ranks * trainers_per_rank, torch, pause)
        if command is None
        else command
    )
    return Run(folder, [*argv, *options, "--", *command], stderr, env)
