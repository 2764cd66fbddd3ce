"""The drop-in classes with a plain torch DataLoader, with and without a cache."""

import copy
import mmap
import os
import pickle
import random
import shutil
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import islice, product

import numpy
import pytest
import torch
import torchvision.datasets
from torch.utils.data import (
    BatchSampler, ConcatDataset, DataLoader, RandomSampler, Subset, random_split,
)
from torch.utils.data import DistributedSampler as TorchSampler

import rankpool
from dataset_tree import make_tree, write_index
from decoders import (
    augment, augment_normal, augment_target, is_sample, read_file, read_mapped, read_past_python,
)
from rankpool import seeding
from rankpool.map_dataset import Served

GET, PLAN, OPEN, REPORT = 4, 3, 2, 5
WAYS = [
    {"num_workers": 0},
    {"num_workers": 1},
    {"num_workers": 2, "multiprocessing_context": "fork"},
    {"num_workers": 2, "persistent_workers": True},
    {"num_workers": 2, "multiprocessing_context": "spawn", "persistent_workers": True},
    {
        "num_workers": 1, "multiprocessing_context": "forkserver", "persistent_workers": True,
        "prefetch_factor": 4,
    },
]
NAMES = ["none", "one", "fork", "persistent", "spawn", "forkserver"]
EACH = [pytest.param(1, way, id=f"1-{name}") for way, name in zip(WAYS, NAMES)]
EACH += [
    pytest.param(world, way, id=f"{world}-{name}")
    for world in (2, 4)
    for way, name in zip(WAYS[:3], NAMES)
]


