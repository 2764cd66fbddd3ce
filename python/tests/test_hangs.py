"""A cache that hangs holds up training for a bounded time, and comes back when it continues."""

import os
import threading
from array import array

import pytest

import rankpool
from fakedoor import plan
from rankpool import connection, dataset, messages, session
from rankpool.errors import CacheAwayError
from rankpool.wire import pack_report

BOUND = "0.2"  # seconds
OPEN, PLAN, GET, REPORT = 2, 3, 4, 5


class Bounds:
    """The client's time-outs: short while the door hangs, and too long to expire on a busy machine
    while it works."""

    def __init__(self, door, monkeypatch):
        self.door, self.set, self.call = door, monkeypatch.setattr, connection._bound_calls
        self.set(
            connection, "_bound_calls",
            lambda sock, seconds: self.call(sock, seconds if self.short else 60.0),
        )
        self.go()

    def hang(self, link=None):
        """Stops the door, and shortens the time-outs of link, too, if it is connected."""
        self.door.goes.clear()
        self._choose(short=True)
        if link is not None and link._sock is not None:
            self.call(link._sock, link._bound)

    def go(self):
        self._choose(short=False)
        self.door.goes.set()

    def _choose(self, short):
        self.short = short
        self.set(connection, "HELLO_SECONDS", 0.2 if short else 60.0)


@pytest.fixture
def bounds(door, monkeypatch):
    monkeypatch.setenv("RANKPOOL_BATCH_TIMEOUT", BOUND)
    messages._said[:] = bytes(len(messages._said))
    return Bounds(door, monkeypatch)


@pytest.fixture
def batches(door, bounds, monkeypatch):
    """batches(epoch, hurt) reads an epoch, calls hurt(number) before each batch, and returns the
    ids that came."""
    monkeypatch.setattr(dataset, "MAX_AHEAD", 1)
    data = rankpool.Dataset("train")
    sampler = rankpool.BatchSampler(data, 2)
    want = [bytes(content) for content in door.data[0].bytes]

    def batches(epoch, hurt):
        seen = []
        sampler.set_epoch(epoch)
        taken = data.batches(sampler)
        for number in range(len(sampler)):
            hurt(number)
            samples = next(taken)
            assert [bytes(view) for view in samples.views] == [want[id] for id in samples.ids]
            sampler.report(list(samples.ids), [1.0] * len(samples.ids))
            seen += samples.ids
        return seen

    batches.sampler = sampler
    return batches


def test_a_cache_that_hangs_in_an_epoch(door, bounds, batches, capfd):
    want = [id for batch in plan(door, 0, door.seen(OPEN)[0], 1) for id in batch]
    link = batches.sampler._connection

    def hurt(number):
        if number == 3:
            bounds.hang(link)
        if number == 8:
            bounds.go()
            link._retry_at = 0.0

    assert batches(1, hurt) == want
    said = capfd.readouterr().err
    assert said.count("the cache has not answered for 0.2 s; reading storage until it does") == 1
    assert said.count("the cache is back") == 1
    # It has every report, including those sent while it hung.
    door.wait(lambda: {r[2] for r in door.seen(REPORT)} == set(range(10)))


def test_a_cache_that_hangs_for_good_costs_little(bounds, batches, monkeypatch):
    """Only the first of many batches waits."""
    waited = []
    monkeypatch.setattr(
        connection.Connection, "_lost", counted(connection.Connection._lost, waited)
    )
    link = batches.sampler._connection
    batches(0, lambda number: bounds.hang(link) if number == 2 else None)
    assert len(waited) == 1


def counted(method, calls):
    def count(self, late=False):
        calls.extend([late] if late else [])
        return method(self, late)

    return count


def test_a_cache_that_does_not_answer_a_worker(door, bounds, capfd):
    """A worker connects anew in each epoch; it reads storage, and says so."""
    bounds.hang()
    link = connection.Connection(door.path, 0, 1)
    assert not link.connect() and not link.connect()
    link.close()
    bounds.go()
    said = "rankpool: the cache has not answered for 0.2 s; reading storage until it does\n"
    assert capfd.readouterr().err == said


def test_reports_that_nobody_takes(bounds, batches):
    """A trainer whose workers request the batches only sends: sending ends too."""
    link = batches.sampler._connection
    batches(0, lambda number: None)
    bounds.hang(link)
    sent = 0
    report = pack_report(0, 0, 0, array("f", [0.5] * 15000))
    while link.post(REPORT, report):
        sent += 1
    assert 0 < sent < 100


def test_a_plan_that_takes_its_time(door, bounds, batches):
    """A plan waits for a trainer that is behind the others, as long as the rank lives."""
    answer, gate = door._answer_3, threading.Event()

    def slow(values, streams, who):
        door.changed.release()
        gate.wait()
        door.changed.acquire()
        return answer(values, streams, who)

    door._answer_3 = slow
    probes = []
    link = batches.sampler._connection
    # whenever the plan has not come within this time, the door is probed
    bounds.call(link._sock, float(BOUND))

    def probe():
        probes.append(connection.Connection._door_answers(link))
        if len(probes) == 3:
            gate.set()
        return probes[-1]

    link._door_answers = probe
    batches(0, lambda number: None)
    assert len(probes) >= 3 and all(probes)
    assert len(door.seen(PLAN)) == 1


def test_a_plan_of_a_cache_that_hangs(bounds, batches, monkeypatch):
    monkeypatch.setenv("RANKPOOL_PLAN_TIMEOUT", "0.1")
    bounds.hang(batches.sampler._connection)
    with pytest.raises(CacheAwayError, match="waited 0.1 s in vain for the cache to plan epoch 0"):
        batches(0, lambda number: None)


def test_a_plan_of_another_cache_in_its_place(door, bounds, batches):
    """A rank that cannot be ended keeps its connections, and another one opens its door in the same
    place."""
    link = batches.sampler._connection
    hung = door.goes
    bounds.hang(link)

    def replaced():
        if door.goes is hung:
            os.unlink(door.path)
            door.goes = threading.Event()
            bounds.go()
            door.start()
        return connection.Connection._door_answers(link)

    link._door_answers = replaced
    assert len(batches(0, lambda number: None)) == 20


def test_seconds_that_are_none(door, monkeypatch):
    monkeypatch.setenv("RANKPOOL_BATCH_TIMEOUT", "soon")
    with pytest.raises(
        ValueError,
        match="the variable RANKPOOL_BATCH_TIMEOUT must be a number of seconds, 0 or more, not "
        "'soon'",
    ):
        connection.Connection(session.door(), 0, 1)
