"""The table of the byte ranges that samples are made of, which `rankpool index --pieces -` reads.

Its lines have fields between tabs: N, a note in JSON; F, a file's path, size and time; H, the
offset and size of one of its heads, which are what libraries read besides pieces, such as HDF5's
B-trees; P, the offset and size of a piece, and how many of that size follow one another; W, regular
windows of pieces as samples (first, pieces, step, windows); S, a sample of any windows (first and
pieces of each). F may come back to an earlier file.
"""

from __future__ import annotations

import io
import json
import os
from typing import Any, Callable, Dict, Iterable, Iterator, List, NamedTuple, Optional, Sequence
from typing import Tuple

import numpy as np

from .errors import Refused
from .messages import say

SMALL_ROW, PIECE = 4 << 10, 16 << 10  # smaller rows share a piece of about so many bytes
GAP = 512  # heads that are closer are one

Read = Tuple[str, int, int]  # path, offset and end of a range of a file


class Recorder(io.FileIO):
    """A file that remembers what was read. While `probing`, what was not read before is not read
    now either, but only put down in `probed`."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self._ends: Dict[int, int] = {}  # by offset
        self.probing, self.probed = False, (0, 0)

    read, readall = io.RawIOBase.read, io.RawIOBase.readall  # by readinto

    def readinto(self, buffer) -> int:
        at, size = self.tell(), len(buffer)
        if self.probing and at not in self._ends:
            self.probed = at, size
            return size
        got = super().readinto(buffer)
        self._ends[at] = max(self._ends.get(at, 0), at + got)
        return got

    def heads(self) -> List[Tuple[int, int]]:
        """Returns the offset and size of each range that was read."""
        reads = [(self.name, at, end) for at, end in self._ends.items() if at < end]
        return [(at, end - at) for _, at, end in joined(reads, GAP)]


def joined(reads: Iterable[Read], gap: int = 1) -> List[Read]:
    """Returns ranges of files in order, as one those with less than a gap between them."""
    found: List[Read] = []
    for path, at, end in sorted(reads):
        if found and found[-1][0] == path and at - found[-1][2] < gap:
            found[-1] = path, found[-1][1], max(found[-1][2], end)
        else:
            found.append((path, at, end))
    return found


class Column(NamedTuple):
    """The pieces of a variable in one file, in the order of its rows: `starts` has the first of
    each `block` rows, and last their number; `pieces` has rows of file number, offset and size."""

    block: int
    starts: np.ndarray
    pieces: np.ndarray


class Table:
    """The table under construction, to which files are added one after another. `rows` at distance
    `stride` make a sample. Unless `deep`, only the note is wanted, not the pieces."""

    def __init__(
        self, root: str, names: Optional[List[str]] = None, rows: int = 1, stride: int = 1,
        deep: bool = True,
    ) -> None:
        self.root, self.names, self.rows, self.stride, self.deep = root, names, rows, stride, deep
        self.note: Dict[str, Any] = {"files": [], "layouts": []}
        self._files: Dict[str, Tuple[int, int, int]] = {}  # number, size, time
        self._heads: Dict[str, Sequence[Tuple[int, int]]] = {}
        self._count, self._pieces = 0, [np.empty((0, 3), np.int64)]
        self._lines: List[str] = []
        self._samples, self._read = 0, 0  # of all samples: the bytes of their pieces
        self._largest = (0, 1)  # bytes of the largest variable, and its rows a chunk

    def file(self, path: str, heads: Optional[Sequence[Tuple[int, int]]] = None) -> Tuple[int, int]:
        """Returns a file's number and size; raises FileNotFoundError."""
        if path not in self._files:
            stat = os.stat(path)
            if not path.isprintable():  # tabs, line ends, and bytes that are not UTF-8
                raise Refused(f"{path!r}: rename it, its characters cannot be in a table")
            self._files[path] = len(self._files), stat.st_size, stat.st_mtime_ns
        if heads is not None:
            self._heads[path] = heads
        return self._files[path][:2]

    def choose(
        self, path: str, has: Callable[[str], bool], there: Callable[[], Iterable[str]]
    ) -> List[str]:
        """Returns the names of the variables: without a choice, the only one that is there."""
        names = sorted(there()) if self.names is None else self.names
        if self.names is None and len(names) != 1:
            raise Refused(f"{path}: choose with --dataset among {', '.join(names) or 'nothing'}")
        for name in names:
            if not has(name):
                raise Refused(f"{path} has no {name!r}; it has {', '.join(sorted(there()))}")
        self.names = names
        return names

    def add(
        self, path: str, shapes: List[Sequence[int]], columns: List[Column], layout: Any = None
    ) -> None:
        """Adds the samples of a file or store, whose variables have these shapes and pieces."""
        if not all(map(len, shapes)) or len({shape[0] for shape in shapes}) != 1:
            sizes = ", ".join(f"{name} {list(one)}" for name, one in zip(self.names, shapes))
            raise Refused(f"{path}: the variables need equally many rows: {sizes}")
        samples = max(0, (shapes[0][0] - self.rows) // self.stride + 1)
        if layout not in self.note["layouts"][-1:]:
            self.note["layouts"].append(layout)
        self.note["files"].append([path, samples, len(self.note["layouts"]) - 1])
        self._samples += samples
        if self.deep:
            self._add_windows(np.arange(samples) * self.stride, columns)

    def _add_windows(self, at: np.ndarray, columns: List[Column]) -> None:
        groups: Dict[int, List[Column]] = {}
        for column in columns:
            groups.setdefault(column.block, []).append(column)
        windows = []
        for block, group in groups.items():
            # numbered block by block, so that a window of several variables is one of pieces
            blocks = [np.repeat(np.arange(len(c.starts) - 1), np.diff(c.starts)) for c in group]
            order = np.argsort(np.concatenate(blocks), kind="stable")
            pieces = np.concatenate([column.pieces for column in group])[order]
            starts = np.sum([column.starts for column in group], axis=0)
            first, last = starts[at // block], starts[(at + self.rows - 1) // block + 1]
            ends = np.concatenate(([0], np.cumsum(pieces[:, 2])))
            self._read += int(np.sum(ends[last] - ends[first]))
            self._largest = max(self._largest, (int(ends[-1]), block))
            first, count = first + self._count, last - first
            windows.append(zip(first.tolist(), count.tolist()))
            self._count += len(pieces)
            self._pieces.append(pieces)
        counts, steps = np.unique(count).tolist(), np.unique(np.diff(first)).tolist()
        if len(groups) == len(counts) == 1 and counts != [0] and len(steps) < 2:
            self._lines.append(f"W\t{first[0]}\t{counts[0]}\t{sum(steps)}\t{len(at)}")
        else:
            self._lines += map(_list, zip(*windows))

    def add_listed(self, samples: Iterable[Iterable[Tuple[int, int, int]]]) -> None:
        """Adds samples of any pieces, each of file number, offset and size."""
        numbers: Dict[Tuple[int, int, int], int] = {}
        for sample in samples:
            windows: List[List[int]] = []
            for piece in sample:
                number = numbers.setdefault(piece, len(numbers))
                if windows and number == sum(windows[-1]):
                    windows[-1][1] += 1
                else:
                    windows.append([number, 1])
                self._read += piece[2]
            self._lines.append(_list(windows))
        self._samples, self._count = len(self._lines), len(numbers)
        self._pieces.append(np.array(list(numbers), np.int64).reshape(-1, 3))

    def finish(self) -> Dict[str, Any]:
        """Returns the note, once all files were added."""
        if not self._samples:
            raise Refused(f"no sample: no file has {self.rows} rows")
        self.root = os.path.commonpath([self.root, *map(os.path.dirname, self._files)])
        files = [[os.path.relpath(one[0], self.root), *one[1:]] for one in self.note["files"]]
        return {
            **self.note, "root": self.root, "variables": self.names, "rows": self.rows,
            "stride": self.stride, "files": files,
        }

    def write(self, out) -> None:
        """Writes the table, and says what matters on stderr."""
        out.write(f"rankpool pieces 1\nN\t{json.dumps(self.finish())}\n")
        pieces = np.concatenate(self._pieces)
        out.writelines(self._piece_lines(pieces))
        out.writelines(line + "\n" for line in self._lines)
        size, block = max(1, int(pieces[:, 2].sum())), self._largest[1]
        say(
            f"{self._samples} samples of {self._count} pieces, {block} rows a piece, "
            f"{self._read / self._samples / 1e6:.3g} MB a sample; an epoch without a cache reads "
            f"{self._read / size:.2f} data sets"
        )
        if block >= 4 * self.rows and self._read >= 4 * size:
            say(
                f"{block // self.rows} samples share a piece: smaller chunks (h5repack, rechunker) "
                'or the sampler "chunks" would read less'
            )

    def _piece_lines(self, pieces: np.ndarray) -> Iterator[str]:
        named = [
            f"F\t{os.path.relpath(path, self.root)}\t{size}\t{time}\n"
            for path, (_, size, time) in self._files.items()
        ]
        for path, heads in self._heads.items():
            yield named[self._files[path][0]]
            yield from (f"H\t{at}\t{size}\n" for at, size in heads)
        file, at, size = pieces.T
        after = (file[1:] == file[:-1]) & (size[1:] == size[:-1]) & (at[1:] == at[:-1] + size[:-1])
        first = np.flatnonzero(np.append([True] * min(1, len(file)), ~after))
        counts = np.diff(np.append(first, len(file)))
        current = -1
        for (number, at, size), count in zip(pieces[first].tolist(), counts.tolist()):
            if number != current:
                yield named[number]
                current = number
            yield f"P\t{at}\t{size}\n" if count == 1 else f"P\t{at}\t{size}\t{count}\n"


def _list(windows: Iterable[Sequence[int]]) -> str:
    return "S" + "".join(f"\t{first}\t{count}" for first, count in windows if count)


def flat(number: int, at: Optional[int], rows: int, row: int) -> Column:
    """Returns the pieces of rows of equal size, one after another; at=None: there are none."""
    block = max(1, min(rows, PIECE // max(1, row))) if row < SMALL_ROW else 1
    first = np.arange(0, rows, block)
    sizes = np.minimum(block, rows - first) * row
    pieces = np.stack([np.full_like(first, number), (at or 0) + first * row, sizes], axis=1)
    if at is None or row == 0:
        return Column(block, np.zeros(len(first) + 1, np.int64), pieces[:0])
    return Column(block, np.arange(len(first) + 1), pieces)


def chunked(shape: Sequence[int], chunks: Sequence[int], places: Any, pieces: Any) -> Column:
    """Returns the pieces of chunks, each with its place in the grid of chunks."""
    places = np.array(places, np.int64).reshape(-1, len(shape))
    order = np.lexsort(places.T[::-1])
    blocks = np.arange(-(-shape[0] // chunks[0]) + 1)
    starts = np.searchsorted(places[order, 0], blocks)  # a shard may have chunks beyond the array
    pieces = np.array(pieces, np.int64).reshape(-1, 3)[order[: starts[-1]]]
    return Column(chunks[0], starts, pieces)
