"""Learns from a script what its samples are made of: learn() records what each reads.

    python -m rankpool.learning DATA --blocks | rankpool index --pieces - -o data.parquet
    python -m rankpool.learning FOLDER | rankpool index --pieces - -o learned.parquet

The first lists the files in DATA in blocks: served, they are planned as soon as samples are known
to read them. The second lists what was recorded in FOLDER: then ranks know the samples, too.
"""

from __future__ import annotations

import argparse
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
from .messages import say, say_once
from .piece_table import Column, Read, Table, joined
from .zarr_stores import METADATA

# how often a sample is recorded on each node: the first time a library may have had a part; and if
# it reads something else later
TIMES, MOST = 2, 8
SMALL, FEW = 8 << 10, 16  # smaller reads are of heads, see _heads
BLOCK = 256 << 10  # bytes of a file that are planned together, before its samples are known


class Blocks:
    """The blocks that samples are known to read. `widest` is the most that one reads; `final`: no
    later epoch of this process knows better."""

    def __init__(self, found: Dict[int, array], final: bool) -> None:
        self._found, self.final = found, final
        self.widest = max(map(len, found.values()))

    def of(self, ids: Sequence[int]) -> List[List[int]]:
        """Returns the blocks of each sample of a batch, which must have one."""
        found = [list(self._found.get(id, ())) for id in ids]
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
            of, note = [os.path.realpath(self.root), len(self)], self._data.index.pieces.note
            found = _read_blocks(_records(self._folder, of, but), note)
            self._blocks = Blocks(found, self._begun > TIMES) if any(found.values()) else None
            if found and not self._blocks:
                say_once(f"no sample has read a file below {self.root} through rankpool.open")
            elif not self._blocks:
                say_once(f"the first epoch reads {self.root} from storage; later epochs are planned")
        return self._blocks

    def __len__(self) -> int:
        self._samples = len(self.dataset)  # it may grow
        return self._samples

    def __getattr__(self, name: str) -> Any:
        if name == "dataset":  # a copy that is being made
            raise AttributeError(name)
        return getattr(self.dataset, name)

    def __getstate__(self) -> dict:
        return {**super().__getstate__(), "_log": None, "_blocks": None}

    def _item(self, index: int) -> Any:
        served = self._data is not None and self._data.index
        if self._block:  # where it is not known, the sample is not in hand
            served = isinstance(index, Index) and index.batch.pieces
        with self._hand(index) if served else nullcontext():
            if self._drawn is not None:
                return self.dataset[int(index)]
            before = piece_files.unplanned_bytes
            with piece_files.recorded() as reads:
                item = self.dataset[int(index)]
        try:
            missed = bool(served) and piece_files.unplanned_bytes > before
            self._put_down(int(index) % self._samples, reads, missed)
        except OSError as error:
            say_once(f"cannot record what samples read: {error}")
        return item

    def _put_down(self, id: int, reads: List[Tuple[bytes, int, int]], missed: bool) -> None:
        """Appends to this process's log what a sample has read, unless it was there often enough;
        `missed`: not all that it reads was planned."""
        if self._log is None or self._log[:2] != [os.getpid(), self._samples]:
            base = os.path.join(self._folder, f"{socket.gethostname()}.{self._samples}")
            os.makedirs(self._folder, exist_ok=True)
            times = os.open(base + ".times", os.O_RDWR | os.O_CREAT, 0o666)
            name = f"{base}{self._run}{os.getpid()}.log"
            self._log = [os.getpid(), self._samples, times, name, None]
        *_, times, name, log = self._log
        before = (os.pread(times, 1, id) or b"\0")[0]
        if before >= (MOST if missed else TIMES):
            return
        if log is None:
            log = self._log[-1] = open(name, "a", buffering=1)
            log.write(json.dumps([os.path.realpath(self.root), self._samples]) + "\n")
        os.pwrite(times, bytes([before + 1]), id)
        root = self.root if self._data is None else os.fsdecode(self._data.index.root)
        root = os.path.join(root, "")
        places = sorted({(os.fsdecode(path), at, end) for path, at, end in reads})
        below = [(path[len(root) :], *at) for path, *at in places if path.startswith(root)]
        log.write(json.dumps([id, below]) + "\n")


