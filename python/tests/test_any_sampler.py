"""The orders of a script's own samplers, which it hands in, with and without a cache."""

import itertools
import random

import numpy
import pytest
import torch
from torch.utils.data import (
    BatchSampler, DataLoader, RandomSampler, Sampler, SequentialSampler, Subset, TensorDataset,
    WeightedRandomSampler, random_split,
)
from torch.utils.data import DistributedSampler as TorchSampler

import rankpool
from rankpool import wire
from test_dropin import data_of, no_cache, served, states, tree  # noqa: F401

GET, PLAN, OPEN, LIST, RELEASE = 4, 3, 2, 11, 6
FULL, AHEAD, CONFIRMED = "full", "ahead", "confirmed"


class Repeated(Sampler):
    """Each sample three times, as for repeated augmentation; every trainer has a part."""

    def __init__(self, data):
        self.data, self.epoch = data, 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __len__(self):
        return len(self.data)

    def __iter__(self):
        generator = torch.Generator()
        generator.manual_seed(self.epoch)
        order = torch.randperm(len(self.data), generator=generator).tolist()
        return iter([i for i in order for _ in range(3)][: len(self)])


class Buckets(Sampler):
    """Batches of different sizes, of samples of like length."""

    def __init__(self, data):
        self.lengths = [i * 7 % 11 for i in range(len(data))]

    def __len__(self):
        return 6

    def __iter__(self):
        order = sorted(range(20), key=self.lengths.__getitem__)
        sizes = [1, 6, 2, 5, 2, 4]
        ends = list(itertools.accumulate(sizes, initial=0))
        batches = [order[a:b] for a, b in zip(ends, ends[1:])]
        random.shuffle(batches)
        yield from batches


class Endless(Sampler):
    """Counts from the end, for ever."""

    def __init__(self, data):
        pass

    def __iter__(self):
        return ([-i, -i - 1] for i in itertools.cycle(range(1, 20)))


SAMPLERS = {
    "shuffle": lambda data: {"batch_size": 3, "shuffle": True},
    "sequential": lambda data: {"batch_size": 3, "drop_last": True},
    "random": lambda data: {
        "batch_size": 3, "sampler": RandomSampler(data, replacement=True, num_samples=31)
    },
    "weighted": lambda data: {
        "batch_size": 3, "sampler": WeightedRandomSampler([i + 1.0 for i in range(20)], 20)
    },
    "repeated": lambda data: {"batch_size": 3, "sampler": Repeated(data)},
    "buckets": lambda data: {"batch_sampler": Buckets(data)},
    "torch": lambda data: {"batch_size": 3, "sampler": TorchSampler(data, 3, 1, seed=4)},
    "single": lambda data: {"batch_size": None, "sampler": RandomSampler(data)},
}  # fmt: skip


def seed():
    torch.manual_seed(5), random.seed(5), numpy.random.seed(5)


def ids_of(rows):
    """Returns the ids of a batch, or of what is none."""
    return rows[:, 0].int().tolist() if rows.dim() > 1 else [int(rows[0])]


def epochs_of(data, make, epochs=3, **options):
    """Returns the ids of each batch of each epoch, and the script's generators afterwards."""
    seed()
    chosen, found = make(data), []
    loader = DataLoader(data, **chosen, **options)
    for epoch in range(epochs):
        if hasattr(chosen.get("sampler"), "set_epoch"):
            chosen["sampler"].set_epoch(epoch)
        found.append([ids_of(rows) for rows, _ in loader])
    return found, states()


def handed_in(door):
    """Returns how each epoch was handed in."""
    return [
        (epoch, AHEAD if ahead else FULL if total else CONFIRMED)
        for _, epoch, ahead, total, _, _ in door.seen(LIST)
    ]


@pytest.mark.parametrize("name", SAMPLERS)
@pytest.mark.parametrize("workers", [0, 2])
def test_batches_are_those_of_the_script(door, served, tree, capfd, name, workers):
    found = epochs_of(data_of(served, rng=None), SAMPLERS[name], num_workers=workers)
    assert "rankpool:" not in capfd.readouterr().err
    expected = epochs_of(data_of(tree, rng=None), SAMPLERS[name], num_workers=workers)
    assert found == expected
    for epoch, batches in enumerate(found[0]):
        assert door.listed[epoch] == (batches, True)
        gets = [get[2] for get in door.seen(GET) if get[1] == epoch]
        assert sorted(gets) == list(range(len(batches)))
    with_epoch = name in ("repeated", "torch")
    ways = [(0, FULL), (1, AHEAD), (1, CONFIRMED), (2, AHEAD), (2, CONFIRMED), (3, AHEAD)]
    assert handed_in(door) == (ways if with_epoch else [(e, FULL) for e in range(3)])
    assert {tally["stall_us"] < wire.NOT_MEASURED for _, tally in door.seen(RELEASE)} <= {True}


