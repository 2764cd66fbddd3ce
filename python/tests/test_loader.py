"""The torch loader: workers by fork and spawn, one request a batch, failures handed over whole."""

from functools import partial

import pytest
import torch
from torch.utils.data import DataLoader

import decoders
import rankpool
from fakedoor import plan
from rankpool.batch import Samples

GET, REPORT, RELEASE = 4, 5, 6

WORKERS = [
    {"num_workers": 0},
    {"num_workers": 2},
    {"num_workers": 2, "persistent_workers": True},
    {"num_workers": 1, "multiprocessing_context": "spawn", "persistent_workers": True},
]


def names(options):
    return "-".join(map(str, options.values()))


def make(transform, split=None, **options):
    data = rankpool.Dataset(split, transform=transform)
    return data, rankpool.BatchSampler(data, **{"batch_size": 4, **options})


def expected(door, sampler, epoch):
    data = door.data[0]
    samples = [
        (i, content[0], len(content), data.labels[i]) for i, content in enumerate(data.bytes)
    ]
    return [[samples[i] for i in batch] for batch in plan(door, 0, sampler.spec._asdict(), epoch)]


def rows(batch):
    return list(zip(*(field.tolist() for field in batch)))


def error_of(run):
    """Returns the error without its traceback, whose frames would keep a loader's workers."""
    try:
        run()
    except Exception as error:
        return error.with_traceback(None)


def tally_sums(door, epoch):
    """Adds up the newest tallies of the epoch over all workers."""
    workers = {r.connection: r.values[3] for r in door.requests if r.kind == 1}
    tallies = [
        (workers[r.connection], r.values[-1]) for r in door.requests if r.kind in (GET, RELEASE)
    ]
    newest = {worker: tally for worker, tally in tallies if tally["epoch"] == epoch}
    return tuple(
        sum(t[name] for t in newest.values())
        for name in ("hits_local", "fallback_reads", "stall_us")
    )


@pytest.mark.parametrize("options", WORKERS, ids=names)
def test_the_stream_is_the_plan_with_one_request_a_batch(door, options):
    sums = partial(tally_sums, door)
    _, sampler = make(decoders.first_byte)
    loader = _.loader(sampler, **options)
    assert len(loader) == 5
    for epoch in range(2):
        sampler.set_epoch(epoch)
        assert [rows(batch) for batch in loader] == expected(door, sampler, epoch)
    assert sorted(get[1:3] for get in door.seen(GET)) == [
        (e, b) for e in range(2) for b in range(5)
    ]
    door.wait(
        lambda: not door.leases
        and all(hits == 20 and stall > 0 for hits, _, stall in map(sums, range(2)))
    )
    assert [fallbacks for _, fallbacks, _ in map(sums, range(2))] == [0, 0]


@pytest.mark.parametrize("options", WORKERS, ids=names)
def test_the_cache_dies_and_comes_back_and_the_stream_is_the_same(door, options):
    data, sampler = make(decoders.first_byte, batch_size=1)
    loader = data.loader(sampler, **options)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        got = []
        for number, batch in enumerate(loader):
            got += [rows(batch)]
            sampler.report(batch[0], [1.0])
            if (epoch, number) == (0, 3):
                door.kill()
            if (epoch, number) == (1, 1):
                door.kill()
        assert got == expected(door, sampler, epoch)
        if epoch < 2:
            door.kill()
            door.start()
    assert (2, 19) in [get[1:3] for get in door.seen(GET)]


@pytest.mark.parametrize("options", WORKERS[:3], ids=names)
def test_an_unreadable_sample_is_a_sample_error_in_the_training_process(door, options):
    data, sampler = make(decoders.first_byte)
    door.sources = {(0, 1, 2): 5}
    id = plan(door, 0, sampler.spec._asdict(), 0)[1][2]
    error = error_of(lambda: list(data.loader(sampler, **options)))
    assert type(error) is rankpool.SampleError
    assert (error.id, error.path, error.reason) == (id, door.data[0].files[id], "bad block")


@pytest.mark.parametrize("options", WORKERS[:2], ids=names)
def test_a_transform_that_fails_gives_its_lease_back(door, options):
    data, sampler = make(decoders.fails)
    assert isinstance(error_of(lambda: list(data.loader(sampler, **options))), KeyError)
    data, sampler = make(decoders.first_byte)
    list(data.loader(sampler, **options))
    door.wait(lambda: not door.leases)


def test_a_lease_ends_only_after_the_batch_was_collated(door):
    data, sampler = make(decoders.array_over_view)
    for ids, x, y in data.loader(sampler):
        assert x.tolist() == [[id] * 50 for id in ids.tolist()]
    door.wait(lambda: not door.leases)


def test_an_item_that_is_no_tuple_gets_its_label(door):
    data, sampler = make(decoders.number)
    for ids, x, y in data.loader(sampler):
        assert x.tolist() == ids.tolist() and y.tolist() == [
            door.data[0].labels[i] for i in ids.tolist()
        ]


@pytest.mark.parametrize("workers", [0, 1])
def test_without_a_transform_items_are_the_bytes(door, workers):
    data, sampler = make(None)
    for ids, x, y in data.loader(sampler, num_workers=workers):
        assert x == [door.data[0].bytes[i] for i in ids.tolist()]
        assert {type(item) for item in x} == {bytes}


