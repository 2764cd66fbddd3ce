"""Formats that libraries from PyPI write: `make test-formats` runs these tests, and those of
tests/test_pieces.py, with the newest of them."""

import fsspec.implementations.reference
import h5py
import hdf5plugin
import netCDF4
import numcodecs
import numpy as np
import pytest
import zarr
from kerchunk.hdf import SingleHdf5ToZarr

from test_pieces import check, field, references, refused

X = field(14, 9, 11)


@pytest.mark.parametrize("location", ["start", "end"])
@pytest.mark.parametrize("shards, chunks", [((4, 10, 12), (2, 5, 6)), ((6, 9, 11), (2, 9, 11))])
def test_zarr_with_shards(tmp_path, location, shards, chunks):
    x = X.copy()
    x[4:8, :5] = 0
    group = zarr.open_group(str(tmp_path / "a.zarr"), mode="w")
    index_codecs = [zarr.codecs.BytesCodec()] + [zarr.codecs.Crc32cCodec()] * (location == "end")
    sharding = zarr.codecs.ShardingCodec(
        chunk_shape=chunks, index_location=location, index_codecs=index_codecs,
        codecs=[zarr.codecs.BytesCodec(), zarr.codecs.ZstdCodec()],
    )
    one = zarr.create_array(
        group.store_path / "x", shape=x.shape, dtype="f4", chunks=shards, fill_value=0,
        serializer=sharding, compressors=None,
    )
    one[:] = x
    for rows, stride in ((1, 1), (3, 2)):
        check(tmp_path / "a.zarr", [{"x": x}], rows=rows, stride=stride)


@pytest.mark.parametrize("encoding", [("default", "."), ("v2", "/"), ("v2", ".")])
def test_names_of_chunks_in_zarr_3(tmp_path, encoding):
    one = zarr.create_array(
        str(tmp_path / "a.zarr"), shape=X.shape, dtype="f4", chunks=(2, 5, 11),
        chunk_key_encoding=dict(zip(("name", "separator"), encoding)),
    )
    one[:] = X
    check(tmp_path / "a.zarr", [{"data": X}], rows=2)


@pytest.mark.parametrize("codec", [
    numcodecs.Blosc("lz4"), numcodecs.Zstd(), numcodecs.GZip(), numcodecs.LZ4(), None,
])
def test_codecs_of_zarr_2(tmp_path, codec):
    one = zarr.create_array(
        str(tmp_path / "a.zarr"), shape=X.shape, dtype="f4", chunks=(2, 5, 11), zarr_format=2,
        compressors=codec, order="F",
    )
    one[:] = X
    check(tmp_path / "a.zarr", [{"data": X}], rows=2)


@pytest.mark.parametrize("filters", [
    hdf5plugin.Blosc(), hdf5plugin.Blosc2(), hdf5plugin.Zstd(), hdf5plugin.LZ4(),
    hdf5plugin.Bitshuffle(),
])
def test_filters_of_hdf5plugin(tmp_path, filters):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("x", data=X, chunks=(2, 5, 11), **filters)
    check(tmp_path / "a.h5", [{"x": X}], rows=3)


def test_szip(tmp_path):
    assert h5py.h5z.filter_avail(h5py.h5z.FILTER_SZIP)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("x", data=X, chunks=(2, 8, 11), compression="szip")
    check(tmp_path / "a.h5", [{"x": X}], rows=3)


@pytest.mark.parametrize("options", [
    {}, {"zlib": True, "chunksizes": (1, 9, 11)}, {"compression": "zstd"},
])
def test_netcdf4(tmp_path, options):
    with netCDF4.Dataset(str(tmp_path / "a.nc"), "w") as file:
        for name, size in zip(("time", "lat", "lon"), (None, 9, 11)):
            file.createDimension(name, size)
        file.createVariable("time", "f8", ("time",))[:] = np.arange(14)
        one = file.createVariable("t", "f4", ("time", "lat", "lon"), **options)
        one.units, one[:] = "K", X
    names = ["t", "time"]
    check(tmp_path / "a.nc", [{"t": X, "time": np.arange(14.0)}], dataset=names, rows=3)
    with netCDF4.Dataset(str(tmp_path / "b.nc"), "w", format="NETCDF3_CLASSIC"):
        pass
    refused(tmp_path / "b.nc", "NetCDF's old format")


@pytest.mark.parametrize("parquet", [False, True])
def test_kerchunk(tmp_path, parquet):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("g/x", data=X, chunks=(2, 5, 11), compression="gzip")
        file.create_dataset("little", data=X[:, 0, 0], chunks=(2,))  # kept in the references
    refs = SingleHdf5ToZarr(str(tmp_path / "a.h5"), inline_threshold=20).translate()["refs"]
    path = references(tmp_path, refs)
    if parquet:
        path = tmp_path / "refs.parq"
        lazy = fsspec.implementations.reference.LazyReferenceMapper.create(
            str(path), record_size=5, engine="pyarrow"
        )
        lazy.update({key: refs[key] for key in sorted(refs, key=lambda key: ".z" not in key)})
        lazy.flush()
    for rows in (1, 3):
        check(path, [{"g/x": X, "little": X[:, 0, 0]}], dataset=["g/x", "little"], rows=rows)
    assert check(path, [{"little": X[:, 0, 0]}], dataset=["little"]).pieces == []
