"""rankpool.Arrays without a cache; e2e/ has it with one."""

import h5py
import numpy as np
import pytest
import torch
import zarr
from torch.utils.data import DataLoader

import rankpool
from rankpool.errors import Refused

X = np.arange(9 * 4, dtype="f4").reshape(9, 4)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Two files of HDF5, a Zarr store, and raw bytes, all of X and its rows' sums."""
    monkeypatch.delenv("RANKPOOL_SOCKET", raising=False)
    (tmp_path / "h5").mkdir()
    for name, part in (("a.h5", slice(0, 4)), ("b.h5", slice(4, 9))):
        with h5py.File(tmp_path / "h5" / name, "w") as file:
            file.create_dataset("x", data=X[part], chunks=(2, 3), compression="gzip")
            file["sum"] = X[part].sum(axis=1)
    zarr.save_array(str(tmp_path / "x.zarr"), X)
    (tmp_path / "raw").write_bytes(b"head" + X.tobytes())
    return tmp_path


def test_windows(folder):
    data = rankpool.Arrays(folder / "h5", "x,sum", rows=2, stride=1)
    firsts = [0, 1, 2, 4, 5, 6, 7]  # no window crosses from file to file
    assert len(data) == len(firsts)
    for i, first in enumerate(firsts):
        assert list(data[i]) == ["x", "sum"]
        np.testing.assert_array_equal(data[i]["x"], X[first : first + 2])
        np.testing.assert_array_equal(data[i]["sum"], X[first : first + 2].sum(axis=1))
    for i in (-1, len(firsts)):
        with pytest.raises(IndexError, match=f"no sample {i} among 7"):
            data[i]


@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_workers(folder, context):
    raw = {"header": 4, "shape": [-1, 4]}
    for name, options in (("h5/b.h5", {"dataset": "x"}), ("x.zarr", {}), ("raw", raw)):
        data = rankpool.Arrays(folder / name, rows=3, **options)
        expected = [one for one in data]  # opens the files, and then come the workers
        loader = DataLoader(data, 2, num_workers=2, multiprocessing_context=context)
        found = torch.cat([batch["x" if "dataset" in options else "data"] for batch in loader])
        np.testing.assert_array_equal(found, [next(iter(one.values())) for one in expected])
        np.testing.assert_array_equal(found[0], X[4:7] if name == "h5/b.h5" else X[:3])


def test_transforms_are_reproducible(folder):
    def noisy(item):
        return torch.from_numpy(item["x"]) + torch.rand(1)

    def epoch(workers):
        data = rankpool.Arrays(folder / "h5", "x", transform=noisy)
        sampler = rankpool.DistributedSampler(data, 1, 0, seed=3)
        sampler.set_epoch(1)
        return torch.cat(list(DataLoader(data, 2, sampler=sampler, num_workers=workers)))

    first = epoch(0)
    assert torch.equal(first, epoch(2)) and len(first) == 9


def test_refusals(folder):
    with pytest.raises(Refused, match="has no 'z'; it has sum, x"):
        rankpool.Arrays(folder / "h5", "z")
    with pytest.raises(ValueError, match="rng must be"):
        rankpool.Arrays(folder / "h5", "x", rng="other")


def test_zarr_store(folder):
    array = zarr.open(rankpool.zarr_store(str(folder / "x.zarr")), mode="r")
    np.testing.assert_array_equal(array[2:5], X[2:5])
    with pytest.raises(Exception, match="read-only|read only"):
        array[:1] = 0
