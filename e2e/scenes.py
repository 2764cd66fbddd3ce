"""Plays the jobs that `make simulate-faults` simulates, with real processes and the Python client.

scenes.txt has what the first hundred seeds draw: the shape of the job, what is trained, and which
fault comes after which global batch. What scenes.txt does not say is drawn here: which rank fails,
the MPI, whether training waits for the cache, and on how many ranks a job continues.
"""

import json
import os
import random
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field

import numpy
import run
from dataset import make_tree
from run import HERE, RANKPOOL, ROOT, slab_of

sys.path.insert(0, str(ROOT / "python"))
from rankpool import wire

GLOBAL_BATCH = 12
REQUEUE = "the job is requeued"
# what cannot be done here to processes on one machine; test_network and test_shrink do similar
# things
LEFT_OUT = [
    "the network is cut",
    "the network is slow",
    "storage stalls",
    "memory is short",
    "a node is lost",  # see slurm/test_lost_node.py
]
SHAPES = [(1, 1), (1, 2), (2, 1), (2, 2), (3, 1), (3, 2)]  # ranks and trainers of a requeued job
STRANGERS = ["0, '{0}'", "5, '{0}'", "0, 'uniform'", "0, 'sequential'"]


@dataclass
class Scene:
    """A job that is drawn from a seed."""

    seed: int
    ranks: int
    trainers: int
    samples: int
    epochs: int
    sampler: str
    memory: int  # % of the data
    nan: bool
    faults: list = field(default_factory=list)  # pairs of a step and a name, in order

    @property
    def batches(self):
        return self.samples // GLOBAL_BATCH


def scenes():
    """Returns the scenes of scenes.txt, by seed."""
    found = []
    for line in (HERE / "scenes.txt").read_text().splitlines():
        if line.startswith("seed="):
            words = dict(word.split("=") for word in line.split())
            sampler = words.pop("sampler")
            found.append(Scene(sampler=sampler, **{key: int(n) for key, n in words.items()}))
        else:
            step, name = line.split(" ", 1)
            found[-1].faults.append((int(step), name))
    return found


class Ended(Exception):
    """Training has ended before the awaited step."""


