"""Learns from a script what its samples are made of: learn() records what each reads.

    python -m rankpool.learning --blocks DATA [BYTES] | rankpool index --pieces - -o data.parquet
    python -m rankpool.learning FOLDER | rankpool index --pieces - -o learned.parquet

The first lists the files in DATA in blocks: served, they are planned as soon as samples are known
to read them. The second lists what was recorded in FOLDER: then ranks know the samples, too.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from array import array
from bisect import bisect_right
from contextlib import nullcontext
from itertools import accumulate
from typing import Any, Dict, Iterator, List, Optional, Sequence, Set, Tuple, Union

import numpy as np

from . import piece_files, pieces
from .arrays import Arrays
from .batch import Index
from .dataset import Dataset
from .errors import Refused
from .hdf5 import heads_of
from .map_dataset import Served
from .messages import say_once
from .piece_table import Column, Read, Table, joined

TIMES = 2  # that a sample is recorded, on each node: the first time a library may have had a part
SMALL, FEW = 8 << 10, 16  # smaller reads are of heads, see _heads
BLOCK = 256 << 10  # bytes of a file that are planned together, before its samples are known


class Blocks:
    """The blocks that samples are known to read. `widest` is the most that one reads; `final`: no
    later epoch of this process knows better."""

    def __init__(self, found: List[Optional[array]], final: bool) -> None:
        self._found, self.final = found, final
        self.widest = max((len(one) for one in found if one), default=1)

    def of(self, ids: Sequence[int]) -> List[List[int]]:
        """Returns the blocks of each sample of a batch, which must have one."""
        found = [list(self._found[id] or ()) for id in ids]
        if ids and not any(found):
            found[0] = [0]
        return found


class Learned(Served):
    """A script's own map-style data set, see learn."""

    def __init__(self, dataset: Any, root: Union[str, os.PathLike], folder: Any) -> None:
        super().__init__(os.path.abspath(root), None)
        self.dataset, self._samples = dataset, len(dataset)
        self._data = Arrays._find_served(self)
        served = None if self._data is None else self._data.index.pieces
        self._block = served and served.note.get("block")  # None: the ranks know the samples
        if served and not self._block and served.samples != len(self):
            raise ValueError(
                f"rankpool: {self.root}: the manifest has {served.samples} samples, "
                f"and the data set {len(self)}: learn them in another folder, and index them again"
            )
        self._folder, run = os.path.abspath(folder), ""
        if self._data is not None:
            run = os.path.basename(os.path.dirname(os.path.dirname(self._data.door)))
        self._run = f".{run}-{os.environ.get('SLURM_RESTART_COUNT', 0)}."
        self._base = os.path.join(self._folder, socket.gethostname())
        self._log: Any = None
        self._blocks: Optional[Blocks] = None
        self._begun = 0

    @property
    def _drawn(self) -> Optional[Dataset]:
        return None if self._block else self._data

    def begin(self) -> Optional[Blocks]:
        """Returns the blocks of samples, for the epoch that begins; None if nothing was recorded.

        In the first one, other trainers may be recording already: only other runs count. From the
        third on, what was recorded twice is known."""
        self._begun += 1
        if self._blocks is None or not self._blocks.final:
            but = self._run if self._begun == 1 else None
            found = _read_blocks(self._folder, self._data.index.pieces.note, but)
            self._blocks = Blocks(found, self._begun > TIMES) if any(found) else None
            if found and not self._blocks:
                say_once(f"no sample reads a file below {self.root} by rankpool.open")
        return self._blocks

    def __len__(self) -> int:
        return self._samples

    def __getstate__(self) -> dict:
        return {**super().__getstate__(), "_log": None, "_blocks": None}

    def _item(self, index: int) -> Any:
        id, served = int(index) % len(self), self._data is not None and self._data.index
        if self._block:  # where it is not known, the sample is not in hand
            served = isinstance(index, Index) and index.batch.pieces
        with self._hand(index) if served else nullcontext():
            if self._drawn is not None or not self._unknown(id):
                return self.dataset[int(index)]
            with piece_files.recorded() as reads:
                item = self.dataset[int(index)]
        self._put_down(id, reads)
        return item

    def _unknown(self, id: int) -> bool:
        """Returns whether what a sample reads is still to be recorded on this node, in this
        process's log."""
        if self._log is None or self._log[0] != os.getpid():
            os.makedirs(self._folder, exist_ok=True)
            times = os.open(self._base + ".times", os.O_RDWR | os.O_CREAT, 0o666)
            log = open(f"{self._base}{self._run}{os.getpid()}.log", "a", buffering=1)
            log.write(json.dumps([self.root, len(self)]) + "\n")
            self._log = os.getpid(), times, log
        return (os.pread(self._log[1], 1, id) or b"\0")[0] < TIMES

    def _put_down(self, id: int, reads: List[Tuple[bytes, int, int]]) -> None:
        _, times, log = self._log
        before = (os.pread(times, 1, id) or b"\0")[0]
        os.pwrite(times, bytes([before + 1]), id)
        root = os.path.join(self.root, "")
        places = sorted({(os.fsdecode(path), at, end) for path, at, end in reads})
        below = [(path[len(root) :], *at) for path, *at in places if path.startswith(root)]
        log.write(json.dumps([id, below]) + "\n")


