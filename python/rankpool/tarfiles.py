"""The samples of tar shards, found as rankpool's index does (staging/shards), without a cache."""

from __future__ import annotations

import os
import re
import tarfile
from typing import Dict, List, Tuple, Union

Member = Tuple[str, int, int]  # extension, offset in the file, size in bytes

# Source: WebDataset, tariterators.py, base_plus_ext and tar_file_iterator.
_NAME = re.compile(r"((?:.*/|)[^.]+)[.]([^/]*)")
_META = re.compile(r"__[^/]*__(/|$)")
_BRACES = re.compile(r"\{(\d+)\.\.(\d+)\}|\{([^{}]*,[^{}]*)\}")


def expand(urls: Union[str, os.PathLike, List[str]]) -> List[str]:
    """Returns the paths that urls names: a folder's *.tar, or patterns such as "a-{000..146}.tar",
    "{a,b}.tar" and "a.tar::b.tar", in the order of rankpool's index.

    Raises ValueError for what is not a path, such as "http:…" and "pipe:…", FileNotFoundError for a
    file that is not there.
    """
    texts = [urls] if isinstance(urls, (str, os.PathLike)) else urls
    texts = [text for one in texts for text in os.fspath(one).split("::")]
    if len(texts) == 1 and os.path.isdir(texts[0]):
        root, found = texts[0], []
        for at, folders, names in os.walk(root):  # linked and hidden folders are left out
            folders[:] = [name for name in folders if not name.startswith(".")]
            found += [
                os.path.join(at, name) for name in names
                if name.lower().endswith(".tar") and not name.startswith(".")
            ]  # fmt: skip
    else:
        for text in texts:
            if ":" in text.partition("/")[0]:
                raise ValueError(f"rankpool: WebDataset reads tar files on storage, not {text!r}")
        found = [path for text in texts for path in braces(text)]
        parents = [os.path.dirname(os.path.abspath(path)) for path in found]
        root = os.path.commonpath(parents or ["."])
    if not found:
        raise FileNotFoundError(f"rankpool: there is no tar file in {urls}")
    for path in found:
        if not os.path.isfile(path):
            raise FileNotFoundError(f"rankpool: there is no tar file {path}")
    return sorted(found, key=lambda path: _place(os.fsencode(os.path.relpath(path, root))))


def _place(path: bytes) -> Tuple[bytes, bytes, bytes]:
    """Returns what the index sorts by: the class (outermost folder), the folder and the name."""
    folder, name = os.path.split(path)
    return folder.partition(b"/")[0], folder, name


def braces(text: str) -> List[str]:
    """Returns the texts that a pattern with braces stands for: {000..146} and {a,b}."""
    found = _BRACES.search(text)
    before, after = (text, "") if found is None else (text[: found.start()], text[found.end() :])
    if "{" in before:
        raise ValueError(
            f"rankpool: {text!r} has other braces than those of {{000..146}} and {{a,b}}: give a "
            "list of paths"
        )
    if found is None:
        return [text]
    first, last, several = found.groups()
    inside = several.split(",") if several else _numbers(first, last)
    return [before + one + rest for one in inside for rest in braces(after)]


def _numbers(first: str, last: str) -> List[str]:
    padded = any(one.startswith("0") and one != "0" for one in (first, last))
    width = max(len(first), len(last)) if padded else 0
    way = 1 if int(first) <= int(last) else -1
    return [f"{number:0{width}}" for number in range(int(first), int(last) + way, way)]


def split_name(path: str) -> Tuple[str, str]:
    """Returns (key, extension) of a member as WebDataset defines them, ("", "") if it belongs to no
    sample."""
    found = _NAME.fullmatch(path)
    if found is None or _META.match(path):
        return "", ""
    return found[1], found[2].lower()


def scan(path: str) -> List[List[Member]]:
    """Returns the members of each sample of a tar file: neighbours with the same key. Raises
    ValueError for a file that is damaged, or not read here."""
    samples: List[List[Member]] = []
    last = None
    try:
        with tarfile.open(path, "r:") as archive:
            for member in archive:
                key, kind = split_name(member.name)
                if not key or not member.isreg():
                    continue
                if member.sparse is not None:
                    raise ValueError(f"sparse member {member.name!r}; write it without --sparse")
                if key != last:
                    samples.append([])
                    last = key
                if any(kind == other for other, _, _ in samples[-1]):
                    raise ValueError(f"two members {kind!r} of the sample {key!r}")
                samples[-1].append((kind, member.offset_data, member.size))
            archive.fileobj.seek(archive.offset)
            if archive.fileobj.read(tarfile.BLOCKSIZE) != bytes(tarfile.BLOCKSIZE):
                raise ValueError(f"truncated or damaged: no end mark at byte {archive.offset}")
    except (tarfile.ReadError, ValueError) as error:
        more = ": if it is compressed, unpack it" if isinstance(error, tarfile.ReadError) else ""
        raise ValueError(f"rankpool: the shard {path} cannot be read ({error}){more}") from None
    return samples


def read(path: str, members: List[Member]) -> Dict[str, bytes]:
    """Returns the members of a sample by extension."""
    found = {}
    with open(path, "rb") as shard:
        for kind, offset, size in members:
            shard.seek(offset)
            found[kind] = shard.read(size)
            if len(found[kind]) != size:
                raise OSError(f"rankpool: {path} ends within the member {kind!r} of a sample")
    return found