def learn(
    dataset: Any, root: Union[str, os.PathLike], folder: Union[str, os.PathLike]
) -> Learned:
    """Returns a map-style data set whose items are those of `dataset`, which opens its files, below
    the folder root, by rankpool.open.

    The ranges of the files that each item reads are recorded in `folder`, one for each data set, on
    storage that all nodes share. If `rankpool run` serves the blocks of the files, what was
    recorded is planned from the second epoch on, and in later jobs from the first; if it serves a
    manifest of what was recorded, ImportanceSampler draws from it as well. What an item reads
    besides comes from storage, and is counted. Raises ValueError if that manifest has another
    number of samples.
    """
    return Learned(dataset, root, folder)


def write_blocks(root: str, block: int = BLOCK, out: Any = None) -> None:
    """Writes the table of the blocks of all files in a folder."""
    table = Table(os.path.abspath(root))
    table.note.update(format="blocks", source=table.root, block=block)
    for folder, folders, names in os.walk(table.root):
        folders[:] = sorted(name for name in folders if name[0] != ".")
        for name in sorted(names):
            path = os.path.join(folder, name)
            if name in METADATA:  # of Zarr: every sample needs it
                table.file(path, [(0, os.path.getsize(path))])
            elif name[0] != "." and os.path.getsize(path):
                number, size = table.file(path)
                table.file(path, heads_of(path))
                at = np.arange(0, size, block)
                places = [np.full_like(at, number), at, np.minimum(block, size - at)]
                column = Column(1, np.arange(len(at) + 1), np.stack(places, axis=1))
                table.add(path, [[len(at)]], [column])
    if not table.note["files"]:
        raise Refused(f"{table.root} is not a folder with files")
    table.write(out or sys.stdout)


def _read_blocks(records: Iterator[Tuple[Any, int, list]], note: dict) -> Dict[int, array]:
    """Returns the blocks of each sample that was recorded."""
    ends = list(accumulate(count for _, count, _ in note["files"]))
    first = {path: (end - count, end) for end, (path, count, _) in zip(ends, note["files"])}
    found: Dict[int, array] = {}
    for _, id, reads in records:
        rows = set(found.get(id, ()))
        for path, at, end in reads:
            begin, over = first.get(path, (0, 0))  # the file may have gone, or become shorter
            last = begin - -end // note["block"]
            rows.update(range(begin + at // note["block"], min(over, last)))
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
    of: Optional[list] = None
    for first, id, reads in _records(folder):
        if of is None:
            of, samples = first, [set() for _ in range(first[1])]
        elif of != first:
            raise Refused(
                f"{folder} has records of several data sets, or of one that has grown: "
                f"{of[1]} samples in {of[0]}, {first[1]} samples in {first[0]}; use a new folder"
            )
        samples[id].update(map(tuple, reads))
    if of is None:
        raise Refused(f"{folder} has no records of rankpool.learn")
    missing = sum(not reads for reads in samples)
    if missing:
        say(f"{missing} of {len(samples)} samples were never drawn, or read nothing")
    return of[0], samples


def _records(
    folder: str, wanted: Optional[list] = None, but: Optional[str] = None
) -> Iterator[Tuple[list, int, list]]:
    """Yields what was recorded, perhaps of one data set, and without one run: root and number of
    samples, sample and its reads."""
    for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else ():
        if not name.endswith(".log") or but and but in name:
            continue
        of: list = []
        with open(os.path.join(folder, name)) as lines:
            for line in lines:
                if line[-1:] != "\n":  # still being written
                    break
                first, second = json.loads(line)
                if not isinstance(second, list):
                    of = [first, second]
                elif wanted in (None, of):
                    yield of, first, second


def main() -> None:
    about = __doc__.split("\n")[0]
    parser = argparse.ArgumentParser("python -m rankpool.learning", description=about)
    parser.add_argument("folder", help="the records of learn, or with --blocks the data")
    size = f"split the files into blocks of this size, and list these (default: {BLOCK})"
    parser.add_argument("--blocks", help=size, type=int, nargs="?", const=BLOCK, metavar="BYTES")
    asked = parser.parse_args()
    if asked.blocks is not None and asked.blocks < 1:
        parser.error("--blocks must be at least 1 byte")
    try:
        if asked.blocks is None:
            write(asked.folder)
        else:
            write_blocks(asked.folder, asked.blocks)
    except Refused as error:
        sys.exit(str(error))
    except OSError as error:
        sys.exit(f"rankpool: {error}")


if __name__ == "__main__":
    main()