@pytest.mark.parametrize("name", ["repeated", "buckets"])
def test_planned_in_the_script(door, served, name):
    """The same samplers, by name."""
    data = data_of(served)
    chosen = SAMPLERS[name](data)
    sampler = chosen.pop("batch_sampler", None) or chosen["sampler"]
    batches = rankpool.planned(sampler, data, chosen.get("batch_size"))
    assert len(batches) == 7 if name == "repeated" else 6
    loader = DataLoader(data, batch_sampler=batches)
    seed()
    found = [[ids_of(rows) for rows, _ in loader] for _ in range(2)]
    assert found == epochs_of(data_of(served), SAMPLERS[name], 2)[0] or name == "repeated"
    assert [door.listed[epoch][0] for epoch in range(2)] == found


@pytest.mark.parametrize("name", SAMPLERS)
def test_the_loader_takes_and_yields_what_torchs_does(door, served, tree, name):
    found = []
    for make, data in (rankpool.loader, data_of(served)), (DataLoader, data_of(tree)):
        seed()
        chosen = SAMPLERS[name](data)
        loader = make(data, chosen.pop("batch_size", 1), chosen.pop("shuffle", None), **chosen)
        assert type(loader) is DataLoader
        found.append([ids_of(rows) for rows, _ in loader])
    assert found[0] == found[1] == door.listed[0][0]
    assert {tally["stall_us"] < wire.NOT_MEASURED for _, tally in door.seen(RELEASE)} == {True}


def test_the_loader_over_data_that_are_not_ours():
    loaders = [make(TensorDataset(torch.arange(5)), 2) for make in (rankpool.loader, DataLoader)]
    assert [[row.tolist() for row, in loader] for loader in loaders] == [[[0, 1], [2, 3], [4]]] * 2


def test_what_nobody_can_plan(tree):
    data = data_of(tree)
    with pytest.raises(TypeError, match="planned draws from"):
        rankpool.planned(RandomSampler(data), [1, 2])
    with pytest.raises(ValueError, match="batch_size="):
        next(iter(rankpool.planned(RandomSampler(data), data)))


def test_other_data_sets_are_left_alone(door):
    loader = DataLoader(TensorDataset(torch.arange(5)), 2)
    iterator = iter(loader)
    assert type(iterator).__module__ == "torch.utils.data.dataloader"
    assert "Watched" not in [kind.__name__ for kind in type(iterator).__mro__]
    assert "_rankpool" not in vars(loader) and not door.requests


def test_a_script_that_never_calls_set_epoch(door, served, capfd):
    """It trains the same epoch again, which was not handed in ahead."""
    data = data_of(served)
    loader = DataLoader(data, 4, sampler=TorchSampler(data, 1, 0))
    found = [[ids_of(rows) for rows, _ in loader] for _ in range(3)]
    assert found[0] == found[1] == found[2] == door.listed[1][0]
    assert handed_in(door) == [(0, FULL), (1, AHEAD), (1, FULL), (2, FULL)]
    assert capfd.readouterr().err.count("has not drawn what set_epoch foretold") == 1


def test_subsets(door, served, tree):
    """Also of subsets, and with a sampler of ours."""
    part = Subset(Subset(data_of(served), torch.arange(19, 4, -1)), [3, 1, 2, 14])
    seed()
    loader = DataLoader(part, 2, shuffle=True)
    found = [ids_of(rows) for rows, _ in loader]
    assert sorted(sum(found, [])) == [5, 16, 17, 18] and door.listed[0] == (found, True)
    assert loader.dataset is part and isinstance(loader.sampler, RandomSampler)
    seed()
    assert found == [
        ids_of(rows) for rows, _ in DataLoader(Subset(data_of(tree), [16, 18, 17, 5]), 2, True)
    ]
    part, _ = random_split(data_of(served), [9, 11])
    sampler = rankpool.DistributedSampler(part, 1, 0)
    found = [ids_of(rows) for rows, _ in DataLoader(part, 2, sampler=sampler)]
    assert sum(found, []) == [part.indices[i] for i in TorchSampler(part, 1, 0)]
    assert door.listed[1] == (found, True)


def test_a_sampler_without_a_length_is_drawn_by_blocks(door, served):
    data = data_of(served)
    loader = DataLoader(data, batch_sampler=Endless(data))
    found = [ids_of(rows) for rows, _ in itertools.islice(loader, 130)]
    drawn = [[i % 20 for i in batch] for batch in itertools.islice(Endless(data), 192)]
    assert found == drawn[:130]
    assert [door.listed[n][0] for n in range(3)] == [drawn[:64], drawn[64:128], drawn[128:]]