def test_a_lease_lost_while_the_bytes_are_copied_reads_storage(door, monkeypatch):
    copies, lost = Samples.copies, []

    def hang_up_first(samples):
        if samples._lease is not None and len(lost) < 3:
            lost.append(samples)
            door.hang_up()  # now the memory shows other bytes
        return copies(samples)

    monkeypatch.setattr(Samples, "copies", hang_up_first)
    data, sampler = make(decoders.content)
    for ids, x, y in data.loader(sampler):
        assert x == [door.data[0].bytes[i] for i in ids.tolist()]
    assert len(lost) == 3
    tally = sampler._tally
    # a batch after each of these was read from storage before the loss was noticed
    assert (tally.counts["hits_local"], tally.counts["fallback_reads"]) == (0, 20)


@pytest.mark.parametrize("workers", [0, 1])
def test_a_collate_function(door, workers):
    data, sampler = make(decoders.array_over_view)
    for ids, fields in data.loader(sampler, workers, collate_fn=decoders.as_dict):
        assert fields["x"][:, 0].tolist() == ids.tolist()


@pytest.mark.parametrize("workers", [0, 1])
def test_an_empty_part_of_a_batch_has_empty_fields(door, workers):
    data, sampler = make(decoders.array_over_view, batch_size=2, rank=2, world_size=3)
    *_, (ids, x, y) = data.loader(sampler, workers)
    assert (ids.shape, x.shape, y.shape) == ((0,), (0, 50), (0,))


def test_state_counts_what_was_handed_out_not_what_was_prefetched(door):
    data, sampler = make(decoders.first_byte, batch_size=1)
    loader = data.loader(sampler, num_workers=2)
    coming = iter(loader)
    for _ in range(3):
        next(coming)
    door.wait(lambda: len(door.seen(GET)) > 4)
    state = sampler.state_dict()
    assert (state["epoch"], state["batch"]) == (0, 3)
    sampler.load_state_dict(state)
    assert [rows(b) for b in data.loader(sampler, num_workers=2)] == expected(
        door, sampler, 0
    )[3:]
    assert sampler.batch == 20
    state = sampler.state_dict()
    assert (state["epoch"], state["batch"]) == (1, 0)
    assert door.seen(8) == [(0, 0, 3), (0, 0, 20)]


def test_a_plain_dataloader(door):
    data, sampler = make(decoders.first_byte)
    loader = DataLoader(data, sampler=sampler, batch_size=None)
    assert [rows(batch) for batch in loader] == expected(door, sampler, 0)
    assert len(door.seen(GET)) == 5
    assert sampler.batch == 5


def test_items_of_a_batch_as_torch_2_asks_for_them(door):
    data, sampler = make(decoders.array_over_view)
    for batch in sampler:
        items = data.__getitems__(batch)
        assert [(id, x.tolist()) for id, x, _ in items] == [(id, [id] * 50) for id in batch]
        del items
    assert len(door.seen(GET)) == 5
    assert [item[0] for item in data.__getitems__([3, 1])] == [3, 1]


def test_one_sample_is_read_from_storage(door):
    data, sampler = make(decoders.content)
    assert len(data) == 20 and data.classes == ["c0", "c1"] and data.labels[19] == 1
    assert data[3] == (3, door.data[0].bytes[3], 0)
    assert list(data) == [(i, door.data[0].bytes[i], door.data[0].labels[i]) for i in range(20)]
    assert not door.seen(GET)
    for id in (20, -1):
        with pytest.raises(IndexError):
            data[id]
    with pytest.raises(ValueError, match="a batch of data set 'train' was asked of 'test'"):
        rankpool.Dataset("test")[next(iter(sampler))]


def test_a_spawned_worker_reads_storage_when_the_cache_died_before_it_began(door):
    data, sampler = make(decoders.first_byte)
    next(iter(sampler))
    sampler.set_epoch(0)
    door.kill()
    loader = data.loader(sampler, num_workers=1, multiprocessing_context="spawn")
    assert [rows(batch) for batch in loader] == expected(door, sampler, 0)


def test_training_and_test_data_in_one_loop(door):
    train, sampler = make(decoders.first_byte)
    test, in_order = make(decoders.first_byte, split="test", sampler="sequential")
    pairs = (train, sampler), (test, in_order)
    loaders = [
        data.loader(s, num_workers=1, persistent_workers=True) for data, s in pairs
    ]
    for epoch in range(2):
        sampler.set_epoch(epoch)
        in_order.set_epoch(epoch)
        assert [rows(b) for b in loaders[0]] == expected(door, sampler, epoch)
        assert [b[0].tolist() for b in loaders[1]] == [[0, 1, 2, 3], [4, 5, 6]]
    del loaders


def test_losses_are_reported_from_the_loop(door):
    data, sampler = make(decoders.first_byte)
    for ids, *_ in data.loader(sampler, num_workers=2):
        sampler.report(ids, torch.nn.Parameter(ids * 0.5))
        assert sampler.weights(ids).tolist() == [1.0] * 4
    door.wait(lambda: len(door.seen(REPORT)) == 5)
    assert [r[3] for r in door.seen(REPORT)] == [
        [i / 2 for i in b] for b in plan(door, 0, sampler.spec._asdict(), 0)
    ]
