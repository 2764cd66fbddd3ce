"""Learns from the first epochs of a script what its samples are made of:

    python -m rankpool.learning FOLDER | rankpool index --pieces - -o learned.parquet

lists as pieces what learn() has recorded in FOLDER.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from bisect import bisect_right
from typing import Any, Dict, Iterator, List, Optional, Set, Tuple, Union

import numpy as np

from . import piece_files, pieces
from .arrays import Arrays
from .errors import Refused
from .hdf5 import heads_of
from .map_dataset import Served
from .piece_table import Read, joined

TIMES = 2  # that a sample is recorded, on each node: the first time a library may have had a part
SMALL, FEW = 8 << 10, 16  # smaller reads are of heads, see _heads


class Learned(Served):
    """A script's own map-style data set, see learn."""

    def __init__(self, dataset: Any, root: Union[str, os.PathLike], folder: Any) -> None:
        super().__init__(os.path.abspath(root), None)
        self.dataset, self._samples = dataset, len(dataset)
        self._data = Arrays._find_served(self)
        if self._data is not None and self._data.index.pieces.samples != len(self):
            raise ValueError(
                f"rankpool: {self.root}: the manifest has {self._data.index.pieces.samples} samples, "
                f"and the data set {len(self)}: learn them in another folder, and index them again"
            )
        self._base = os.path.join(os.path.abspath(folder), socket.gethostname())
        self._log: Any = None

    def __len__(self) -> int:
        return self._samples

    def __getstate__(self) -> dict:
        return {**super().__getstate__(), "_log": None}

    def _item(self, index: int) -> Any:
        if self._data is not None:
            with self._hand(index):
                return self.dataset[int(index)]
        with piece_files.recorded() as reads:
            item = self.dataset[int(index)]
        self._put_down(int(index) % len(self), reads)
        return item

    def _put_down(self, index: int, reads: List[Tuple[bytes, int, int]]) -> None:
        """Appends what a sample has read to this process's log."""
        if self._log is None or self._log[0] != os.getpid():
            os.makedirs(os.path.dirname(self._base), exist_ok=True)
            times = os.open(self._base + ".times", os.O_RDWR | os.O_CREAT, 0o666)
            log = open(f"{self._base}.{os.getpid()}.log", "a", buffering=1)
            log.write(json.dumps([self.root, len(self)]) + "\n")
            self._log = os.getpid(), times, log
        _, times, log = self._log
        before = (os.pread(times, 1, index) or b"\0")[0]
        if before < TIMES:
            os.pwrite(times, bytes([before + 1]), index)
            root = os.path.join(self.root, "")
            places = sorted({(os.fsdecode(path), at, end) for path, at, end in reads})
            below = [(path[len(root) :], *at) for path, *at in places if path.startswith(root)]
            log.write(json.dumps([index, below]) + "\n")


def learn(
    dataset: Any, root: Union[str, os.PathLike], folder: Union[str, os.PathLike]
) -> Learned:
    """Returns a map-style data set whose items are those of `dataset`, which opens its files, below
    the folder root, by rankpool.open.

    The ranges of the files that each item reads are recorded in `folder`. When
    `rankpool.learning` has made a manifest of them that `rankpool run` serves, items read from the
    cache; what an item reads besides comes from storage, and is counted.
    """
    return Learned(dataset, root, folder)


def write(folder: str, out: Any = None) -> None:
    """Writes the table of the pieces that were recorded in a folder."""
    root, samples = _recorded(folder)
    reads = {read for sample in samples for read in sample}
    ends: Dict[str, List[int]] = {}  # of heads: where each begins and ends, in order
    for path, at, end in _heads(root, reads):
        ends.setdefault(path, []).extend((at, end))
    cuts = {path: set(places) for path, places in ends.items()}
    for path, at, end in reads:  # no piece is part of another
        cuts.setdefault(path, set()).update((at, end))
    ordered = {path: np.array(sorted(places)) for path, places in cuts.items()}

    def sample(i: int) -> Iterator[Tuple[str, int, int]]:
        for path, at, end in joined(samples[i]):
            first, last = np.searchsorted(ordered[path], (at, end))
            places = ordered[path][first : last + 1].tolist()
            for a, b in zip(places, places[1:]):
                if bisect_right(ends.get(path, ()), a) % 2 == 0:  # between heads
                    yield path, a, b - a

    heads = {path: [(a, b - a) for a, b in zip(e[::2], e[1::2])] for path, e in ends.items()}
    pieces.write(sample, len(samples), root, out, heads)


def _heads(root: str, reads: Set[Read]) -> List[Read]:
    """Returns, in order, what libraries read besides samples: HDF5's own, elsewhere small reads,
    if they are few bytes."""
    found: List[Read] = []
    known = {path: heads_of(os.path.join(root, path)) for path in {r[0] for r in reads}}
    for path, heads in known.items():
        found += [(path, at, at + size) for at, size in heads]
    small = [read for read in reads if not known[read[0]] and read[2] - read[1] < SMALL]
    if FEW * sum(end - at for _, at, end in small) <= sum(end - at for _, at, end in reads):
        found += small
    return joined(found)


def _recorded(folder: str) -> Tuple[str, List[Set[Read]]]:
    """Returns root and reads of each sample: path, offset and end."""
    of: Optional[list] = None
    samples: List[Set[Read]] = []
    for name in sorted(os.listdir(folder)):
        if not name.endswith(".log"):
            continue
        with open(os.path.join(folder, name)) as lines:
            for line in lines:
                first, second = json.loads(line)
                if isinstance(second, list):
                    samples[first].update(map(tuple, second))
                elif of not in (None, [first, second]):
                    raise Refused(f"{folder} has records of several data sets: {of[0]}, {first}")
                else:
                    of = [first, second]
                    samples = samples or [set() for _ in range(second)]
    if of is None:
        raise Refused(f"{folder} has no records of rankpool.learn")
    return of[0], samples


if __name__ == "__main__":
    try:
        write(sys.argv[1])
    except (IndexError, OSError, Refused) as error:
        sys.exit(f"usage: python -m rankpool.learning FOLDER\n{error}")