def test_an_epoch_of_many_parts(door, served):
    door.most, loader = 12, DataLoader(data_of(served), 2)
    assert sum([ids_of(rows) for rows, _ in loader], []) == list(range(20))
    assert [len(door.listed[n][0]) for n in range(4)] == [3, 3, 3, 1]


def test_the_cache_is_restarted_in_mid_epoch(door, served):
    data = data_of(served)
    loader = DataLoader(data, 2, sampler=TorchSampler(data, 1, 0))
    found = []
    for rows, _ in loader:
        found.append(ids_of(rows))
        if len(found) == 5:
            door.kill()
            door.requests.clear()
            door.start()
    assert found == door.listed[0][0] and handed_in(door)[:2] == [(0, FULL), (1, AHEAD)]
    assert [get[2] for get in door.seen(GET)] == [6, 7, 8, 9]  # 5 was read from storage


def test_the_cache_is_away_when_an_epoch_begins(door, served, tree):
    data = data_of(served)
    loader, found = DataLoader(data, 2, shuffle=True), []
    seed()
    for epoch in range(3):
        for number, (rows, _) in enumerate(loader):
            found.append(ids_of(rows))
            if (epoch, number) == (0, 9):
                door.kill()
            if (epoch, number) == (1, 4):
                door.start()
    seed()
    plain = DataLoader(data_of(tree), 2, shuffle=True)
    assert found == [ids_of(rows) for _ in range(3) for rows, _ in plain]
    assert found[10:20] == door.listed[1][0] and found[20:] == door.listed[2][0]


def test_trainers_that_do_not_come(door, served, capfd):
    """A trainer that iterates alone reads storage; when all come, they count alike."""
    data = data_of(served)
    loader, door.missing = DataLoader(data, 4), "RANK 1 is missing"
    for _ in range(2):
        assert sum([ids_of(rows) for rows, _ in loader], []) == list(range(20))
    assert capfd.readouterr().err.count("RANK 1 is missing") == 1
    assert {entry[0] for entry in handed_in(door)} == {0}
    door.missing = None
    assert len([rows for rows, _ in loader]) == 5
    assert {plan[1] for plan in door.seen(PLAN)} == {0}


def test_a_trainer_that_always_iterates_alone(door, served, capfd):
    """It waits for the others in epochs 0, 1, 4 and 11, and reads storage in all."""
    loader, door.missing = DataLoader(data_of(served), 4), "RANK 1 is missing"
    waited = []
    for _ in range(12):
        before = len(door.seen(PLAN))
        assert sum([ids_of(rows) for rows, _ in loader], []) == list(range(20))
        waited.append(len(door.seen(PLAN)) - before)
    assert waited == [1, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 1]
    # no rank knows these epochs, so nothing is counted there
    assert not door.seen(GET) and not door.seen(6)
    assert capfd.readouterr().err.count("RANK 1 is missing") == 1


def test_an_epoch_that_others_began(door, served, monkeypatch):
    """They came when this trainer had drawn another order: that counts as the next epoch."""
    data, take = data_of(served), door._answer_11

    def first_come(values, streams, who):
        if values[1] == 0:
            door.listed[0] = [[1], [2]], True
            return 111, b""
        return take(values, streams, who)

    monkeypatch.setattr(door, "_answer_11", first_come)
    assert sum([ids_of(rows) for rows, _ in DataLoader(data, 4)], []) == list(range(20))
    assert [plan[1] for plan in door.seen(PLAN)] == [0, 1] and door.seen(GET)[0][1] == 1


def test_a_list_that_is_refused(door, served, capfd):
    door.refuses_lists = True
    for _ in range(2):
        found = [ids_of(rows) for rows, _ in DataLoader(data_of(served), 4)]
        assert sum(found, []) == list(range(20))
    assert capfd.readouterr().err.count("is read from storage for now: refused") == 1
    assert not door.seen(GET)


def test_plain_loaders_and_samplers_of_ours(door, served, capfd):
    """Which train on the data, whether or not a plain loader came first; after them, it reads
    storage."""
    data = data_of(served)
    next(iter(DataLoader(data, 4)))
    ours = DataLoader(data, 4, sampler=rankpool.DistributedSampler(data, 1, 0))
    assert len(list(ours)) == 5
    assert [(spec["sampler"], spec.get("job", "")) for spec in door.seen(OPEN)][-2:] == [
        ("listed", ""), ("torch", "torch"),
    ]
    gets = len(door.seen(GET))
    assert len(list(DataLoader(data, 4))) == 5 and len(door.seen(GET)) == gets
    assert "one by one: a sampler of rankpool" in capfd.readouterr().err


