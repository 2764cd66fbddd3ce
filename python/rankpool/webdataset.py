"""Drop-in for WebDataset's pipelines over tar shards, limited to stages that process single
samples."""

from __future__ import annotations

import os
from functools import partial
from itertools import zip_longest
from typing import Any, Callable, Dict, List, Optional, Tuple, Union

from . import tarfiles
from .dataset import Dataset
from .map_dataset import Served
from .messages import say_once

_PACKED = "rankpool.parquet"  # the manifest in a folder that rankpool pack wrote

Stage = Callable[[Any], Any]


class WebDataset(Served):
    """The samples of tar shards, as dicts of their members by extension: {"jpg": b"…", "cls":
    b"7"}.

        data = rankpool.WebDataset("packed/pack-{000000..000146}.tar")
        data = data.decode("pil").to_tuple("jpg", "cls").map_tuple(transform, None)
        sampler = rankpool.DistributedSampler(data)
        loader = DataLoader(data, batch_size=64, sampler=sampler, num_workers=4)

    `urls` is a pattern with braces, a list of them, or a folder; only paths on storage. Ids follow
    the order of the sorted paths and, within a shard, of the samples. Unlike WebDataset's own, this
    is a map-style data set: a sampler draws from all samples, one by one, and there is no
    `__key__`. decode, to_tuple, map, map_tuple and map_dict each return a new data set with one
    more stage.

    Under `rankpool run --data FOLDER`, the folder of the shards, samples come from the cache.
    Elsewhere the headers of all shards are read first, and samples one by one. `rng` is that of
    rankpool.DatasetFolder.
    """

    def __init__(
        self, urls: Union[str, os.PathLike, List[str]], *, rng: Optional[str] = "sample"
    ) -> None:
        paths = tarfiles.expand(urls)
        folder = isinstance(urls, (str, os.PathLike)) and os.path.isdir(urls)
        super().__init__(
            os.fspath(urls) if folder else os.path.commonpath(list(map(os.path.dirname, paths))),
            rng,
        )
        # (stage, whether it may draw random numbers)
        self._stages: Tuple[Tuple[Stage, bool], ...] = ()
        data = self._find_served()
        reason = data and self._difference(data, paths)
        if reason:
            say_once(f"{self.root} is read from storage: {reason}")
        self._data = None if reason else data
        # rankpool pack adds the class to a sample's files, and does not count it as part of it
        self._packed = (
            self._data is not None
            and list(data.classes) != [""]
            and os.path.exists(os.path.join(self.root, _PACKED))
        )
        # the shard and the members of each sample, where there is no cache
        self._samples = [
            (path, members)
            for path in (paths if self._data is None else ())
            for members in tarfiles.scan(path)
        ]

    def _difference(self, data: Dataset, paths: List[str]) -> str:
        """Returns why the cache's samples are not those of the shards, "" if they are."""
        index = data.index
        for id in filter(index.is_file, range(len(index))):
            return f"sample {id} of the cache is the whole file {os.fsdecode(index.relative(id))}"
        files = list(dict.fromkeys(map(index.relative, range(len(index)))))
        wanted = [os.fsencode(os.path.relpath(path, self.root)) for path in paths]
        if files != wanted:
            return (
                f"the cache serves {len(files)} shards there, and the script names {len(wanted)}, "
                "or others"
            )
        return ""

    def __len__(self) -> int:
        return len(self._data) if self._data is not None else len(self._samples)

    # --- the pipeline ---

    def _then(self, stage: Stage, draws: bool = True) -> WebDataset:
        other = type(self).__new__(type(self))
        other.__dict__.update(self.__getstate__(), _stages=(*self._stages, (stage, draws)))
        return other

    def decode(self, *handlers: Union[str, Callable[[str, bytes], Any]], **options) -> WebDataset:
        """Decodes members by their extensions, with the decoder of the package webdataset, which it
        needs; `map` does not."""
        from webdataset import autodecode

        chosen = [autodecode.ImageHandler(h) if isinstance(h, str) else h for h in handlers]
        return self._then(autodecode.Decoder(chosen, **options))

    def to_tuple(self, *names: str) -> WebDataset:
        """Makes a tuple of members; a name may list alternatives, "jpg;png": the first that the
        sample has.

        Raises KeyError, at the sample, if it has none of them.
        """
        wanted = [name.split(";") for text in names for name in text.split()]
        return self._then(partial(_to_tuple, wanted), draws=False)

    def map(self, function: Callable[[Any], Any]) -> WebDataset:
        """Applies a function to each item."""
        return self._then(function)

    def map_tuple(self, *functions: Optional[Callable[[Any], Any]]) -> WebDataset:
        """Applies the functions to the fields of each item, in order; None leaves one as it is."""
        return self._then(partial(_map_tuple, functions))

    def map_dict(self, **functions: Callable[[Any], Any]) -> WebDataset:
        """Applies functions to members of each sample."""
        return self._then(partial(_map_dict, functions))

    # --- items ---

    def _item(self, index: int) -> Any:
        item: Any = self._members(index)
        if any(draws for _, draws in self._stages):
            self._seed(index)
        for stage, _ in self._stages:
            item = stage(item)
        return item

    def _members(self, index: int) -> Dict[str, bytes]:
        if not -len(self) <= index < len(self):
            raise IndexError(f"rankpool: no sample {int(index)} among {len(self)}")
        if self._data is None:
            return tarfiles.read(*self._samples[index])
        id = int(index) % len(self)
        members = dict(self._data.index.split(id, self._bytes(index)))
        if self._packed and "cls" not in members:
            members["cls"] = b"%d" % self._data.labels[id]
        return members


def _to_tuple(wanted: List[List[str]], members: Dict[str, Any]) -> Tuple[Any, ...]:
    found = []
    for names in wanted:
        name = next((name for name in names if name in members), None)
        if name is None:
            raise KeyError(
                f"rankpool: a sample has the members {sorted(members)}, and none of {names}"
            )
        found.append(members[name])
    return tuple(found)


def _map_tuple(functions: Tuple[Optional[Callable], ...], fields: Tuple[Any, ...]) -> tuple:
    return tuple(
        field if function is None else function(field)
        for function, field in zip_longest(functions[: len(fields)], fields)
    )


def _map_dict(functions: Dict[str, Callable], members: Dict[str, Any]) -> Dict[str, Any]:
    return {
        name: functions[name](member) if name in functions else member
        for name, member in members.items()
    }