def learn(
    dataset: Any, root: Union[str, os.PathLike], folder: Union[str, os.PathLike]
) -> Learned:
    """Returns a map-style data set whose items are those of `dataset`, which opens its files, below
    the folder root, by rankpool.open.

    The ranges of the files that each item reads are recorded in `folder`. If `rankpool run` serves
    the blocks of the files, what was recorded is planned from the second epoch on, and in later
    jobs from the first; if it serves a manifest of what was recorded, ImportanceSampler draws from
    it as well. What an item reads besides comes from storage, and is counted.
    """
    return Learned(dataset, root, folder)


def write_blocks(root: str, block: int = BLOCK, out: Any = None) -> None:
    """Writes the table of the blocks of all files in a folder."""
    table = Table(os.path.abspath(root))
    table.note.update(format="blocks", source=table.root, block=block)
    for folder, folders, names in os.walk(table.root):
        folders[:] = sorted(name for name in folders if name[0] != ".")
        for path in (os.path.join(folder, name) for name in sorted(names) if name[0] != "."):
            number, size = table.file(path)
            at = np.arange(0, size, block)
            if size:
                table.file(path, heads_of(path))
                places = [np.full_like(at, number), at, np.minimum(block, size - at)]
                column = Column(1, np.arange(len(at) + 1), np.stack(places, axis=1))
                table.add(path, [[len(at)]], [column])
    table.write(out or sys.stdout)


def _read_blocks(folder: str, note: dict, but: Optional[str]) -> List[Optional[array]]:
    """Returns the blocks of each sample, [] if none was recorded."""
    counts = [count for _, count, _ in note["files"]]
    first = dict(zip((path for path, _, _ in note["files"]), accumulate(counts, initial=0)))
    found: List[Optional[array]] = []
    for _, samples, id, reads in _records(folder, but):
        found = found or [None] * samples
        rows = set(found[id] or ())
        for path, at, end in reads:
            if path in first:
                begin, end = at // note["block"], -(-end // note["block"])
                rows.update(range(first[path] + begin, first[path] + end))
        found[id] = array("I", sorted(rows))
    return found


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
    samples: List[Set[Read]] = []
    root = ""
    for root, count, id, reads in _records(folder):
        samples = samples or [set() for _ in range(count)]
        samples[id].update(map(tuple, reads))
    if not root:
        raise Refused(f"{folder} has no records of rankpool.learn")
    return root, samples


def _records(folder: str, but: Optional[str] = None) -> Iterator[Tuple[str, int, int, list]]:
    """Yields what was recorded, but in one run: root, number of samples, sample and its reads."""
    of: Optional[list] = None
    for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else ():
        if not name.endswith(".log") or but and but in name:
            continue
        with open(os.path.join(folder, name)) as lines:
            for line in lines:
                if line[-1:] != "\n":  # still being written
                    break
                first, second = json.loads(line)
                if isinstance(second, list):
                    yield *of, first, second
                elif of not in (None, [first, second]):
                    raise Refused(f"{folder} has records of several data sets: {of[0]}, {first}")
                else:
                    of = [first, second]


if __name__ == "__main__":
    try:
        if sys.argv[1] == "--blocks":
            write_blocks(sys.argv[2], *map(int, sys.argv[3:]))
        else:
            write(sys.argv[1])
    except (IndexError, OSError, TypeError, ValueError, Refused) as error:
        sys.exit(f"usage: python -m rankpool.learning FOLDER | --blocks DATA [BYTES]\n{error}")