def test_a_plain_loader_beside_a_batch_sampler(door, served, capfd):
    rankpool.BatchSampler(rankpool.Dataset("train"), 4)
    assert len(list(DataLoader(data_of(served), 4))) == 5 and not door.seen(GET)
    assert "is read from storage for now: this process trains" in capfd.readouterr().err


def test_trainers_may_have_what_is_in_their_memory(door, served, monkeypatch):
    """The cache decides who has which part of a global batch, and training waits for it."""
    data = data_of(served)
    batches = rankpool.planned(TorchSampler(data, 1, 0), data, 3, assign="local")
    loader = DataLoader(data, batch_sampler=batches, num_workers=2)
    for epoch in range(2):
        batches.set_epoch(epoch)
        found = [ids_of(rows) for rows, _ in loader]
        assert found == [batch[::-1] for batch in door.listed[epoch][0]]
    assert handed_in(door) == [(0, FULL), (1, AHEAD), (1, CONFIRMED), (2, AHEAD)]
    monkeypatch.setenv("RANKPOOL_PLAN_TIMEOUT", "0.2")
    door.kill()
    with pytest.raises(rankpool.CacheAwayError, match="to plan what is handed in as epoch 2"):
        list(loader)
    with pytest.raises(ValueError, match="assign must be"):
        rankpool.planned(TorchSampler(data, 1, 0), data, 3, assign="node")


def test_nobody_measures_what_no_loader_iterates(door, served, capfd):
    data = data_of(served)
    for ids in rankpool.planned(SequentialSampler(data), data, 4):
        assert [int(item[0][0]) for item in data.__getitems__(ids)] == ids
    assert capfd.readouterr().err.count("waiting may not be measured") == 1
    assert [get[2] for get in door.seen(GET)] == [0, 1, 2, 3, 4]


# --- checkpoints ---


def resumable(data, kind, world=1, rank=0):
    generator = torch.Generator()
    generator.manual_seed(world * 100 + rank)
    sampler = (
        RandomSampler(data, generator=generator)
        if kind == "random"
        else TorchSampler(data, world, rank, seed=2)
    )
    batches = rankpool.planned(BatchSampler(sampler, 4 // world, False), data)
    return sampler, batches


@pytest.mark.parametrize("cached", [False, True])
@pytest.mark.parametrize("kind, worlds", [("random", [1]), ("torch", [1, 2])])
def test_resumes_in_mid_epoch(request, tree, cached, kind, worlds):
    door = request.getfixturevalue("door") if cached else None
    data = data_of(door.data[0].root if cached else tree)
    sampler, batches = resumable(data, kind)
    loader, whole, saved = DataLoader(data, batch_sampler=batches, num_workers=2), [], []
    saved.append(None)
    for epoch in range(3):
        batches.set_epoch(epoch)
        for rows, _ in loader:
            whole.append(ids_of(rows))
            saved.append(batches.state_dict())
    assert [(s["epoch"], s["batch"]) for s in saved[1:7]] == [
        (0, 1), (0, 2), (0, 3), (0, 4), (1, 0), (1, 1)
    ]
    for cut, world in itertools.product((3, 5, 7), worlds):
        parts = []
        for rank in range(world):
            _, again = resumable(data, kind, world, rank)
            again.load_state_dict(saved[cut])
            assert again.state_dict() == saved[cut]
            loader = DataLoader(data, batch_sampler=again)
            found = []
            for epoch in range(saved[cut]["epoch"], 3):
                again.set_epoch(epoch)
                found += [ids_of(rows) for rows, _ in loader]
            parts.append(found)
        joined = [[i for pair in zip(*batch) for i in pair] for batch in zip(*parts)]
        assert joined == whole[cut:]


def test_a_state_of_other_samplers_is_refused(tree):
    data = data_of(tree)
    _, batches = resumable(data, "torch")
    with pytest.raises(ValueError, match="not that of these samplers"):
        batches.load_state_dict({"epoch": 1, "batch": 2, "samplers": []})


def test_a_loader_that_is_not_torchs_counts_itself(tree):
    _, batches = resumable(data_of(tree), "torch")
    assert batches.state_dict() == {"epoch": 0, "batch": 0, "samplers": [{}, {}]}
    drawn = list(batches)
    left = iter(batches)
    assert [next(left), next(left)] == drawn[:2]
    _, again = resumable(data_of(tree), "torch")
    again.load_state_dict(batches.state_dict())
    assert list(again) == drawn[2:]