class Play:
    """Plays a scene; `start` is the fixture of that name."""

    def __init__(self, scene, start, folder):
        self.scene, self._start, self.folder = scene, start, folder
        self.rng = random.Random(scene.seed)
        self.tree = make_tree(folder / "tree", scene.samples)
        self.checkpoint = folder / "checkpoint"
        self.args = ["--epochs", scene.epochs, "--sampler", scene.sampler]
        if scene.nan:
            losses = numpy.random.default_rng(scene.seed).exponential(
                size=(scene.epochs, scene.samples)
            )
            losses[losses > 1.6] = numpy.nan  # a fifth
            numpy.save(folder / "losses.npy", losses.astype("float32"))
            self.args += ["--losses", folder / "losses.npy"]
        self.changed = []  # samples
        self.added = []  # files of the data set
        self.beside = []  # threads
        self.forgets = False  # a process that has counted may be gone
        self.counted = True  # all draws will be in the run log
        self.reference = self.calm()

    def start(self, ranks, trainers, pause, args, **way):
        """Starts a training that pauses after the batches `pause`."""
        paused = [HERE / "paused.py", ",".join(map(str, pause))] if pause else []
        command = [
            sys.executable, *paused, HERE / "trainer.py", "--batch-size",
            GLOBAL_BATCH // (ranks * trainers), "--digest-log", "digest", *self.args, *args,
        ]  # fmt: skip
        return self._start(
            data=self.tree, ranks=ranks, trainers_per_rank=trainers, command=command, **way
        )

    def calm(self):
        """Returns the batches of an undisturbed training."""
        result = self.start(1, 1, [], [], memory="0").finish()
        assert result.code == 0, result.stderr
        return result.batches

    def play(self):
        """Plays all lives of the job, and compares what is trained with the reference."""
        reference, faults, done = self.reference, list(self.scene.faults), 0
        requeues = 0
        shape = self.scene.ranks, self.scene.trainers
        while True:
            one = self.life(shape, faults, done)
            requeued = self.follow(one, faults, done)
            result = self.ended(one, requeued)
            lines = one.batches()
            assert lines == reference[done : done + len(lines)], (
                f"{self.scene}: after {done} batches training is another one\n{one.text('stderr')}"
            )
            if not requeued or result and "stopped in epoch" not in result.stdout:
                break  # it may have finished before it was told
            requeues += 1
            done = self.place()
            shape = self.rng.choice(SHAPES)
            for path in self.added:
                path.unlink()
            self.added.clear()
        if result.code != 0:
            names = [path.name for path in self.changed]
            if requeues and names:
                names.append("the saved state has identity")
            assert any(name in result.stderr for name in names), f"{self.scene}: {result.stderr}"
        else:
            assert done + len(lines) == len(reference), f"{self.scene}: {result.stderr}"
            if done == 0 and self.counted and not self.forgets:
                result.check(self.scene.epochs, self.scene.samples)

    def place(self):
        """Returns how many batches were trained before the checkpoint."""
        state = json.loads(self.checkpoint.read_text())
        return state["epoch"] * self.scene.batches + state["batch"]

    def life(self, shape, faults, done):
        pause = sorted({step - done for step, _ in faults if step > done})
        mpi = self.rng.choice(["openmpi", "mpich"])
        options = ["--rank-timeout", "2s", "--state", self.folder / "state"]
        return self.start(
            *shape, pause, ["--checkpoint", self.checkpoint], memory=f"{self.scene.memory}%",
            window="32KiB", mpi=mpi, options=options,
        )  # fmt: skip

    def follow(self, one, faults, done):
        """Causes the faults in one life of the job; returns "" when the job is over, else how it
        was requeued."""
        try:
            while faults:
                step = faults[0][0]
                # a fault that was due before the job continued comes when it trains again
                self.until(one, lambda: len(one.batches()) >= max(1, step - done))
                while faults and faults[0][0] == step:
                    _, name = faults.pop(0)
                    if name == REQUEUE:
                        how = self.requeue(one)
                        if how:
                            return how
                    elif name not in LEFT_OUT:
                        HARMS[name](self, one)
                waits = self.rng.random() < 0.4
                if waits:
                    self.until(one, lambda: one.session() and self.serves(one))
                # what was trained without the cache is counted when it is back
                self.counted = waits or step < len(self.reference) - 8
                one.go(step - done)
        except Ended:
            pass
        return ""

    def serves(self, one):
        """Whether all ranks of a run accept at their doors."""
        ranks = one.ranks()
        return ranks and one.ready(len(ranks))

    def until(self, one, condition):
        """Waits until condition() holds, or training ends."""
        try:
            one.wait_for(condition, f"a step of {self.scene}")
        except AssertionError:
            if one.process.poll() is None:
                raise
            raise Ended from None

    def ended(self, one, requeued):
        """Waits for the end of a life, and returns its result; None if it was killed."""
        if requeued == "killed":
            until = time.monotonic() + run.PATIENCE_SECONDS
            while one.processes():
                assert time.monotonic() < until, f"{one.processes()} were killed, and live"
                one.kill(one.processes())
                one.process.poll()
                time.sleep(0.01)
        for thread in self.beside:
            thread.join()
        self.beside.clear()
        if requeued == "killed":
            return None
        return one.finish(run.MPI_LEAVES)

    def requeue(self, one):
        """Ends the job: warns it, so that it saves a checkpoint, or kills it if it has one."""
        if self.checkpoint.exists() and self.rng.random() < 0.5:
            one.kill([one.process.pid])  # first, as it starts others
            return "killed"
        trainers = one.trainers()
        for number in (signal.SIGSTOP, signal.SIGUSR1, signal.SIGCONT):  # to all of them at once
            one.kill(trainers, number)
        return "told"

    def some(self, one):
        """Returns a live rank, or None if there is none."""
        ranks = one.ranks()
        return self.rng.choice(sorted(ranks)) if ranks else None

    def later(self, seconds, do):
        """Does something after a delay, while training continues."""

        def wait_and_do():
            time.sleep(seconds)
            do()

        self.beside.append(threading.Thread(target=wait_and_do))
        self.beside[-1].start()

    # --- faults ---

    def die(self, one):
        victim = self.some(one)
        if victim:
            one.kill([victim])
            self.until(one, lambda: victim not in one.ranks())

    def die_later(self, one, least=0.0, most=2.0):
        self.forgets = True  # it may be at the very end
        self.later(self.rng.uniform(least, most), lambda: one.kill(one.ranks()[:1]))

    def die_often(self, one):
        for i in range(self.rng.randint(2, 5)):
            self.die_later(one, 0.4 * i, 0.4 * i + 1)

    def stop(self, one):
        victim = self.some(one)
        if victim:
            one.kill([victim], signal.SIGSTOP)
            self.later(self.rng.uniform(0, 6), lambda: one.kill([victim], signal.SIGCONT))

    def hang(self, one):
        victim = self.some(one)
        if victim:
            one.kill([victim], signal.SIGSTOP)

    def clear_folder(self, one):
        self.forgets = True
        victim = self.some(one)
        if victim and one.session():
            number = self.rng.randrange(len(one.ranks()))
            for path in one.session().glob(f"r{number}/*"):
                path.unlink(missing_ok=True)
            self.die(one)

    def rescan(self, one):
        path = self.tree / "a" / f"new{len(self.added)}.png"
        path.write_bytes(b"a new file")
        self.added.append(path)
        self.die(one)

    def write_memory(self, one):
        """Writes to the directory of a rank that dies, before the next rank takes it over. It does
        not write to the samples: trainers may be using some of them."""
        victim = self.some(one)
        if not victim:
            return
        memory = slab_of(victim)
        one.kill([one.process.pid], signal.SIGSTOP)
        old = one.ranks()
        one.kill([victim])
        self.until(one, lambda: not set(old) & set(one.ranks()))
        if memory is not None:
            end = os.fstat(memory).st_size - 8
            (begin,) = struct.unpack("<Q", os.pread(memory, 8, end))
            begin += self.rng.choice([0, *[128] * 9])  # including the header, or not
            for _ in range(20):
                os.pwrite(memory, self.rng.randbytes(8), self.rng.randrange(begin, end))
            os.close(memory)
        one.kill([one.process.pid], signal.SIGCONT)

    def change_sample(self, one):
        path = self.rng.choice(sorted(self.tree.glob("*/0*.png")))
        path.write_bytes(path.read_bytes() + b"more")
        self.changed.append(path)

    def shut_down(self, one):
        if one.session():
            subprocess.run([RANKPOOL, "end", "--session", one.session()], capture_output=True)

    def newcomer(self, one):
        """Starts another process with the RANK of a trainer."""
        known = [
            dict(v.split("=", 1) for v in env if "=" in v)
            for env, argv in one.processes().values()
            if str(HERE / "trainer.py") in argv and any(v.startswith("RANK=") for v in env)
        ]
        if not known:
            return
        env, words = self.rng.choice(known), self.rng.choice(STRANGERS)
        batch = GLOBAL_BATCH // int(env["WORLD_SIZE"])
        sampler = words.format(self.scene.sampler)
        script = (
            "import rankpool\n"
            f"list(rankpool.BatchSampler(rankpool.Dataset(), {batch}, {sampler}))"
        )
        argv = [sys.executable, "-c", script]

        def come():
            subprocess.run(argv, env=env, capture_output=True, timeout=run.PATIENCE_SECONDS)

        self.later(0, come)

    def say_anything(self, one):
        """Connects to a rank and sends random bytes and frames."""
        doors = sorted(one.session().glob("r*/door.sock")) if one.session() else []
        if not doors:
            return
        trainer, rng = self.rng.randrange(GLOBAL_BATCH), self.rng
        try:
            with socket.socket(socket.AF_UNIX) as door:
                door.settimeout(5)
                door.connect(str(rng.choice(doors)))
                hello = wire.pack_hello(trainer, self.scene.ranks * self.scene.trainers, 0, 99, 5)
                door.sendall(wire.frame(wire.HELLO, 0, hello))
                for ticket in range(1, 13):
                    numbers = (0, 1, rng.getrandbits(32))
                    payload = b"".join(
                        rng.choice(numbers).to_bytes(4, "little") for _ in range(rng.randrange(9))
                    )
                    kind = rng.choice([k for k in range(1, 13) if k != wire.SHUTDOWN])
                    payload += rng.randbytes(rng.randrange(4))
                    door.sendall(wire.frame(kind, ticket, payload))
                door.recv(1 << 16)
        except OSError:
            pass  # the rank hung up, or is dead


HARMS = {
    "a rank dies": Play.die,
    "a rank dies later": Play.die_later,
    "ranks die repeatedly": Play.die_often,
    "a rank is stopped for a while": Play.stop,
    "a rank hangs": Play.hang,
    "a rank's folder is cleared, and it dies": Play.clear_folder,
    "the data set changes, and a rank dies": Play.rescan,
    "memory is written to, and a rank dies": Play.write_memory,
    "a sample changes": Play.change_sample,
    "a rank is told to end": Play.shut_down,
    "a second training comes": Play.newcomer,
    "somebody says anything": Play.say_anything,
}
