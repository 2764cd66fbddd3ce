"""Views that a script uses in place: no rank takes the memory back while it has them."""

import fcntl
import os
import signal
from pathlib import Path

import numpy
import pytest

import rankpool
from fakedoor import plan


class Lock:
    """The lock that a rank must hold exclusively before it takes its predecessor's memory back."""

    def __init__(self, door):
        self.path = Path(door.path).with_name("in-place")
        self.path.touch()
        self.fds = [os.open(self.path, os.O_RDWR)]

    def free(self, life=-1):
        try:
            fcntl.flock(self.fds[life], fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        fcntl.flock(self.fds[life], fcntl.LOCK_UN)
        return True

    def renew(self):
        """Puts another file there, as the next rank does."""
        new = self.path.with_suffix(".new")
        new.touch()
        new.rename(self.path)
        self.fds.append(os.open(self.path, os.O_RDWR))


@pytest.fixture
def lock(door):
    lock = Lock(door)
    yield lock
    for fd in lock.fds:
        os.close(fd)


def make():
    data = rankpool.Dataset()
    return data, rankpool.BatchSampler(data, batch_size=4)


def expected(door, sampler):
    return [list(b) for b in plan(door, 0, sampler.spec._asdict(), 0)]


def check(door, batch):
    assert [bytes(v) for v in batch.views] == [door.data[0].bytes[i] for i in batch.ids]


def test_a_batch_in_hand_is_locked_until_the_next_attempt_to_go_on(door, lock):
    data, sampler = make()
    coming = data.batches(sampler)
    check(door, next(coming))
    assert not lock.free()
    door.hang_up()
    assert not lock.free()  # the script still uses the views
    ids = [list(batch.ids) for batch in coming]
    assert ids == expected(door, sampler)[1:]


def test_the_lock_ends_with_the_last_view_of_a_rank_that_is_gone(door, lock):
    data, sampler = make()
    coming = data.batches(sampler)
    first = next(coming)
    array = numpy.frombuffer(first.views[0], numpy.uint8)
    for life in range(2):  # it is kept over two restarts
        door.hang_up()
        lock.renew()
        check(door, next(coming))
        assert not lock.free(0), life
    for _ in coming:
        pass
    assert lock.free(1) and not lock.free(0)
    del array, first
    with sampler._connection._lock:  # the sentinel of another test may run
        sampler._connection._drop()
    sampler._connection._retry_at = 0
    sampler._connection.connect()
    assert lock.free(0) and lock.free(1)


def from_storage(door, data, sampler):
    for batch in data.batches(sampler):
        check(door, batch)
        assert list(map(type, map(lambda view: view.obj, batch.views))) == [bytes] * len(batch.ids)


def test_what_is_too_late_in_hand_is_read_from_storage(door, lock):
    data, sampler = make()
    sampler._connection.connect()
    lock.renew()
    from_storage(door, data, sampler)
    assert lock.free(1)


def test_nothing_is_put_in_hand_while_a_rank_has_the_lock(door, lock):
    data, sampler = make()
    sampler._connection.connect()
    fcntl.flock(lock.fds[0], fcntl.LOCK_EX)
    from_storage(door, data, sampler)


@pytest.mark.parametrize("has_views", [True, False])
def test_a_forked_child_has_its_parents_views_in_hand(door, lock, has_views):
    data, sampler = make()
    coming = data.batches(sampler)
    if has_views:
        next(coming)
    else:
        sampler._connection.connect()
    child = os.fork()
    if not child:
        signal.pause()
        os._exit(0)
    coming.close()
    with sampler._connection._lock:  # the sentinel of another test may run
        sampler._connection._drop()
    assert lock.free() != has_views
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    assert lock.free()
