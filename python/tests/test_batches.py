"""The raw iterator: views in place, one request ahead, and what happens when the cache does not
have a sample."""

import gc
import os
import pickle
import socket
import threading

import numpy
import pytest

import rankpool
from fakedoor import PLACE_BYTES, Door, plan
from rankpool.connection import Connection
from rankpool.waiting import Waiting

WATCH = Connection._watch  # before the tests' door replaces it
HELLO, OPEN, PLAN, GET, REPORT, RELEASE, METRIC = range(1, 8)


def make(door, batch_size=4, split=None, **options):
    data = rankpool.Dataset(split)
    return data, rankpool.BatchSampler(data, batch_size=batch_size, **options)


def expected(door, sampler, epoch, stream=0):
    data = door.data[stream]
    return [
        [(i, data.labels[i], data.bytes[i]) for i in b]
        for b in plan(door, stream, sampler.spec._asdict(), epoch)
    ]


def content(batch):
    return list(zip(batch.ids, batch.labels, map(bytes, batch.views)))


def epoch_of(data, sampler, epoch):
    sampler.set_epoch(epoch)
    return [content(batch) for batch in data.batches(sampler)]


def last_tally(door, epoch):
    """The newest tally of the one worker."""
    return [
        r.values[-1]
        for r in door.requests
        if r.kind in (GET, RELEASE) and r.values[-1]["epoch"] == epoch
    ][-1]


def test_an_epoch_is_the_plan_and_one_request_a_batch(door):
    data, sampler = make(door)
    for epoch in range(2):
        assert epoch_of(data, sampler, epoch) == expected(door, sampler, epoch)
    assert [get[1:3] for get in door.seen(GET)] == [(e, b) for e in range(2) for b in range(5)]
    door.wait(lambda: not door.leases)
    tally = last_tally(door, 1)
    assert (tally["hits_local"], tally["fallback_reads"], tally["storage_reads"]) == (20, 0, 0)
    assert 0 < tally["stall_us"] <= tally["elapsed_us"]


@pytest.mark.parametrize("seconds, told", [(0, [*range(1, 21), 20]), (1e9, [20])])
def test_what_was_counted_is_told_between_two_requests(door, monkeypatch, seconds, told):
    monkeypatch.setattr(rankpool.batch_sampler, "_TALLY_SECONDS", seconds)
    data, sampler = make(door, batch_size=1)
    assert len(epoch_of(data, sampler, 0)) == 20
    door.wait(lambda: not door.leases)
    assert [tally["hits_local"] for _, tally in door.seen(RELEASE) if tally["hits_local"]] == told


def test_the_next_batch_is_asked_for_before_this_one_is_used(door):
    data, sampler = make(door)
    batches = data.batches(sampler)
    next(batches)
    door.wait(lambda: len(door.seen(GET)) == 2)
    batches.close()


def test_a_use_after_the_next_batch_was_taken_raises(door):
    data, sampler = make(door)
    batches = data.batches(sampler)
    view = next(batches).views[0]
    bytes(view)
    next(batches)
    with pytest.raises(ValueError, match="released"):
        bytes(view)


def test_copies_stay_and_need_no_views(door):
    data, sampler = make(door)
    door.sources = {(0, 1, 2): 4}  # one is read from storage
    want = expected(door, sampler, 0)
    copied, last = [], None
    for last in data.batches(sampler):
        copied.append(last.copies())
    door.wait(lambda: not door.leases)  # nothing looks at the memory
    assert copied == [[sample for _, _, sample in batch] for batch in want]
    for use in (last.copies, lambda: last.views):
        with pytest.raises(ValueError, match="closed"):
            use()


KEEP = [
    lambda view: view[2:5], lambda view: numpy.frombuffer(view, numpy.uint8),
    lambda view: view.toreadonly(),
]


@pytest.mark.parametrize("keep", KEEP)
def test_what_still_looks_at_the_bytes_keeps_the_lease(door, keep):
    data, sampler = make(door, batch_size=2)
    batches = data.batches(sampler)
    kept = keep(next(batches).views[0])
    value = bytes(kept)
    for _ in batches:
        assert bytes(kept) == value
    door.wait(lambda: list(door.leases) == [1])
    del kept, batches, _
    gc.collect()
    epoch_of(data, sampler, 1)
    door.wait(lambda: not door.leases)


