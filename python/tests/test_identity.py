"""A cache that comes back with other data than training began with is refused."""

import os

import pytest

import rankpool
from dataset_tree import write_index
from rankpool import connection, training


def comes_back(door, tmp_path, change):
    """Restarts the door with an index of the files as they are after change(files)."""
    door.kill()
    data = door.data[0]
    change(data.files)
    data.files = [f for f in data.files if os.path.exists(f)]
    data.bytes = [open(f, "rb").read() for f in data.files]
    data.index = str(tmp_path / "again.idx")
    data.identity, data.times = write_index(data.index, data.root, data.files)
    door.start()


def touch(files):
    os.utime(files[9], ns=(0, 1))


def grow(files):
    with open(files[9], "ab") as file:
        file.write(b"more")


def shift(files):
    os.rename(files[9], files[9] + "x")
    files[9] += "x"


@pytest.mark.parametrize("change", [lambda files: os.remove(files[7]), touch, grow, shift])
def test_another_data_set_is_refused(door, tmp_path, change):
    data = rankpool.Dataset()
    sampler = rankpool.BatchSampler(data, batch_size=4)
    coming = data.batches(sampler)
    next(coming)
    comes_back(door, tmp_path, change)
    said = "'train' is not the one that training began with: its identity is .*; start"
    with pytest.raises(rankpool.IdentityError, match=said):
        list(coming)
    with pytest.raises(rankpool.IdentityError, match=said):
        sampler.state_dict()


def test_the_same_data_set_is_taken_back(door, tmp_path):
    data = rankpool.Dataset()
    sampler = rankpool.BatchSampler(data, batch_size=4)
    coming = data.batches(sampler)
    first = list(next(coming).ids)
    comes_back(door, tmp_path, lambda files: None)
    assert sorted(first + [id for batch in coming for id in batch.ids]) == list(range(20))


def test_a_process_that_begins_late_compares_too(door, tmp_path, monkeypatch):
    """A spawned worker gets the data set from its parent, and maps what is at the index's path
    now."""
    data = rankpool.Dataset()
    sampler = rankpool.BatchSampler(data, batch_size=4)
    (batch, *_) = list(sampler)
    state = data.__getstate__()
    connection._close_all()
    monkeypatch.setattr(training, "_by_door", {})
    comes_back(door, tmp_path, lambda files: os.remove(files[7]))

    def worker():
        new = rankpool.Dataset.__new__(rankpool.Dataset)
        new.__dict__.update(state)
        return new

    with pytest.raises(rankpool.IdentityError, match="its identity is .* now, and was "):
        worker().read(batch, list)
    os.replace(tmp_path / "again.idx", data.index_path)
    with pytest.raises(rankpool.IdentityError, match="is of another data set than 'train'"):
        worker().index


def test_a_data_set_that_is_not_served_any_more(door):
    data = rankpool.Dataset("test")
    sampler = rankpool.BatchSampler(data, batch_size=1)
    coming = data.batches(sampler)
    next(coming)
    door.kill()
    door.data.pop()
    door.start()
    with pytest.raises(rankpool.IdentityError, match="the cache came back without data set 'test'"):
        list(coming)
