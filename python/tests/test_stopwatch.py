"""How long training waits, as the client tells the cache, beside a stopwatch of the script."""

import time
import warnings

import pytest
from torch.utils.data import DataLoader

import rankpool
from decoders import is_sample
from rankpool.wire import NOT_MEASURED

GET, RELEASE, HELLO = 4, 6, 1
READ_SECONDS = 0.03  # of a sample, so that training waits for most of its time
STEP_SECONDS = 0.01
# A busy machine may stop the process between the two stopwatches.
SHARE, SLACK_SECONDS = 0.05, 0.1
WAYS = {
    "0": {"num_workers": 0},
    "1": {"num_workers": 1},
    "4": {"num_workers": 4},
    "persistent": {"num_workers": 2, "persistent_workers": True},
}


def slow(path):
    time.sleep(READ_SECONDS)
    return len(path)


def read(path):
    with open(path, "rb") as file:
        return file.read()


def slow_view(view, label):
    time.sleep(READ_SECONDS)
    return len(view)


def drop_in(make):
    def loader(door, world, rank, way):
        data = rankpool.DatasetFolder(
            door.data[0].root, loader=lambda path: slow(read(path)), is_valid_file=is_sample
        )
        sampler = make(data, world, rank)
        return sampler, DataLoader(data, batch_size=4, sampler=sampler, **way)

    return loader


def batch_sampler(door, world, rank, way):
    data = rankpool.Dataset(transform=slow_view)
    sampler = rankpool.BatchSampler(data, 4, sampler="torch", world_size=world, rank=rank)
    return sampler, DataLoader(data, batch_sampler=sampler, **way)


def own_loader(door, world, rank, way):
    data = rankpool.Dataset(transform=slow_view)
    sampler = rankpool.BatchSampler(data, 4, sampler="torch", world_size=world, rank=rank)
    return sampler, data.loader(sampler, **way)


SCRIPTS = {
    "distributed": drop_in(lambda data, n, k: rankpool.DistributedSampler(data, n, k)),
    "local": drop_in(lambda data, n, k: rankpool.DistributedSampler(data, n, k, assign="local")),
    "importance": drop_in(lambda data, n, k: rankpool.ImportanceSampler(data, "torch", 0, n, k)),
    "batches": batch_sampler,
    "own": own_loader,
}
CASES = [("distributed", world, way) for world in (1, 2) for way in WAYS]
CASES += [("local", 1, "1"), ("importance", 1, "4"), ("batches", 1, "0"), ("batches", 1, "1")]
CASES += [("own", 1, way) for way in WAYS]


def told(door, trainer, epoch):
    """Returns the newest tallies of an epoch, of a trainer and its workers, by connection."""
    mine = {r.connection for r in door.requests if r.kind == HELLO and r.values[1] == trainer}
    tallies = [
        (r.connection, r.values[-1])
        for r in door.requests
        if r.kind in (GET, RELEASE) and r.connection in mine
    ]
    return {owner: tally for owner, tally in tallies if tally["epoch"] == epoch}


def trained(loader):
    """Returns the seconds in iter(), in next() that returned a batch, and from iter() to the last
    batch."""
    began = time.perf_counter()
    batches = iter(loader)
    making = time.perf_counter() - began
    waited = seconds = 0.0
    while True:
        at = time.perf_counter()
        if next(batches, None) is None:
            return making, waited, seconds
        now = time.perf_counter()
        waited, seconds = waited + now - at, now - began - making
        time.sleep(STEP_SECONDS)


def agree(microseconds, seconds, making):
    """Returns whether a measured time is the script's, with or without the part of iter() in which
    the plan is made."""
    least, most = seconds * (1 - SHARE), (seconds + making) * (1 + SHARE)
    return least - SLACK_SECONDS <= microseconds / 1e6 <= most + SLACK_SECONDS


@pytest.mark.parametrize("script, world, way", CASES)
def test_waiting_is_what_the_script_measures(door, script, world, way):
    warnings.filterwarnings("ignore", message="This DataLoader will create")
    for rank in range(world):
        sampler, loader = SCRIPTS[script](door, world, rank, WAYS[way])
        for epoch in range(2):
            sampler.set_epoch(epoch)
            making, waited, seconds = trained(loader)

            def right():
                tallies = told(door, rank, epoch).values()
                measured = [t["stall_us"] for t in tallies if t["stall_us"] != NOT_MEASURED]
                assert len(measured) == len(tallies)
                longest = max(t["elapsed_us"] for t in tallies)
                return agree(sum(measured), waited, making) and agree(longest, seconds, making)

            door.wait(right)
        del loader


def test_who_measures_nothing_says_so(door):
    """Ids that no DataLoader asks for: nobody knows when training waits for their samples."""
    data = rankpool.DatasetFolder(door.data[0].root, loader=read, is_valid_file=is_sample)
    sampler = rankpool.DistributedSampler(data, 1, 0, batch_size=4)
    assert len(list(sampler)) == 20
    door.wait(lambda: [t["stall_us"] for t in told(door, 0, 0).values()] == [NOT_MEASURED])
    list(DataLoader(data, batch_size=4, sampler=sampler))  # now a DataLoader does
    door.wait(lambda: 0 < max(t["stall_us"] for t in told(door, 0, 0).values()) < NOT_MEASURED)