def test_leaving_the_loop_releases_all(door):
    data, sampler = make(door)
    for batch in data.batches(sampler):
        break
    epoch_of(data, sampler, 1)
    door.wait(lambda: not door.leases)


def test_sources_are_counted_and_source_4_is_read_from_storage(door):
    data, sampler = make(door)
    door.sources = {(0, 0, 0): 1, (0, 0, 1): 2, (0, 1, 2): 3, (0, 2, 3): 4}
    want = expected(door, sampler, 0)
    assert epoch_of(data, sampler, 0) == want
    door.wait(lambda: not door.leases)
    tally = last_tally(door, 0)
    assert (
        tally["hits_local"], tally["hits_remote"], tally["storage_reads"], tally["fallback_reads"],
    ) == (16, 1, 1, 2)
    assert tally["storage_bytes"] == len(want[0][1][2])
    assert tally["fallback_bytes"] == len(want[1][2][2]) + len(want[2][3][2])


def test_substitutes_from_memory_are_counted_apart(door):
    data, sampler = make(door)
    door.sources = {
        (0, 0, 0): 0x80, (0, 0, 1): 0x81, (0, 1, 2): 0x82, (0, 2, 3): 0x83, (0, 2, 1): 0x84,
    }
    want = expected(door, sampler, 0)
    assert epoch_of(data, sampler, 0) == want
    door.wait(lambda: not door.leases)
    tally = last_tally(door, 0)
    counted = (
        tally["substituted"], tally["hits_local"], tally["storage_reads"], tally["fallback_reads"],
    )
    assert counted == (2, 15, 1, 2) and tally["hits_remote"] == 0
    assert tally["substitute_reads"] == 3


def test_evaluated_samples_are_counted_apart(door):
    data, sampler = make(door)
    sampler.set_epoch(0)
    sampler._plan_epoch().evaluated = range(1, 2)  # the fake door evaluates none
    door.sources = {(0, 0, 0): 1, (0, 1, 0): 2, (0, 1, 1): 4, (0, 1, 2): 0x80, (0, 2, 0): 0x82}
    want = expected(door, sampler, 0)
    flags = [pickle.loads(pickle.dumps(batch)).evaluated for batch in sampler]
    assert flags == [False, True, False, False, False]
    assert epoch_of(data, sampler, 0) == want
    door.wait(lambda: not door.leases)
    tally = last_tally(door, 0)
    assert (tally["evaluated"], tally["evaluated_reads"]) == (4, 2)
    given = "hits_local", "hits_remote", "storage_reads", "fallback_reads", "substituted"
    assert [tally[source] for source in given] == [14, 1, 1, 0, 0]
    assert tally["substitute_reads"] == 1
    assert tally["fallback_bytes"] == len(want[1][1][2])
    assert tally["storage_bytes"] == len(want[1][0][2]) + len(want[2][0][2])


def test_source_5_raises_with_id_path_and_reason(door):
    data, sampler = make(door)
    door.sources = {(0, 1, 2): 5}
    id = plan(door, 0, sampler.spec._asdict(), 0)[1][2]
    with pytest.raises(rankpool.SampleError) as caught:
        epoch_of(data, sampler, 0)
    assert (caught.value.id, caught.value.path, caught.value.reason) == (
        id, door.data[0].files[id], "bad block",
    )
    epoch_of(data, sampler, 1)
    door.wait(lambda: not door.leases)


def test_other_ids_than_planned_are_not_believed(door):
    data, sampler = make(door)
    door.wrong_ids = {0}
    assert epoch_of(data, sampler, 0) == expected(door, sampler, 0)
    door.wait(lambda: not door.leases)
    assert last_tally(door, 0)["fallback_reads"] == 20


def test_views_that_the_end_of_the_slab_cuts_off_are_not_believed(door):
    door.slab_bytes = PLACE_BYTES + 1  # all but the first place are beyond it
    data, sampler = make(door)
    assert epoch_of(data, sampler, 0) == expected(door, sampler, 0)
    door.wait(lambda: not door.leases)
    assert last_tally(door, 0)["fallback_reads"] == 20