@pytest.fixture(autouse=True)
def no_cache(monkeypatch):
    """No cache, unless the fixture door provides one."""
    monkeypatch.setattr("rankpool.messages._said", mmap.mmap(-1, 1 << 16))
    rankpool.map_dataset.claimed.clear()
    for name in ("RANKPOOL_SOCKET", "RANKPOOL_SESSION", "RANK", "WORLD_SIZE", "SLURM_JOB_ID"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def tree(tmp_path):
    """A root of 20 samples that no cache serves."""
    make_tree(str(tmp_path / "tree"))
    return str(tmp_path / "tree")


def data_of(root, **options):
    return rankpool.DatasetFolder(
        root, **{"loader": read_file, "is_valid_file": is_sample, "transform": augment, **options}
    )


def epochs_of(data, world=1, batch_size=4, epochs=2, sampler=None, **options):
    """Returns, for each global batch of each epoch, the rows of all trainers, in the order of the
    sampler's draws."""
    found = []
    for rank in range(world):
        draws = (sampler or rankpool.DistributedSampler)(data, world, rank, seed=3)
        loader = DataLoader(data, batch_size=batch_size // world, sampler=draws, **options)
        for epoch in range(epochs):
            draws.set_epoch(epoch)
            for number, (rows, _) in enumerate(loader):
                found.append((epoch, number, range(rank, 100, world), rows))
        del loader
    return sorted(
        (e, n, place, tuple(row.tolist()))
        for e, n, places, rows in found
        for place, row in zip(places, rows)
    )


# --- without a cache ---


def test_a_folder_is_what_torchvision_finds(tree):
    os.makedirs(os.path.join(tree, "c0", "deep"))
    for name in ("c0/deep/s900", "c0/.s901", "c1/t"):
        open(os.path.join(tree, name), "w").close()
    data = data_of(tree, is_valid_file=lambda path: "t" != os.path.basename(path))
    names = (
        [f"c0/s{i:03}" for i in range(10)]
        + ["c0/deep/s900"]
        + [f"c1/s{i:03}" for i in range(10, 20)]
    )
    names.insert(0, "c0/.s901")
    assert data.samples == [(os.path.join(tree, name), int(name[1])) for name in names]
    assert data.targets == [0] * 12 + [1] * 10 and len(data) == 22
    assert (data.classes, data.class_to_idx) == (["c0", "c1"], {"c0": 0, "c1": 1})


def test_images(tree):
    from PIL import Image

    for i in range(3):
        Image.new("L", (2 + i, 5), 100 + i).save(os.path.join(tree, "c1", f"{i}.PNG"))
        Image.new("RGB", (2, 2)).save(os.path.join(tree, "c0", f"{i}.jpeg"))
    data = rankpool.ImageFolder(
        tree, transform=lambda image: (image.mode, image.size, image.getpixel((0, 0)))
    )
    assert [data[i] for i in (3, 4, 5)] == [
        (("RGB", (2 + i, 5), (100 + i,) * 3), 1) for i in range(3)
    ]
    assert data.imgs == data.samples and len(data) == 6


@pytest.mark.parametrize("wrong", [{"is_valid_file": None}, {"extensions": ".x"}, {"rng": "batch"}])
def test_options_that_make_no_sense(tree, wrong):
    with pytest.raises(ValueError):
        data_of(tree, **wrong)


def test_a_class_without_samples_is_an_error(tree):
    os.makedirs(os.path.join(tree, "c2"))
    with pytest.raises(FileNotFoundError, match="no valid file for the classes c2"):
        data_of(tree)


@pytest.mark.parametrize("world, way", EACH)
def test_tensors_depend_on_seed_epoch_and_sample_only(tree, way, world):
    rows = epochs_of(data_of(tree), world, **way)
    again = epochs_of(data_of(tree))
    assert rows == again
    assert len({row[3][2:] for row in rows}) == 40


def test_a_sample_that_is_drawn_twice_is_another_one_each_time(tree):
    """20 samples for 3 trainers: torch draws the first one again."""
    rows = [row[3] for row in epochs_of(data_of(tree), 3, 3, epochs=1)]
    assert len(rows) == 21 and len({row[0] for row in rows}) == 20 and len(set(rows)) == 21


def test_ids_and_order_are_those_of_torch(tree):
    """Every combination of the arguments."""
    for size in (0, 1, 6, 20):
        data = data_of(tree)
        data.samples = data.samples[:size]
        for world, shuffle, drop_last in product((1, 2, 3, 7, 25), (True, False), (True, False)):
            for rank in range(0, world, 6):
                options = {"shuffle": shuffle, "drop_last": drop_last, "seed": size}
                ours = rankpool.DistributedSampler(data, world, rank, **options)
                theirs = TorchSampler(data, world, rank, **options)
                for epoch in range(2):
                    ours.set_epoch(epoch), theirs.set_epoch(epoch)
                    assert list(ours) == list(theirs) and len(ours) == len(theirs)


@pytest.mark.parametrize("shuffle", [True, False])
@pytest.mark.parametrize("drop_last", [True, False])
def test_batches_are_those_of_torch(door, served, tree, drop_last, shuffle):
    """The door knows no others. Nothing but the first sampler of a process is trained on."""
    data, options = data_of(served), {"shuffle": shuffle, "drop_last": drop_last}
    files = data_of(tree)
    for world, size, whole in product((1, 3, 7, 25), (1, 2, 4, 21), (True, False)):
        samplers = rankpool.DistributedSampler(data, world, 0, **options), TorchSampler(
            data, world, 0, **options
        )
        found = []
        for sampler, samples in zip(samplers, (data, files)):
            sampler.set_epoch(1)
            loader = DataLoader(samples, size, sampler=sampler, drop_last=whole)
            found.append([rows[:, 0].tolist() for rows, _ in loader])
            assert len(loader) == len(found[-1])
            rankpool.training.identities(door.path).first.clear()
        assert found[0] == found[1]


def test_one_process_is_one_replica(tree, monkeypatch):
    data = data_of(tree)
    sampler = rankpool.DistributedSampler(data)
    assert (sampler.num_replicas, sampler.rank) == (1, 0)
    assert list(sampler) == list(TorchSampler(data, 1, 0))
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert list(rankpool.DistributedSampler(data)) == list(TorchSampler(data, 2, 1))


@pytest.mark.parametrize("cached", [False, True])
def test_a_loader_shuffles_without_a_sampler(request, tree, cached, capfd):
    """As in torch: the order, and with rng=None the random numbers too, are the script's own."""
    root = request.getfixturevalue("door").data[0].root if cached else tree

    def rows(**options):
        torch.manual_seed(5), random.seed(5), numpy.random.seed(5)
        loader = DataLoader(data_of(root, **options), 4, shuffle=True, sampler=None)
        return [row for _ in range(2) for rows, _ in loader for row in rows.tolist()]

    found = rows(rng=None)
    torch.manual_seed(5)
    ids = [int(i) for batch in DataLoader(range(20), 4, shuffle=True) for i in batch]
    assert found == rows() and [row[0] for row in found[:20]] == ids
    assert "one by one" not in capfd.readouterr().err


def states():
    return (
        random.getstate(), str(numpy.random.get_state(legacy=False)),
        torch.get_rng_state().tolist(),
    )


@pytest.mark.parametrize("normal", [0, 1, 2])
def test_the_scripts_own_random_numbers_go_on(tree, normal):
    """NumPy makes normal numbers in pairs, and may have one left."""
    data = data_of(tree)
    sampler = rankpool.DistributedSampler(data, 1, 0)
    random.random(), numpy.random.random(), torch.rand(1), numpy.random.normal(size=normal)
    before = states()
    data[next(iter(sampler))]
    data.__getitems__(list(sampler))
    assert states() == before
    data_of(tree, transform=augment_normal)[next(iter(sampler))]
    assert states() == before
    data = data_of(tree, rng=None)
    data[next(iter(sampler))]
    assert all(a != b for a, b in zip(states(), before))


@pytest.mark.parametrize("by_batches", [True, False])
def test_the_scripts_random_numbers_go_on_between_batches(tree, monkeypatch, by_batches):
    """The generators are saved once per batch, or per sample where torch asks for them one by
    one."""
    if not by_batches:
        monkeypatch.delattr(Served, "__getitems__")
    kept = []
    monkeypatch.setattr("rankpool.map_dataset.keep", lambda: kept.append(1) or seeding.keep())
    data = data_of(tree)
    loader = iter(DataLoader(data, batch_size=8, sampler=rankpool.DistributedSampler(data, 1, 0)))
    before = states()
    for number, _ in enumerate(loader):
        assert states() == before
        random.random(), numpy.random.random(), torch.rand(1)
        before = states()
    assert (number, len(kept)) == (2, 3 if by_batches else 20)


def fails_in_the_middle(content):
    random.random(), numpy.random.random(), torch.rand(1)
    if content[0] == 7:
        raise KeyError("decode")
    return content[0]


def test_a_transform_that_fails_leaves_the_scripts_random_numbers(tree, monkeypatch):
    monkeypatch.delattr(Served, "__getitems__")
    data = data_of(tree, transform=fails_in_the_middle)
    sampler = rankpool.DistributedSampler(data, 1, 0, shuffle=False)
    random.random(), numpy.random.random(), torch.rand(1)
    loader = iter(DataLoader(data, batch_size=20, sampler=sampler))
    before = states()
    with pytest.raises(KeyError):
        next(loader)
    assert states() == before


def test_target_transforms_are_seeded_too(tree):
    data = data_of(tree, target_transform=augment_target)
    indices = iter(rankpool.DistributedSampler(data, 1, 0))
    sent = pickle.dumps(next(indices))
    assert str(data[pickle.loads(sent)]) == str(copy.deepcopy(data)[pickle.loads(sent)])


class Views(torch.utils.data.Dataset):
    """Two views of each sample, as for contrastive training; the second one also through another
    data set."""

    def __init__(self, data):
        self.data, self.other = data, copy.deepcopy(data)

    def __len__(self):
        return len(self.data)

    def __getitem__(self, index):
        return torch.stack([d[index][0] for d in (self.data, self.data, self.other)])


def views_of(root, cut=None, **options):
    """Returns the views that the last of 3 trainers gets in three passes: the first is over an
    epoch, two are over the next one. cut: training was resumed before this batch of the third
    pass."""
    data = Views(data_of(root))
    sampler, found = rankpool.DistributedSampler(data.data, 3, 2, shuffle=False), []
    loader = DataLoader(data, 2, sampler=sampler, **options)
    for number in range(3):
        if number < 2:
            sampler.set_epoch(number)
        for batch, views in enumerate(loader):
            found += views.tolist()
            if (number, batch + 1) == (2, cut):
                state = sampler.state_dict()
                sampler = rankpool.DistributedSampler(data.data, 3, 2, shuffle=False)
                sampler.load_state_dict(state)
                sampler.set_epoch(1)
                again = DataLoader(data, 2, sampler=sampler, **options)
                return found + [row for views in again for row in views.tolist()]
    return found


FOUR_WORKERS = {"num_workers": 4}, {"num_workers": 4, "persistent_workers": True}


@pytest.mark.parametrize("cached", [False, True])
def test_a_sample_that_is_read_again_is_another_one(request, tree, cached):
    """Read thrice for one draw, and in another pass: with any workers, and after a resume."""
    root = request.getfixturevalue("door").data[0].root if cached else tree
    rows = views_of(root)
    assert len({tuple(view) for row in rows for view in row}) == 3 * len(rows) == 3 * 3 * 7
    assert len({row[0][0] for row in rows}) == 7  # ids
    for way in (*WAYS[:2], *FOUR_WORKERS):
        assert views_of(root, **way) == rows
        for cut in (1, 3):
            assert views_of(root, cut, **way) == rows


def test_a_script_that_never_calls_set_epoch_stays_in_its_epoch(tree):
    sampler = rankpool.DistributedSampler(data_of(tree), 1, 0, seed=3)
    loader = DataLoader(sampler.dataset, 4, sampler=sampler)
    passes, states = [], []
    for _ in range(3):
        passes.append([rows.tolist() for rows, _ in loader])
        states.append(sampler.state_dict())
    assert [(s["epoch"], s["pass"], s["batch"]) for s in states] == [(0, n, 0) for n in (1, 2, 3)]
    other = rankpool.DistributedSampler(sampler.dataset, 1, 0, seed=3)
    other.load_state_dict(states[1])
    again = DataLoader(sampler.dataset, 4, sampler=other)
    assert [rows.tolist() for rows, _ in again] == passes[2]
    other.set_epoch(0)
    assert [rows.tolist() for rows, _ in again] == passes[0]


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("stage", ["loader", "transform"])
def test_the_error_of_a_loader_or_transform_names_the_file(door, stage, workers):
    data = data_of(door.data[0].root, **{stage: lambda given: given.nothing})
    sampler = rankpool.DistributedSampler(data, 1, 0, shuffle=False)
    with pytest.raises(Exception) as raised:
        list(DataLoader(data, 4, sampler=sampler, num_workers=workers))
    said = [str(raised.value), *getattr(raised.value, "__notes__", ())]
    assert f"rankpool: the sample is {data.samples[0][0]}" in "".join(said)


def test_a_sampler_made_for_each_pass_goes_on_with_the_passes(tree):
    """As an evaluation does that makes its own loader; set_epoch says which pass it is."""
    data, rows = data_of(tree), []
    for epoch in (None, None, 0, 0):
        sampler = rankpool.DistributedSampler(data, 1, 0, shuffle=False)
        if epoch is not None:
            sampler.set_epoch(epoch)
        found = DataLoader(data, 4, sampler=sampler, num_workers=1)
        rows.append([row for views, _ in found for row in views.tolist()])
    assert rows[0] == rows[2] == rows[3] and not set(map(tuple, rows[0])) & set(map(tuple, rows[1]))


def test_the_indices_of_a_message_know_one_batch(tree):
    data = data_of(tree)
    indices = list(rankpool.DistributedSampler(data, 1, 0))[:4]
    again = pickle.loads(pickle.dumps(indices))
    assert again == indices and len({id(index.batch) for index in again}) == 1
    assert [again[0].batch[index.place] for index in again] == indices


def test_subsets_and_other_samplers(tree):
    data = data_of(tree, transform=None)
    assert [x[0] for x, _ in Subset(data, [7, 3])] == [7, 3]
    sampler = RandomSampler(data, generator=torch.Generator().manual_seed(1))
    found = [
        x[0][0]
        for x, _ in DataLoader(data, 1, sampler=sampler, collate_fn=lambda items: (items[0], 0))
    ]
    assert sorted(found) == list(range(20)) and found != list(range(20))
    part = Subset(data, [7, 3, 9, 1])
    ids = list(rankpool.DistributedSampler(part, 2, 0))
    assert ids == list(TorchSampler(part, 2, 0)) and {type(id) for id in ids} == {int}


class WithIndex(rankpool.DatasetFolder):
    """Returns the index too, as many scripts do."""

    def __getitem__(self, index):
        return (*super().__getitem__(index), index)


@pytest.mark.parametrize("by_batches", [True, False])
@pytest.mark.parametrize("workers", [0, 1])
def test_a_class_that_derives_makes_its_own_items(tree, monkeypatch, workers, by_batches):
    if not by_batches:
        monkeypatch.delattr(Served, "__getitems__")
    data = WithIndex(tree, read_file, is_valid_file=is_sample, transform=augment)
    sampler = rankpool.DistributedSampler(data, 1, 0, seed=3)
    random.random(), numpy.random.random(), torch.rand(1)
    before = states()
    items = list(DataLoader(data, 4, sampler=sampler, num_workers=workers, generator=generator()))
    assert states() == before
    assert [int(i) for _, _, ids in items for i in ids] == list(sampler)
    found = [tuple(row.tolist()) for rows, _, _ in items for row in rows]
    assert found == [row[3] for row in epochs_of(data_of(tree), epochs=1)]


def generator():
    """Returns a generator, so that a DataLoader draws no number from the script's."""
    return torch.Generator().manual_seed(1)


@pytest.mark.parametrize("cached", [False, True])
def test_copies_of_a_sampler_that_was_iterated(request, tree, cached):
    door = request.getfixturevalue("door") if cached else None
    data = data_of(door.data[0].root if cached else tree)
    sampler = rankpool.DistributedSampler(data, 1, 0, seed=3)
    list(DataLoader(data, 4, sampler=sampler))
    others = copy.deepcopy(sampler), pickle.loads(pickle.dumps(sampler))
    rows = [x.tolist() for x, _ in DataLoader(data, 4, sampler=sampler)]
    for other in others:
        assert [x.tolist() for x, _ in DataLoader(other.dataset, 4, sampler=other)] == rows


# --- with a cache ---


@pytest.fixture
def served(door):
    """The root that the door serves."""
    return door.data[0].root


@pytest.mark.parametrize("world, way", EACH)
def test_batches_travel_as_batches(door, served, tree, way, world):
    rows = epochs_of(data_of(served), world, **way)
    assert rows == epochs_of(data_of(tree), world)
    gets = door.seen(GET)
    assert sorted(get[:3] for get in gets) == sorted(
        [(0, epoch, n) for epoch in range(2) for n in range(5)] * world
    )
    assert {spec["batch_size"] for spec in door.seen(OPEN)} == {4 // world}
    assert {spec["assign"] for spec in door.seen(OPEN)} == {"sampler"}
    assert len(door.seen(PLAN)) == 2 * world
    door.wait(lambda: not door.leases)


def test_batches_travel_as_batches_where_torch_asks_for_one_id_at_a_time(
    door, served, tree, monkeypatch
):
    """As torch 1.13 does."""
    monkeypatch.delattr(Served, "__getitems__")
    for way in WAYS[:3]:
        door.requests.clear()
        assert epochs_of(data_of(served), **way) == epochs_of(data_of(tree))
        assert len(door.seen(GET)) == 10


def test_the_list_of_samples_is_that_of_the_folder(door, served):
    data = data_of(served)
    assert data._data is not None
    assert (len(data), data.classes, data.targets) == (20, ["c0", "c1"], [0] * 10 + [1] * 10)
    assert data.samples == rankpool.DatasetFolder.make_dataset(
        served, data.class_to_idx, None, is_sample
    )
    assert data[4][0][0] == 4 and data[-1][0][0] == 19
    with pytest.raises(IndexError):
        data[20]


def all_of(data):
    return (
        repr(data), data.classes, data.class_to_idx, data.samples, data.targets,
        [data[i] for i in range(len(data))], data[-1],
    )


def plain(cls, root):
    return all_of(cls(root, read_file, is_valid_file=is_sample))


def paths_that_are_asked(cls, root):
    asked = []
    cls(root, read_file, is_valid_file=lambda path: asked.append(path) or os.path.getsize(path) > 0)
    return asked


def a_part(cls, root):
    return all_of(cls(root, read_file, None, len, hex, lambda path: path[-1] in "357"))


def changed_lists(cls, root):
    data = cls(root, read_file, is_valid_file=is_sample)
    data.samples = data.imgs = [(path, label + 5) for path, label in data.samples]
    relabelled = all_of(data), data.imgs
    data.samples.reverse()
    reversed = all_of(data), data.imgs
    data.samples = data.samples[3:7]
    return relabelled, reversed, all_of(pickle.loads(pickle.dumps(data))), len(data.imgs)


def hooks(cls, root):
    class Own(cls):
        def find_classes(self, directory):
            return ["c1", "c0"], {"c1": 7, "c0": 7}

    class More(Own):
        @staticmethod
        def make_dataset(directory, class_to_idx, *args, **options):
            found = cls.make_dataset(directory, class_to_idx, *args, **options)
            return [(path, str(number)) for path, number in found if "s003" not in path]

    return [all_of(own(root, read_file, is_valid_file=is_sample)) for own in (Own, More)]


def one_class(cls, root):
    class Own(cls):
        def find_classes(self, directory):
            return ["c1"], {"c1": 0}

    return all_of(Own(root, read_file, is_valid_file=is_sample))


def parts(cls, root):
    data = cls(root, read_file, is_valid_file=is_sample)
    halves = random_split(data, [7, 13], generator())
    both = ConcatDataset([data, Subset(data, [4, -1])])
    return [list(part) for part in halves], list(both), len(both)


def errors(cls, root):
    found = []
    for options in ({}, {"extensions": ".none"}, {"extensions": ".a", "is_valid_file": len}):
        with pytest.raises((ValueError, FileNotFoundError)) as error:
            cls(root, read_file, **options)
        found.append(str(error.value))
    return found


def allowed(cls, root):
    kinds = "t", (".jpg", ".txt"), (".jpg", ".JPG")
    return [all_of(cls(root, str, allowed)) for allowed in kinds]


def hidden(cls, root):
    for name in ("c1/.s999", "c0/.deep/s998"):
        os.makedirs(os.path.dirname(os.path.join(root, name)), exist_ok=True)
        shutil.copy(os.path.join(root, "c0", "s000"), os.path.join(root, name))
    return cls(root, len, is_valid_file=lambda path: True).samples


@pytest.mark.parametrize("cached", [False, True])
@pytest.mark.parametrize("scene", [
    plain, paths_that_are_asked, a_part, changed_lists, hooks, one_class, parts, errors, hidden,
    allowed,
])  # fmt: skip
def test_everything_but_bytes_is_torchvisions(request, tree, scene, cached):
    root = tree
    if cached:
        data = request.getfixturevalue("door").data[0]
        root = data.root
    if scene is allowed:
        for folder, name in product(("c0", "c1"), ("1.jpg", "2.JPG", "3.npy", "4.txt", "README")):
            shutil.copy(os.path.join(root, "c0", "s000"), os.path.join(root, folder, name))
    if cached and scene in (hidden, allowed):
        flags = 16 if scene is hidden else 32
        if scene is allowed:
            names = product(("c0", "c1"), ("1.jpg", "2.JPG"))
            data.files = [os.path.join(root, folder, name) for folder, name in names]
        data.identity, data.times = write_index(data.index, root, data.files, flags=flags)
    theirs = scene(torchvision.datasets.DatasetFolder, root)
    assert scene(rankpool.DatasetFolder, root) == theirs


def test_images_are_torchvisions(tree):
    assert issubclass(rankpool.ImageFolder, torchvision.datasets.ImageFolder)
    assert issubclass(rankpool.ImageFolder, rankpool.DatasetFolder)
    with pytest.raises(FileNotFoundError, match="Supported extensions are: .jpg, .jpeg, .png"):
        rankpool.ImageFolder(tree)


def test_without_torchvision(monkeypatch):
    monkeypatch.setitem(sys.modules, "torchvision.datasets", None)
    monkeypatch.delitem(sys.modules, "rankpool.image_folder")
    with pytest.raises(ImportError, match="torchvision"):
        rankpool.ImageFolder
    monkeypatch.undo()


def test_only_the_root_folder_is_listed(door, served, monkeypatch):
    """A million files are not looked up by each of 32 trainers."""
    def refuse(*args, **options):
        raise AssertionError(args)

    monkeypatch.setattr(os, "walk", refuse)
    monkeypatch.setattr(os.path, "isdir", refuse)
    listed, scandir = [], os.scandir
    monkeypatch.setattr(os, "scandir", lambda path: listed.append(path) or scandir(path))
    assert len(data_of(served).samples) == 20 and listed == [served]


@pytest.mark.parametrize("way", WAYS[:2], ids=NAMES[:2])
def test_the_cache_dies_in_mid_epoch(door, served, tree, way):
    data = data_of(served)
    sampler = rankpool.DistributedSampler(data, 1, 0, seed=3)
    loader = DataLoader(data, batch_size=4, sampler=sampler, **way)
    rows = []
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for number, (x, _) in enumerate(loader):
            rows += [tuple(row.tolist()) for row in x]
            if (epoch, number) == (0, 1):
                door.kill()
    door.start()  # to say that it does not serve the other tree
    assert rows == [row[3] for row in epochs_of(data_of(tree))]


def test_a_loader_that_asks_otherwise_gets_the_right_samples(door, served):
    data = data_of(served)
    sampler = rankpool.DistributedSampler(data, 1, 0, batch_size=5)
    ids = [
        int(row[0]) for rows, _ in DataLoader(data, batch_size=4, sampler=sampler) for row in rows
    ]
    assert ids == list(TorchSampler(data, 1, 0))
    assert [opened["batch_size"] for opened in door.seen(2)] == [4]  # the loader's own size


def test_a_root_that_is_not_served_is_read_from_storage(door, served, tmp_path, capfd):
    make_tree(str(tmp_path / "other"))
    for _ in range(2):
        data = data_of(str(tmp_path / "other"))
        assert [x[0][0] for x in data] == list(range(20))
    assert capfd.readouterr().err.count("does not serve") == 1


def test_other_samples_than_the_caches_are_read_from_storage(door, served, capfd):
    data = data_of(served, is_valid_file=lambda path: "s003" not in path)
    assert len(data) == 19 and [x[0][0] for x in data] == [0, 1, 2, *range(4, 20)]
    assert "s004 here, and " in capfd.readouterr().err
    data = data_of(served)
    data.samples = data.samples[5:7]
    assert len(data) == 2 and [x[0][0] for x in data] == [5, 6]
    assert "s005 here, and " in capfd.readouterr().err


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("loader, said", [
    (read_past_python, "does not use Python's open()"), (read_mapped, "needs a file on storage"),
])  # fmt: skip
def test_a_loader_that_reads_past_the_cache(door, served, tree, capfd, workers, loader, said):
    data = data_of(served, loader=loader)
    assert epochs_of(data, num_workers=workers) == epochs_of(data_of(tree))
    assert capfd.readouterr().err.count(said) == 1


def test_the_list_of_samples_is_changed_in_place(door, served, capfd):
    data = data_of(served)
    data.samples.append(data.samples[2])
    assert data[20][0][0] == 2
    sampler = rankpool.DistributedSampler(data, 1, 0)
    loader = DataLoader(data, batch_size=4, sampler=sampler)
    ids = [int(row[0]) for rows, _ in loader for row in rows]
    assert sorted(ids) == sorted([*range(20), 2]) and not door.seen(GET)
    assert capfd.readouterr().err.count("it has 21 samples, and 20 in the cache") == 1


def test_threads_read_batches_side_by_side(door, served, tree):
    """Each reads its own batch, or all read parts of one."""
    data = data_of(served, rng=None, transform=None)
    sampler = rankpool.DistributedSampler(data, 1, 0, batch_size=4)
    batches = list(BatchSampler(sampler, 4, False))
    meeting = threading.Barrier(len(batches))

    def items(batch):
        found = []
        for index in batch:
            meeting.wait(60)
            found.append(data[index][0][0])
        return found

    with ThreadPoolExecutor(len(batches)) as pool:
        assert list(pool.map(items, batches)) == batches
    assert sorted(get[2] for get in door.seen(GET)) == [0, 1, 2, 3, 4]
    door.requests.clear()
    rankpool.training.identities(door.path).first.clear()  # as in another process
    sampler = rankpool.DistributedSampler(data, 1, 0, batch_size=20)
    batches = list(BatchSampler(sampler, 20, False))
    with ThreadPoolExecutor(4) as pool:
        assert [x[0] for x, _ in pool.map(data.__getitem__, batches[0])] == batches[0]
    assert len(door.seen(GET)) == 1
    door.wait(lambda: not door.leases)


def test_an_epoch_without_a_whole_batch(door, served, tree):
    """As in torch, nothing is trained."""
    for data in (data_of(served), data_of(tree)):
        sampler = rankpool.DistributedSampler(data, 1, 0)
        loader = DataLoader(data, batch_size=21, sampler=sampler, drop_last=True)
        sampler.set_epoch(0)
        assert list(loader) == [] and len(loader) == 0
        assert sampler.state_dict()["epoch"] == 1
    assert not door.seen(OPEN)  # a rank refuses such an epoch


def test_ids_that_no_sampler_of_ours_drew_are_said_once(door, served, capfd):
    data = data_of(served)
    for _ in range(2):
        assert [int(x[0]) for x, _ in Subset(data, [3, 4])] == [3, 4]
    assert capfd.readouterr().err.count("are read from storage one by one") == 1
    assert not door.seen(GET)


def test_trainers_may_have_what_is_in_their_memory(door, served):
    """The cache decides who has which part of a global batch; the global batches are the same."""
    data = data_of(served)
    sampler = rankpool.DistributedSampler(data, 2, 1, assign="local")
    loader = DataLoader(data, batch_size=2, sampler=sampler)
    assert len([row for rows, _ in loader for row in rows]) == 10
    assert {spec["assign"] for spec in door.seen(OPEN)} == {"local"}


# --- checkpoints ---


@pytest.mark.parametrize("cached", [False, True])
@pytest.mark.parametrize("workers", [0, 2])
def test_resumes_in_mid_epoch(request, tree, workers, cached):
    """The state is that of the loop, however far the workers are ahead; another number of trainers
    continues."""
    door = request.getfixturevalue("door") if cached else None
    data = data_of(door.data[0].root if cached else tree)
    whole = epochs_of(data, batch_size=4, num_workers=workers)
    sampler = rankpool.DistributedSampler(data, 1, 0, seed=3)
    loader, states = DataLoader(data, 4, sampler=sampler, num_workers=workers), []
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for _ in loader:
            states.append(sampler.state_dict())
    states.append(sampler.state_dict())
    places = [(state["epoch"], state["batch"]) for state in states]
    assert places == [
        (0, 1), (0, 2), (0, 3), (0, 4), (1, 0), (1, 1), (1, 2), (1, 3), (1, 4), (2, 0), (2, 0),
    ]
    sampler.set_epoch(1)
    for _ in loader:
        break
    assert sampler.state_dict() == states[5]
    rows = []
    rankpool.training._by_door.clear()  # as in another process
    for rank in range(2):
        other = rankpool.DistributedSampler(data, 2, rank, seed=3)
        other.load_state_dict(states[2])
        assert other.state_dict() == states[2]
        loader = DataLoader(data, 2, sampler=other, num_workers=workers)
        for epoch in range(other.epoch, 2):
            other.set_epoch(epoch)
            for number, (part, _) in enumerate(loader, 3 if epoch == 0 else 0):
                rows += [
                    (epoch, number, place, tuple(row.tolist()))
                    for place, row in zip(range(rank, 4, 2), part)
                ]
    assert sorted(rows) == [row for row in whole if row[:2] >= (0, 3)]
    if cached:
        assert {plan[2] for plan in door.seen(PLAN) if plan[1] == 0} == {0, 3}


@pytest.mark.parametrize("batch_size", [None, 4])
@pytest.mark.parametrize("cached", [False, True])
@pytest.mark.parametrize("taken", [0, 4, 8])
def test_resumes_without_a_loader_of_torchs(request, tree, taken, cached, batch_size):
    """As torchdata's StatefulDataLoader does, which saves a sampler's state with the batches that
    it has drawn, perhaps before the first, and iterates the sampler again after loading."""
    data = data_of(request.getfixturevalue("door").data[0].root if cached else tree)

    def sampler():
        made = rankpool.DistributedSampler(data, 1, 0, seed=3, batch_size=batch_size)
        made.set_epoch(0)
        return made

    def rows(ids):
        return [(int(id), tuple(data[id][0].tolist())) for id in ids]

    first, ids = sampler(), list(rankpool.DistributedSampler(data, 1, 0, seed=3))
    whole = rows(iter(sampler()))
    drawn = iter(first)
    assert rows(islice(drawn, taken)) == whole[:taken]
    state, other = first.state_dict(), sampler()
    iter(other)
    other.load_state_dict(state)
    assert rows(iter(other)) == whole[taken:] and [id for id, _ in whole] == ids
    assert other.state_dict()["yielded"] == len(ids)
    if taken:
        other.load_state_dict(state)
        with pytest.raises(ValueError, match="resume with the kind of loader"):
            next(iter(DataLoader(data, 4, sampler=other)))


def test_a_state_of_another_stream_is_refused(tree):
    data = data_of(tree)
    with pytest.raises(ValueError, match="none with batches iterates this sampler"):
        rankpool.DistributedSampler([1, 2, 3], 1, 0).state_dict()
    sampler = rankpool.DistributedSampler(data, 1, 0)
    next(iter(DataLoader(data, 4, sampler=sampler)))
    state = sampler.state_dict()
    other = rankpool.DistributedSampler(data, 1, 0)
    other.load_state_dict(state)
    with pytest.raises(ValueError, match="the saved state has global_batch = 4, this sampler 5"):
        next(iter(DataLoader(data, 5, sampler=other)))


@pytest.mark.parametrize("batches", [2, 5])  # 5: the state is of the beginning of an epoch
def test_a_state_of_another_seed_or_of_other_data_is_refused(door, served, tree, batches):
    def begun(seed=0, data=served):
        sampler = rankpool.DistributedSampler(data_of(data), 1, 0, seed=seed)
        sampler.set_epoch(0)
        return sampler, iter(DataLoader(sampler.dataset, 4, sampler=sampler))

    sampler, loader = begun()
    for _ in range(batches):
        next(loader)
    state = sampler.state_dict()
    assert (state["epoch"], state["batch"]) == (batches // 5, batches % 5)
    for seed, changed, wrong in [
        (1, {}, "seed = 0, this sampler 1"),
        (0, {"identity": 32 * "0"}, "identity = '0000.*', this sampler "),
        (0, {"samples": 21}, "samples = 21, this sampler 20"),
    ]:
        other, loader = begun(seed)
        other.load_state_dict({**state, **changed})
        with pytest.raises(ValueError, match="the saved state has " + wrong):
            next(loader)
    other, loader = begun(data=tree)  # from storage, which knows no identity
    other.load_state_dict(state)
    next(loader)


@pytest.mark.parametrize("field", ["epoch", "batch"])
@pytest.mark.parametrize("value", [-1, 1 << 40, 1.5, "1", None])
def test_a_state_with_a_wrong_number_is_refused(tree, field, value):
    data = data_of(tree)
    for sampler in rankpool.DistributedSampler(data, 1, 0), rankpool.ImportanceSampler(data):
        with pytest.raises(ValueError, match="the saved state"):
            sampler.load_state_dict({"epoch": 0, "batch": 0, field: value})


def test_a_batch_that_no_epoch_has_is_refused(tree):
    """The epoch would be left out."""
    sampler = rankpool.DistributedSampler(data_of(tree), 1, 0)
    loader = DataLoader(sampler.dataset, 4, sampler=sampler)
    next(iter(loader))
    sampler.load_state_dict({**sampler.state_dict(), "batch": 6})
    with pytest.raises(ValueError, match=r"has batch = 6, which must be in \[0, 5\]"):
        next(iter(loader))


class PrefetchLoader:
    """Returns a batch after it has fetched the next one, as timm's class of this name and
    Accelerate's loaders do."""

    def __init__(self, loader):
        self.loader = loader

    def __iter__(self):
        held = None
        for fetched in self.loader:
            if held is not None:
                yield held
            held = fetched
        yield held


class SkipBatchSampler(BatchSampler):
    """Leaves out the first batches, as Accelerate's class of this name does."""

    def __init__(self, batches, skipped):
        self.batch_sampler, self.skipped = batches, skipped

    def __iter__(self):
        return (batch for number, batch in enumerate(self.batch_sampler) if number >= self.skipped)

    def __len__(self):
        return len(self.batch_sampler) - self.skipped


class BatchSamplerShard(SkipBatchSampler):
    """Gives each process a part of the batches, as Accelerate's class of this name does."""

    num_processes = 2


@pytest.mark.parametrize("workers", [0, 2])
def test_a_state_beside_a_prefetcher_needs_the_number_of_batches(tree, workers):
    data = data_of(tree)
    sampler = rankpool.DistributedSampler(data, 1, 0)
    sampler.set_epoch(0)
    loader = PrefetchLoader(DataLoader(data, 4, sampler=sampler, num_workers=workers))
    for trained, _ in enumerate(loader, 1):
        with pytest.raises(ValueError, match=r"PrefetchLoader is between .* state_dict\(batch=…\)"):
            sampler.state_dict()
        state = sampler.state_dict(batch=trained)
        assert (state["epoch"], state["batch"]) == ((0, trained) if trained < 5 else (1, 0))
    with pytest.raises(
        ValueError, match="batch must be from 0 to 5, the batches of an epoch, not 6"
    ):
        sampler.state_dict(batch=6)


@pytest.mark.parametrize("workers", [0, 2])
def test_batches_that_something_leaves_out_are_not_read(door, served, tree, workers):
    data = data_of(served)
    sampler = rankpool.DistributedSampler(data, 1, 0, seed=3)
    some = SkipBatchSampler(BatchSampler(sampler, 4, False), 2)
    loader = DataLoader(data, batch_sampler=some, num_workers=workers)
    found = [tuple(row.tolist()) for rows, _ in loader for row in rows]
    assert found == [row for _, number, _, row in epochs_of(data_of(tree), epochs=1) if number >= 2]
    assert sorted(get[2] for get in door.seen(GET)) == [2, 3, 4]
    with pytest.raises(ValueError, match="SkipBatchSampler is between"):
        sampler.state_dict()


def test_a_part_of_a_part_is_refused(tree):
    data = data_of(tree)
    sampler = rankpool.DistributedSampler(data, 2, 0)
    some = BatchSamplerShard(BatchSampler(sampler, 4, False), 0)
    with pytest.raises(ValueError, match="BatchSamplerShard gives each process a part of the part"):
        next(iter(DataLoader(data, batch_sampler=some)))


# --- importance ---


def importance(door, served, **options):
    data = data_of(served)
    return data, rankpool.ImportanceSampler(data, "pads", **options)


@pytest.mark.parametrize("way", WAYS[:3], ids=NAMES[:3])
def test_update_reports_the_batch_in_hand(door, served, way):
    door.weights, door.draws = True, "replacement"
    data, sampler = importance(door, served, seed=7)
    loader, told = DataLoader(data, batch_size=8, sampler=sampler, **way), []
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for number, (rows, _) in enumerate(loader):
            losses = (rows[:, 0].float() / 4).requires_grad_()
            norms = losses.reshape(-1, 1) / 2 if epoch else None
            mean = sampler.update(losses, importance=norms)
            weights = rows[:, 0] + 1  # as the door says
            assert mean.item() == pytest.approx((losses * weights).mean().item())
            mean.backward()
            assert losses.grad.tolist() == pytest.approx((weights / len(rows)).tolist())
            told.append((0, epoch, number, (losses / (1 + epoch)).tolist()))
    door.wait(lambda: len(door.seen(REPORT)) == 6)
    assert door.seen(REPORT) == told


@pytest.mark.parametrize("wrong", [{"reads": 1.5}, {"reads": "no"}, {"room": 0}, {"draws": "auto"}])
def test_shares_that_are_none_are_refused(door, served, wrong):
    with pytest.raises(ValueError, match="must be above 0, and at most 1, not"):
        rankpool.ImportanceSampler(data_of(served), "thrifty", **wrong)


@pytest.mark.parametrize("way", WAYS[:2], ids=NAMES[:2])
def test_a_forgotten_update_is_said_once(door, served, way, capfd):
    data, sampler = importance(door, served)
    loader = DataLoader(data, batch_size=8, sampler=sampler, **way)
    for _ in loader:
        sampler.skip()
    said = [capfd.readouterr().err.count("sampler.update(losses)")]
    for epoch in range(1, 4):
        sampler.set_epoch(epoch)
        for _ in loader:
            pass
        said.append(capfd.readouterr().err.count("sampler.update(losses)"))
    assert said == [0, 0, 1, 0]


def test_update_reports_embeddings(door, served):
    door.embeddings = 2
    data, sampler = importance(door, served, embeddings=2, epochs=3)
    told = []
    for rows, _ in DataLoader(data, batch_size=4, sampler=sampler):
        with pytest.raises(ValueError, match="scores samples by their embeddings, and none are"):
            sampler.update(torch.ones(4))
        sampler.update(torch.ones(4), rows[:, :2].float())
        told.append(rows[:, :2].tolist())
    door.wait(lambda: len(door.seen(REPORT)) == len(told))
    assert [report[4] for report in door.seen(REPORT)] == told
    assert all(opened["embeddings"] == 2 and opened["epochs"] == 3 for opened in door.seen(2))


def test_what_is_not_certain_is_never_attributed(door, served):
    data, sampler = importance(door, served)
    batches = iter(DataLoader(data, batch_size=4, sampler=sampler))
    with pytest.raises(ValueError, match="called already for every batch"):
        sampler.update(torch.ones(4))
    next(batches)
    for wrong in [torch.ones(3)], [torch.ones(4), None, torch.ones(3)]:
        with pytest.raises(ValueError, match="3 losses for batch 0, which has 4 samples"):
            sampler.update(*wrong)
    sampler.update(torch.ones(4))
    with pytest.raises(ValueError, match="called already for every batch"):
        sampler.update(torch.ones(4))
    next(batches), next(batches)
    with pytest.raises(ValueError, match="handed out 2 batches since the last update"):
        sampler.update(torch.ones(4))
    sampler.skip()
    sampler.update(torch.full((4,), 3.0))
    door.wait(lambda: len(door.seen(REPORT)) == 2)
    assert [report[2:] for report in door.seen(REPORT)] == [(0, [1.0] * 4), (2, [3.0] * 4)]


def test_batches_that_are_fetched_ahead(door, served):
    data, sampler = importance(door, served, ahead=1)
    coming = iter(DataLoader(data, batch_size=4, sampler=sampler, num_workers=1))
    held = next(coming)
    while held is not None:
        following = next(coming, None)
        sampler.update(held[0][:, 0])
        held = following
    door.wait(lambda: len(door.seen(REPORT)) == 5)
    stream = sampler._stream
    assert [report[3] for report in door.seen(REPORT)] == [stream._plan.batch(n) for n in range(5)]


def test_draws_of_a_sample_in_several_batches_give_other_tensors(door, served):
    door.draws, found = "replacement", []
    for way in (*WAYS[:2], *FOUR_WORKERS):
        data, sampler = importance(door, served, seed=7)
        loader, rows = DataLoader(data, batch_size=4, sampler=sampler, **way), []
        for epoch in (0, 0, 1):
            sampler.set_epoch(epoch)
            rows += [row for batch, _ in loader for row in map(tuple, batch.tolist())]
        found.append(rows)
    assert found == found[:1] * 4
    assert len({row[0] for row in rows[:20]}) < len(set(rows[:20])) == 20
    assert rows[:20] == rows[20:40] and not set(rows[:20]) & set(rows[40:])


@pytest.mark.parametrize("workers", [0, 2])
def test_importance_resumes_in_mid_epoch(door, served, workers):
    data, sampler = importance(door, served, seed=7)
    loader = DataLoader(data, batch_size=4, sampler=sampler, num_workers=workers)
    whole, state = [], None
    for number, (rows, _) in enumerate(loader):
        sampler.update(rows[:, 0])
        whole.append(rows.tolist())
        if number == 1:
            state = sampler.state_dict()
    assert (state["epoch"], state["batch"]) == (0, 2)
    data, sampler = importance(door, served, seed=7)
    sampler.load_state_dict(state)
    loader = DataLoader(data, batch_size=4, sampler=sampler, num_workers=workers)
    assert [rows.tolist() for rows, _ in loader] == whole[2:]


def test_importance_refuses_a_state_of_another_sampler(door, served, tree):
    data, sampler = importance(door, served)
    next(iter(DataLoader(data, batch_size=4, sampler=sampler)))
    sampler.skip()
    state = sampler.state_dict()
    plain = rankpool.DistributedSampler(data, 1, 0)
    next(iter(DataLoader(data, batch_size=4, sampler=plain)))
    with pytest.raises(ValueError, match="is not that of an ImportanceSampler"):
        sampler.load_state_dict(plain.state_dict())
    data = data_of(tree)
    alone = rankpool.ImportanceSampler(data, "pads")
    alone.load_state_dict(state)
    with pytest.raises(ValueError, match="no cache for .*tree"):
        next(iter(DataLoader(data, batch_size=4, sampler=alone)))


def test_importance_without_a_cache_draws_equally_often(tree, capfd):
    data = data_of(tree)
    sampler = rankpool.ImportanceSampler(data, "pads")
    seen = []
    for rows, _ in DataLoader(data, batch_size=4, sampler=sampler):
        assert sampler.update(rows[:, 0].float()).item() == pytest.approx(rows[:, 0].mean().item())
        seen += rows[:, 0].tolist()
    assert sorted(seen) == list(range(20))
    assert "drawn equally often" in capfd.readouterr().err


def test_losses_are_not_attributed_where_batches_are_left_out(door, served):
    data, sampler = importance(door, served)
    some = SkipBatchSampler(BatchSampler(sampler, 4, False), 1)
    with pytest.raises(
        ValueError, match="attributed to batches, and SkipBatchSampler leaves some out"
    ):
        next(iter(DataLoader(data, batch_sampler=some)))


def test_nobody_says_how_large_the_batches_are(door, served):
    _, sampler = importance(door, served)
    with pytest.raises(ValueError, match="give ImportanceSampler batch_size="):
        iter(sampler)


def test_dir_lists_what_scripts_use():
    names = dir(rankpool)
    assert {"ImageFolder", "DistributedSampler", "ImportanceSampler", "Dataset"} <= set(names)
    assert "wire" not in names and all(hasattr(rankpool, name) for name in names)
