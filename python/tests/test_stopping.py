"""Stopping at a signal: all trainers stop after the same step, and no worker before its trainer."""

import gc
import multiprocessing
import os
import signal
import subprocess
import sys
import weakref

import pytest
from torch.utils.data import DataLoader

import decoders
import rankpool
from fakedoor import plan
from rankpool import stopping

ALL = signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM

TRAINER = """
import os, signal, sys, torch.distributed as dist, rankpool
rank, file, told = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
dist.init_process_group("gloo", init_method="file://" + file, rank=rank, world_size=2)
stop, step = rankpool.Stop(), 0
while not stop():
    step += 1
    if step == told:
        os.kill(os.getpid(), signal.SIGUSR1)
print(step, stop.signal)
"""

# A trainer that exits while an all-reduce is under way, which the other one joins when it is told.
# The last thing that the first one does holds the interpreter's lock until the other has ended:
# threads that then wait for the lock still wait while Python exits.
LEAVER = """
import atexit, ctypes, os, sys
rank, file = int(sys.argv[1]), sys.argv[2]
if rank == 0:
    atexit.register(ctypes.PyDLL(None).read, 0, ctypes.create_string_buffer(1), 1)
import torch, torch.distributed as dist, rankpool
dist.init_process_group("gloo", init_method="file://" + file, rank=rank, world_size=2)
if rank == 0:
    atexit.register(os.close, 1)
else:
    sys.stdin.read()
stop = rankpool.Stop()
stop()
stop.close()
del stop
"""


@pytest.fixture
def stop():
    stop = rankpool.Stop()
    yield stop
    stop.close()


@pytest.mark.parametrize("number", ALL)
def test_one_trainer_stops_at_a_signal(stop, number):
    assert not stop()
    for sent in (number, number, signal.SIGUSR2):
        os.kill(os.getpid(), sent)
    assert stop() and stop() and stop.signal == number


TOLD_TWICE = """
import os, signal, rankpool
class Late:
    def __del__(self, kill=os.kill, pid=os.getpid(), number=signal.SIGTERM):
        kill(pid, number)
late, stop = Late(), rankpool.Stop()
os.kill(os.getpid(), signal.SIGTERM)
assert stop()
"""


def test_a_signal_while_python_exits():
    """Python deletes `late` when it has restored the default handlers."""
    env = {**os.environ, "PYTHONPATH": os.path.dirname(os.path.dirname(rankpool.__file__))}
    assert subprocess.run([sys.executable, "-c", TOLD_TWICE], env=env, check=False).returncode == 0


def test_close_gives_the_signals_back():
    before = [signal.getsignal(number) for number in ALL]
    stop = rankpool.Stop(signal.SIGUSR2)
    assert signal.getsignal(signal.SIGUSR2) == stop._hear
    assert signal.getsignal(signal.SIGUSR1) == before[0]
    stop.close()
    assert [signal.getsignal(number) for number in ALL] == before
    stop.close()  # again


def test_trainers_stop_after_the_same_step(tmp_path):
    """Only one of them gets the signal."""
    both = [
        trainer(TRAINER, rank, tmp_path, told, stdout=subprocess.PIPE)
        for rank, told in enumerate(["0", "5"])
    ]
    steps, signals = zip(*(one.communicate()[0].split() for one in both))
    assert [one.returncode for one in both] == [0, 0]
    assert steps[0] == steps[1] and 5 <= int(steps[0]) <= 7
    assert signals == ("None", str(int(signal.SIGUSR1)))


def trainer(script, rank, folder, *args, **options):
    """Starts one of two trainers, which meet in a folder."""
    env = {**os.environ, "PYTHONPATH": os.path.dirname(os.path.dirname(rankpool.__file__))}
    command = [sys.executable, "-c", script, str(rank), str(folder / "meet"), *args]
    return subprocess.Popen(command, env=env, text=True, **options)


def test_training_may_end_while_stop_asks(tmp_path):
    (left, leaves), (over, ends) = os.pipe(), os.pipe()
    both = [
        trainer(LEAVER, 0, tmp_path, stdin=over, stdout=leaves, stderr=subprocess.PIPE),
        trainer(LEAVER, 1, tmp_path, stdin=left, stdout=ends, stderr=subprocess.PIPE),
    ]
    for end in (left, leaves, over, ends):
        os.close(end)
    said = [one.communicate()[1] for one in both]
    assert [one.returncode for one in both] == [0, 0], said


def test_stop_keeps_what_it_gives_to_torch(monkeypatch):
    """A gloo thread may release it after the last step, while Python exits."""
    import torch.distributed as dist

    given = []

    class Group:
        ReduceOp = dist.ReduceOp

        @staticmethod
        def get_backend():
            return "gloo"

        @staticmethod
        def all_reduce(tensor, op, async_op):
            given.append(weakref.ref(tensor))
            return None

    stop = rankpool.Stop()
    stop.close()
    monkeypatch.setattr(stopping, "_process_group", lambda: Group)
    stop()
    stop()
    del stop
    gc.collect()
    assert given[0]() is not None and given[0]() is given[1]()


@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize("way", ["fork", "spawn"])
def test_workers_outlive_the_signals(door, stop, way, plain):
    """The signals are sent from the first moment of a worker's life."""
    data = rankpool.Dataset(transform=decoders.first_byte)
    sampler = rankpool.BatchSampler(data, 4)
    seen = []
    options = {
        "num_workers": 2, "multiprocessing_context": way, "prefetch_factor": 1,
        "worker_init_fn": decoders.say_hello,
    }
    if plain:
        loader = DataLoader(data, batch_size=None, sampler=sampler, **options)
    else:
        loader = data.loader(sampler, **options)
    batches = iter(loader)
    assert loader.worker_init_fn is decoders.say_hello
    storm()
    for ids, *_ in batches:
        seen.append(ids.tolist())
        storm()
    assert seen == [list(batch) for batch in plan(door, 0, sampler.spec._asdict(), 0)]
    assert not stop()  # only the workers were told


def storm():
    for worker in multiprocessing.active_children():
        for number in ALL:
            try:
                os.kill(worker.pid, number)
            except ProcessLookupError:  # it has done its work
                pass


def test_workers_obey_when_nobody_waits_for_signals(door):
    """A worker that a signal ends between batches may leave a lock of the loader held forever:
    these end within a batch."""
    data = rankpool.Dataset(transform=decoders.hears_a_signal)
    loader = data.loader(rankpool.BatchSampler(data, 4), num_workers=1)
    with pytest.raises(RuntimeError, match="DataLoader worker") as ended:
        list(loader)
    assert "is killed by signal: User defined signal 1" in f"{ended.value} {ended.value.__cause__}"
