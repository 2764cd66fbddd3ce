"""Trainers that read storage themselves keep to the job's limits, all processes of a node
together."""

import fcntl
import multiprocessing
import os
import shutil
import signal
import struct
from pathlib import Path

import pytest

from dataset_tree import make_tree, write_index
from rankpool import throttle
from rankpool.index import Index

# 1 MiB/s, 250.5 opens/s
GOLDEN = Path(__file__).parents[2] / "docs" / "wire" / "storage_limit_golden.bin"
SECOND = 10**9


class Clock:
    """Replaces the module time: a sleep advances the clock at once."""

    def __init__(self):
        self.ns, self.slept = 1000 * SECOND, []

    def monotonic_ns(self):
        return self.ns

    def monotonic(self):
        return self.ns / SECOND

    def sleep(self, seconds):
        self.slept.append(seconds)
        self.ns += round(seconds * SECOND)


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(throttle, "time", clock)
    return clock


def write_limit(folder, bytes_per_second=0.0, opens_per_second=0.0, until=0):
    path = folder / throttle.FILE
    path.write_bytes(struct.pack("<8sddQ", b"rplimit1", bytes_per_second, opens_per_second, until))
    return path


def test_the_golden_file(tmp_path):
    shutil.copy(GOLDEN, tmp_path / throttle.FILE)
    limit = throttle.throttle(tmp_path)
    assert (limit.bytes_per_second, limit.opens_per_second) == (1 << 20, 250.5)


@pytest.mark.parametrize(
    "limits, size, seconds",
    [
        ((1000.0, 0.0), 500, 0.5), ((0.0, 4.0), 500, 0.25), ((1000.0, 4.0), 100, 0.25),
        ((1000.0, 4.0), 500, 0.5),
    ],
)
def test_the_rate_holds(tmp_path, clock, limits, size, seconds):
    write_limit(tmp_path, *limits)
    limit, began = throttle.throttle(tmp_path), clock.ns
    for _ in range(20):
        limit.wait(size)
    # The last read has only begun, and a tenth of a second's worth was free.
    assert (clock.ns - began) / SECOND == pytest.approx(19 * seconds - 0.1, abs=1e-6)


def test_all_processes_of_a_node_share_it(tmp_path, clock):
    """The clock does not advance: the file shows what they have used."""
    path = write_limit(tmp_path, 1000.0)
    limit, began = throttle.throttle(tmp_path), clock.ns

    def read(start):
        start.wait()
        clock.sleep = lambda seconds: None
        for _ in range(200):
            limit.wait(10)

    context = multiprocessing.get_context("fork")
    start = context.Event()
    readers = [context.Process(target=read, args=(start,)) for _ in range(4)]
    for reader in readers:
        reader.start()
    start.set()
    for reader in readers:
        reader.join()
    *_, until = struct.unpack("<8sddQ", path.read_bytes())
    assert (until - began) / SECOND == pytest.approx(4 * 200 * 0.01 - 0.1)


def test_no_sample_waits_for_ever(tmp_path, clock):
    """Whatever is in the file: a time from another boot, a limit of one byte per second."""
    write_limit(tmp_path, 1.0, until=2**63)
    limit = throttle.throttle(tmp_path)
    limit.wait(1 << 30)
    limit.wait(1 << 30)
    assert clock.slept == [pytest.approx(throttle.MAX_WAIT_SECONDS)] * 2


def test_a_process_that_stands_still_with_the_lock_stops_nobody(tmp_path, clock):
    path = write_limit(tmp_path, 1000.0)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        file = open(path, "r+b")
        fcntl.flock(file, fcntl.LOCK_EX)
        os.write(write, b"x")
        signal.pause()
    os.read(read, 1)
    try:
        throttle.throttle(tmp_path).wait(10)
        assert throttle.LOCK_SECONDS < sum(clock.slept) < throttle.LOCK_SECONDS + 0.1
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


@pytest.mark.parametrize("content", [b"", b"rplimit1"])
def test_what_is_no_limit_limits_nothing(tmp_path, content):
    assert throttle.throttle(tmp_path) is None
    (tmp_path / throttle.FILE).write_bytes(content)
    assert throttle.throttle(tmp_path) is None


def test_an_index_reads_as_fast_as_the_limit_beside_it_says(tmp_path, clock):
    write_limit(tmp_path, 1000.0)
    files = make_tree(str(tmp_path / "d"), samples=3, size=lambda i: 1000)
    write_index(tmp_path / "idx", str(tmp_path / "d"), files)
    index = Index(tmp_path / "idx")
    for id in range(3):
        assert index.read(id) == bytes([id]) * 1000
    assert sum(clock.slept) == pytest.approx(1.9)