def test_not_ready_reads_storage_and_asks_again(door):
    data, sampler = make(door, batch_size=1)
    sampler.set_epoch(0)
    got = []
    door.not_ready = {GET}
    for batch in data.batches(sampler):
        got.append(content(batch))
        door.not_ready = set()  # earlier requests may have been refused, later ones are not
    assert got == expected(door, sampler, 0)
    door.wait(lambda: not door.leases)
    tally = last_tally(door, 0)
    assert tally["fallback_reads"] + tally["hits_local"] == 20 and 0 < tally["fallback_reads"] < 20


def test_the_cache_dies_and_comes_back(door, capsys):
    data, sampler = make(door, batch_size=2)
    got = []
    for number, batch in enumerate(data.batches(sampler)):
        got.append(content(batch))
        sampler.report(batch.ids, [float(number)] * 2)
        if number == 3:
            door.kill()
        if number == 6:
            door.requests.clear()
            door.start()
    assert got == expected(door, sampler, 0)
    kinds = [r.kind for r in door.requests]
    assert kinds[:2] == [1, 2]
    door.wait(lambda: not door.leases)
    assert [r[2] for r in door.seen(REPORT)] == [*range(10)]
    tally = last_tally(door, 0)
    assert tally["fallback_reads"] >= 4 and tally["fallback_reads"] + tally["hits_local"] == 20
    said = capsys.readouterr().err
    assert (
        "rankpool: the cache went away; reading storage until it comes back\nrankpool: the cache "
        "is back\n"
        in said
    )


def test_a_cache_that_came_back_is_told_again(door):
    """The reports, in order, and the metrics and counts."""
    data, sampler = make(door, batch_size=10)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for batch in data.batches(sampler):
            sampler.report(batch.ids, [epoch + 0.5] * 10)
        sampler.metric("accuracy", epoch / 4)
    door.kill()
    door.requests.clear()
    door.start()
    sampler.set_epoch(3)
    next(iter(sampler))
    kinds = [r.kind for r in door.requests]
    # the sums of the epoch that ended go out after the plan; the door may have read them or not
    assert kinds[: kinds.index(PLAN) + 1] == [1, 2, 7, 7, 5, 5, 5, 5, 5, 5, 7, 7, 7, 6, 6, 6, 3]
    # the accuracies that plans may depend on come before the reports
    assert [(m["epoch"], m["value"], m["to"]) for m in door.seen(METRIC)] == [
        (2, 0.5, "plans"), (1, 0.25, "plans"), (0, 0, "log"), (1, 0.25, "log"), (2, 0.5, "log"),
    ]  # fmt: skip
    assert [last_tally(door, epoch)["hits_local"] for epoch in range(3)] == [20] * 3
    assert [(e, b, loss) for _, e, b, loss in door.seen(REPORT)] == [
        (e, b, [e + 0.5] * 10) for e in (0, 1, 2) for b in (0, 1)
    ]


def test_the_sentinel_tells_a_cache_that_came_back_while_training_waits(door):
    data, sampler = make(door, batch_size=10)
    for batch in data.batches(sampler):
        sampler.report(batch.ids, [0.5] * 10)
    sentinel = threading.Thread(target=WATCH, args=(sampler._connection,), daemon=True)
    sentinel.start()
    door.kill()
    door.requests.clear()
    door.start()
    door.wait(lambda: door.requests and door.requests[-1].kind == RELEASE)
    assert [r.kind for r in door.requests] == [HELLO, OPEN, REPORT, REPORT, RELEASE]


def test_a_connection_lost_in_mid_request_counts_nothing_twice(door):
    data, sampler = make(door)
    door.hang_up_at = {(0, 2)}
    assert epoch_of(data, sampler, 0) == expected(door, sampler, 0)
    door.wait(lambda: not door.leases)
    tally = last_tally(door, 0)
    assert tally["hits_local"] + tally["fallback_reads"] == 20
    assert len(door.seen(1)) == 2 and len({hello[3] for hello in door.seen(1)}) == 1


def test_views_taken_before_the_cache_died_stay_right(door):
    data, sampler = make(door)
    batches = data.batches(sampler)
    batch = next(batches)
    want = expected(door, sampler, 0)[0]
    door.kill()
    assert content(batch) == want
    assert [content(b) for b in batches] == expected(door, sampler, 0)[1:]


