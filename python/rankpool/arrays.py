"""A drop-in data set: windows of the arrays in HDF5, NetCDF4, Zarr, NumPy's, .mrc or raw files."""

from __future__ import annotations

import os
from bisect import bisect_right
from contextlib import nullcontext
from itertools import accumulate
from typing import Any, Callable, Dict, Optional, Sequence, Union

import numpy as np

from . import piece_files, pieces, session
from .dataset import Dataset, data_sets
from .decoding import Decoder
from .errors import Refused
from .map_dataset import Served
from .messages import say_once

Item = Dict[str, np.ndarray]


class Arrays(Served):
    """Windows of rows of a file, a Zarr store, or a folder of files of one format.

    Item i is a dict of NumPy arrays by variable, each with the window's rows first, or what
    `transform` makes of the dict. `dataset` names the variables (not needed if there is one), and
    `rows` at distance `stride` make a window; files without a format need `header`, `shape` and
    `dtype` (see `python -m rankpool.pieces --help`). h5py, zarr or NumPy decode them.

    Under `rankpool run`, with a manifest of the same files and windows, samples that a sampler of
    rankpool draws come from the cache; what is not given here is as there. `rng` is as in
    rankpool.DatasetFolder. Raises Refused for data that cannot be read so.
    """

    def __init__(
        self, path: Union[str, os.PathLike], dataset: Union[None, str, Sequence[str]] = None,
        rows: Optional[int] = None, stride: Optional[int] = None,
        transform: Optional[Callable[[Item], Any]] = None, rng: Optional[str] = "sample", *,
        header: int = 0, shape: Optional[Sequence[int]] = None, dtype: Any = "float32",
    ) -> None:
        super().__init__(os.path.abspath(path), rng)
        self.transform = transform
        if transform is None:  # then nothing draws random numbers
            self.rng = None
        names = dataset.split(",") if isinstance(dataset, str) else dataset
        if min(1 if rows is None else rows, 1 if stride is None else stride) < 1:
            raise ValueError("rankpool: rows and stride must be at least 1")
        self._data = self._find_served()
        if self._data is None:
            raw = shape and (header, np.dtype(dtype).str, list(shape))
            note = pieces.index(self.root, names, rows or 1, stride or 1, raw, deep=False).finish()
        else:
            note = self._data.index.pieces.note
            given = {"variables": names and list(names), "rows": rows, "stride": stride}
            for key, value in given.items():
                if value not in (None, note[key]):
                    raise ValueError(
                        f"rankpool: {self.root}: {key} = {value}, and {note[key]} in the manifest "
                        "that the cache serves: index it again, or leave that out here"
                    )
        if note["format"] == "function":
            raise Refused(f"{self.root}: only the function that listed its pieces can decode them")
        self._decoder = Decoder(note, None if self._data is None else piece_files.open)
        self._ends = list(accumulate(samples for _, samples, _ in note["files"]))

    def _find_served(self) -> Optional[Dataset]:
        if not session.launched():
            return None
        for one in data_sets():
            data = Dataset(one["name"])
            found = data.index.pieces
            source = found and found.note.get("source")
            if source and os.path.realpath(source) == os.path.realpath(self.root):
                return data
        say_once(
            f"the cache does not serve {self.root}: it is read from storage (`rankpool index` it, "
            "and give the manifest to `rankpool run --data`)"
        )
        return None

    def __len__(self) -> int:
        return self._ends[-1]

    def _item(self, index: int) -> Any:
        if not 0 <= index < len(self):
            raise IndexError(f"rankpool: no sample {index} among {len(self)}")
        file = bisect_right(self._ends, index)
        first = int(index) - (self._ends[file - 1] if file else 0)
        served = nullcontext() if self._data is None else self._hand(index)
        with served:  # a transform may read the sample's pieces, too
            found = self._decoder.window(file, first)
            if self.transform is None:
                return found
            self._seed(index)
            return self.transform(found)
