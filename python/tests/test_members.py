"""Samples with several members: what the raw iterator, the data set and the loader make of them."""

import os

import pytest

import rankpool
from dataset_tree import write_index
from fakedoor import Data, plan


class Shards(Data):
    """A data set whose sample i has the members jpg (i bytes) and cls (one byte), with a gap
    between them in the file."""

    def __init__(self, folder, name, samples=12):
        self.name, self.root = name, os.path.join(folder, name)
        os.makedirs(self.root)
        self.index = os.path.join(folder, name + ".idx")
        shard = os.path.join(self.root, "shard.tar")
        content, members, self.parts = b"", [], []
        for i in range(samples):
            parts = {"jpg": bytes([65 + i]) * i, "cls": b"%d" % (i % 2)}
            places = []
            for kind, part in parts.items():
                content += bytes(7)
                places.append((kind, len(content), len(part)))
                content += part
            members.append(places)
            self.parts.append(parts)
        with open(shard, "wb") as file:
            file.write(content)
        self.files = [shard] * samples
        offsets = [places[0][1] for places in members]
        sizes = [sum(size for _, _, size in places) for places in members]
        rest = offsets, sizes, [2] * samples, members
        self.identity, self.times = write_index(self.index, self.root, self.files, *rest)
        self.bytes = [parts["jpg"] + parts["cls"] for parts in self.parts]
        self.labels = [0] * samples


@pytest.fixture
def shards(door, tmp_path):
    data = Shards(str(tmp_path), "shards")
    door.data.append(data)
    return data


def drawn(door, sampler):
    return plan(door, 2, sampler.spec._asdict(), 0)


def open_shards(**options):
    data = rankpool.Dataset("shards", **options)
    return data, rankpool.BatchSampler(data, batch_size=4)


@pytest.mark.parametrize("source", [0, 4])
def test_members_of_a_batch(door, shards, source):
    data, sampler = open_shards()
    door.sources = {(0, batch, place): source for batch in range(3) for place in range(4)}
    seen = [
        [{k: bytes(v) for k, v in m.items()} for m in batch.members]
        for batch in data.batches(sampler)
    ]
    assert seen == [[shards.parts[i] for i in ids] for ids in drawn(door, sampler)]


def test_members_without_the_cache(door, shards):
    data, sampler = open_shards()
    batches = data.batches(sampler)
    first = next(batches)
    assert [dict(m) for m in first.members] == [shards.parts[i] for i in first.ids]
    door.kill()
    for batch in batches:
        assert [dict(m) for m in batch.members] == [shards.parts[i] for i in batch.ids]


def size_of_image(members, label):
    return len(members["jpg"]), int(bytes(members["cls"])), label


@pytest.mark.parametrize("workers", [0, 1])
def test_a_transform_gets_the_members(door, shards, workers):
    data, sampler = open_shards(transform=size_of_image)
    for ids, sizes, classes, labels in data.loader(sampler, workers):
        assert sizes.tolist() == ids.tolist()
        assert classes.tolist() == [i % 2 for i in ids.tolist()]
        assert labels.tolist() == [0] * len(ids)
    assert data[5] == (5, 5, 1, 0)


@pytest.mark.parametrize("workers", [0, 1])
def test_members_without_a_transform(door, shards, workers):
    data, sampler = open_shards()
    for ids, members, labels in data.loader(sampler, workers):
        assert [dict(m) for m in members] == [shards.parts[i] for i in ids.tolist()]
        assert {type(v) for m in members for v in m.values()} == {bytes}
        assert labels.tolist() == [0] * len(ids)


def test_members_as_one_view(door, shards):
    data, sampler = open_shards(members=False)
    for ids, views, _ in data.loader(sampler):
        assert list(map(bytes, views)) == [shards.bytes[i] for i in ids.tolist()]


def test_files_as_members(door):
    data = rankpool.Dataset("train", members=True)
    assert data[3] == (3, {"": door.data[0].bytes[3]}, door.data[0].labels[3])
    assert rankpool.Dataset("train")[3] == (3, door.data[0].bytes[3], door.data[0].labels[3])