def test_a_file_that_changed_while_the_cache_is_away_is_an_error(door):
    data, sampler = make(door)
    batches = data.batches(sampler)
    next(batches)
    door.kill()
    for file in door.data[0].files:
        os.utime(file, ns=(0, 1))
    with pytest.raises(rankpool.SampleError, match="changed after it was indexed"):
        list(batches)


def test_two_data_sets_share_one_connection(door):
    train, sampler = make(door)
    test, in_order = make(door, split="test", sampler="sequential")
    for epoch in range(2):
        assert epoch_of(train, sampler, epoch) == expected(door, sampler, epoch)
        assert [content(b) for b in test.batches(in_order)] == expected(door, in_order, 0, stream=1)
    assert len(door.seen(1)) == 1
    assert [len(b) for b in expected(door, in_order, 0, stream=1)] == [4, 3]


def test_a_second_sampler_on_the_training_data_is_refused(door, monkeypatch):
    make(door)
    make(door)  # the same one
    with pytest.raises(rankpool.RankpoolError, match="use a DataLoader without a sampler"):
        make(door, batch_size=3, sampler="sequential")
    monkeypatch.setenv("WORLD_SIZE", "4")
    with pytest.raises(rankpool.RankpoolError, match="or with other trainers"):
        make(door, sampler="torch", rank=0, world_size=1)
    assert len(door.seen(2)) == 1


def in_threads(count, work):
    """Runs work() in `count` threads, which begin together; returns their results or exceptions."""
    begin, results = threading.Barrier(count), [None] * count

    def run(number):
        begin.wait()
        try:
            results[number] = work()
        except Exception as error:
            results[number] = error

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


@pytest.mark.parametrize("kind", ["sequential", "torch"])
def test_samplers_of_one_stream_in_four_threads(door, kind):
    def train():
        data, sampler = make(door, batch_size=2, sampler=kind)
        return sampler, [epoch_of(data, sampler, epoch) for epoch in range(5)]

    for result in in_threads(4, train):
        if isinstance(result, Exception):
            raise result
        sampler, epochs = result
        assert epochs == [expected(door, sampler, epoch) for epoch in range(5)]


def test_of_samplers_that_draw_by_scores_one_is_iterated_at_a_time(door):
    data, sampler = make(door)
    batches = iter(sampler)
    next(batches)
    for error in in_threads(4, lambda: list(make(door)[1])):
        assert isinstance(
            error, rankpool.RankpoolError
        ) and "another sampler pads over data set 'train' is being" in str(error)
    assert len(list(batches)) == 4
    assert len(list(make(door)[1])) == 5


def test_a_thread_that_waits_for_a_plan_holds_up_no_other(door):
    """Other trainers may first need something from the trainer of that thread."""
    data, sampler = make(door)
    train = iter(sampler)
    batch = next(train)
    test, in_order = make(door, split="test", sampler="sequential")
    answer, go = door._answer_3, threading.Event()

    def planned(values, streams, who):
        assert values[0] == 0 or door.changed.wait_for(go.is_set, timeout=60)
        return answer(values, streams, who)

    door._answer_3 = planned
    waits = threading.Thread(target=lambda: next(iter(in_order)))
    waits.start()
    door.wait(lambda: any(values[0] == 1 for values in door.seen(3)))
    report = threading.Thread(target=sampler.report, args=(batch, [0.5] * 4), daemon=True)
    report.start()
    report.join(30)
    held_up = report.is_alive()
    with door.changed:
        go.set()
        door.changed.notify_all()
    waits.join()
    assert not held_up


def test_samplers_of_one_stream_are_the_training(door):
    """Also with several trainers in one process, and when the first sampler is gone."""
    for rank in range(3):
        for _ in range(2):
            _, sampler = make(door, batch_size=2, rank=rank, world_size=3)
            assert sampler._stream == 0


def test_several_trainers_divide_the_global_batch(door):
    parts = []
    for rank in range(3):
        data, sampler = make(door, batch_size=2, rank=rank, world_size=3)
        parts.append(epoch_of(data, sampler, 0))
        assert parts[-1] == expected(door, sampler, 0)
    assert sorted(sample for part in parts for batch in part for sample in batch) == [
        (i, door.data[0].labels[i], door.data[0].bytes[i]) for i in range(20)
    ]
    assert [len(b) for b in parts[2]] == [2, 2, 2, 0]


