"""The samples of tar shards, found as rankpool's index does (staging/shards), without a cache."""

from __future__ import annotations

import os
import tarfile
from itertools import product
from typing import Dict, List, Tuple, Union

Member = Tuple[str, int, int]  # extension, offset in the file, size in bytes


def expand(urls: Union[str, os.PathLike, List[str]]) -> List[str]:
    """Returns the paths that urls names: a folder's *.tar, or patterns such as "a-{000..146}.tar"
    and "{a,b}.tar", in the order of rankpool's index.

    Raises ValueError for what is not a path, such as "http:…" and "pipe:…", FileNotFoundError for a
    file that is not there.
    """
    texts = (
        [os.fspath(urls)] if isinstance(urls, (str, os.PathLike)) else list(map(os.fspath, urls))
    )
    if len(texts) == 1 and os.path.isdir(texts[0]):
        root, found = texts[0], _below(texts[0])
    else:
        for text in texts:
            if ":" in text.partition("/")[0]:
                raise ValueError(f"rankpool: WebDataset reads tar files on storage, not {text!r}")
        found = [path for text in texts for path in _braces(text)]
        parents = [os.path.dirname(os.path.abspath(path)) for path in found]
        root = os.path.commonpath(parents or ["."])
    if not found:
        raise FileNotFoundError(f"rankpool: there is no tar file in {urls}")
    for path in found:
        if not os.path.isfile(path):
            raise FileNotFoundError(f"rankpool: there is no tar file {path}")
    return sorted(found, key=lambda path: _place(os.fsencode(os.path.relpath(path, root))))


def _below(root: str) -> List[str]:
    """Returns the shards below a folder, except in hidden folders."""
    found = []
    for at, folders, names in os.walk(root):
        folders[:] = [name for name in folders if not name.startswith(".")]
        found += [os.path.join(at, name) for name in names if _is_shard(name)]
    return found


def _place(path: bytes) -> Tuple[bytes, bytes, bytes]:
    """Returns what the index sorts by: the class (outermost folder), the folder and the name."""
    folder, name = os.path.split(path)
    return folder.partition(b"/")[0], folder, name


def _is_shard(name: str) -> bool:
    return name.lower().endswith(".tar") and not name.startswith(".")


def _braces(text: str) -> List[str]:
    """Returns the texts that a pattern with braces, not nested, stands for."""
    parts: List[List[str]] = []
    while "{" in text:
        before, _, rest = text.partition("{")
        inside, closed, text = rest.partition("}")
        if not closed:
            raise ValueError(f"rankpool: a brace is not closed in {before}{{{rest}")
        first, dots, last = inside.partition("..")
        if dots:
            numbers = range(int(first), int(last) + 1)
            parts += [[before], [f"{n:0{len(first)}}" for n in numbers]]
        else:
            parts += [[before], inside.split(",")]
    return ["".join(one) for one in product(*parts, [text])]


def split_name(path: str) -> Tuple[str, str]:
    """Returns (key, extension) of a member as WebDataset defines them, ("", "") if it belongs to no
    sample."""
    folder, slash, base = path.rpartition("/")
    stem, _, kind = base.partition(".")
    if not stem or "." not in base or (not slash and path.startswith("__") and path.endswith("__")):
        return "", ""
    return folder + slash + stem, kind.lower()


def scan(path: str) -> List[List[Member]]:
    """Returns the members of each sample of a tar file, samples in the order of their first
    members."""
    samples: Dict[str, List[Member]] = {}
    with tarfile.open(path, "r:") as archive:
        for member in archive:
            key, kind = split_name(member.name)
            if not key or not member.isreg():
                continue
            if member.sparse is not None:
                raise ValueError(
                    f"rankpool: {path} has the sparse member {member.name!r}; write it without "
                    "--sparse"
                )
            members = samples.setdefault(key, [])
            if any(kind == other for other, _, _ in members):
                raise ValueError(f"rankpool: {path} has two members {kind!r} of the sample {key!r}")
            members.append((kind, member.offset_data, member.size))
    return list(samples.values())


class Shards:
    """The samples of tar files, by id: read one by one."""

    def __init__(self, paths: List[str]) -> None:
        self._paths = paths
        self._samples = [
            (file, members) for file, path in enumerate(paths) for members in scan(path)
        ]

    def __len__(self) -> int:
        return len(self._samples)

    def read(self, id: int) -> Dict[str, bytes]:
        """Returns the members of a sample by extension."""
        file, members = self._samples[id]
        with open(self._paths[file], "rb") as shard:
            found = {}
            for kind, offset, size in members:
                shard.seek(offset)
                found[kind] = shard.read(size)
                if len(found[kind]) != size:
                    raise OSError(
                        f"rankpool: {self._paths[file]} ends within member {kind!r} of sample {id}"
                    )
        return found