def test_a_big_plan_does_not_fit_the_first_buffer(door):
    door.draws = "replacement"
    data, sampler = make(door, batch_size=1)
    batches = plan(door, 0, sampler.spec._asdict(), 0)
    door._answer_3 = lambda *_: (103, big_plan(30000))
    coming = iter(sampler)
    assert [list(next(coming)) for _ in range(3)] == [[0], [1], [2]]
    assert len(sampler) == 30000 and len(batches) == 20


def big_plan(n):
    head = numpy.array([0, n, n, 0], numpy.uint32)
    return numpy.concatenate(
        [head, numpy.ones(n, numpy.uint32), numpy.arange(n, dtype=numpy.uint32)]
    ).tobytes()


def test_the_last_tally_is_sent_when_the_process_ends(door):
    data, sampler = make(door)
    batches = data.batches(sampler)
    for _ in range(3):
        next(batches)
    rankpool.connection._close_all()
    door.wait(lambda: door.requests[-1].kind == RELEASE and not door.leases)
    assert door.requests[-1].values[-1]["hits_local"] == 12


def test_the_last_tally_is_sent_again_if_the_rank_dies_before_it_reads_it(door):
    data, sampler = make(door)
    epoch_of(data, sampler, 0)
    door.wait(lambda: not door.leases)
    link, before = sampler._connection, len(door.requests)
    with link._lock:  # not under a sentinel that looks at it
        link._drop()
    ours, dying = socket.socketpair()

    class Dies:
        """A connection that ends, with sent data unread, when the client waits for its end."""

        def __getattr__(self, name):
            return getattr(ours, name)

        def recv(self, size):
            dying.close()
            return ours.recv(size)

    link._sock, link._ready = Dies(), True
    rankpool.connection._close_all()
    door.wait(lambda: any(r.kind == RELEASE for r in door.requests[before:]))
    assert last_tally(door, 0)["hits_local"] == 20


def test_the_end_of_the_process_waits_for_a_cache_that_is_away(door):
    data, sampler = make(door)
    epoch_of(data, sampler, 0)
    door.kill()
    end = threading.Thread(target=rankpool.connection._close_all)
    end.start()
    door.start()
    end.join()
    assert last_tally(door, 0)["hits_local"] == 20


def test_the_end_of_the_process_waits_for_the_cache(door, monkeypatch):
    waits = []

    def waiting(purpose, at_most):
        waits.append(at_most)
        return Waiting(purpose, 0.0)

    monkeypatch.setattr(rankpool.connection, "Waiting", waiting)
    data, sampler = make(door)
    epoch_of(data, sampler, 0)
    door.kill()
    rankpool.connection._close_all()
    assert waits == [30.0]


def test_a_cache_that_came_back_is_told_what_a_sampler_counted_that_is_gone(door):
    data, sampler = make(door)
    epoch_of(data, sampler, 0)
    door.kill()
    del data, sampler
    gc.collect()
    door.start()
    rankpool.connection._close_all()
    assert last_tally(door, 0)["hits_local"] == 20 and not door.faults


def test_a_forked_child_has_a_connection_of_its_own(door):
    data, sampler = make(door)
    batches = data.batches(sampler)
    batch = next(batches)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            data.__getitems__(batch.ids)
            os.write(write, bytes(batch.views[0]))
            rankpool.connection._close_all()
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert os.read(read, 1000) == bytes(batch.views[0])
    assert [content(b) for b in batches] == expected(door, sampler, 0)[1:]
    workers = [hello[3] for hello in door.seen(1)]
    assert len(workers) == 2 and workers[0] != workers[1]


def test_the_second_door_is_the_same_as_the_first(door, tmp_path):
    """A cache is restarted before its clients notice: the next request finds the new one."""
    data, sampler = make(door)
    door.kill()
    other = Door(door.path, door.data)
    try:
        assert epoch_of(data, sampler, 0) == expected(other, sampler, 0)
    finally:
        rankpool.connection._close_all()
        other.kill()
