"""Drop-in data sets: torchvision's DatasetFolder and ImageFolder, whose bytes come from the cache
when it serves their root."""

from __future__ import annotations

import os
from typing import Any, List, Optional, Tuple

from torchvision.datasets import folder as torchvision

from .dataset import Dataset
from .map_dataset import Served
from .messages import say_once
from .patched_open import opens

Sample = Tuple[str, int]  # the path and the class


class _Listing:
    """torchvision's list of all samples that the cache has, made when somebody looks at it."""

    def __init__(self, data: Dataset, root) -> None:
        self.data, self._root = data, root
        self.numbers: List[int] = []  # of the classes, by label
        self.made: Optional[List[Sample]] = None

    def __len__(self) -> int:
        return len(self.data) if self.made is None else len(self.made)

    def __getitem__(self, index: int) -> Sample:
        if self.made is not None:  # the script may have changed it
            return self.made[index]
        id = range(len(self.data))[index]
        return self.path(id), self.numbers[self.data.labels[id]]

    def path(self, id: int) -> str:
        """Returns the path as torchvision finds it."""
        return os.path.join(self._root, os.fsdecode(self.data.index.relative(id)))

    def has_all(self, extensions) -> bool:
        """Returns whether the index has all files of the class folders that may be samples;
        extensions=None: any file may."""
        index = self.data.index
        if not index.has_all_files or not index.other_kinds:
            return index.has_all_files
        if extensions is None:
            return False
        allowed = {extensions} if isinstance(extensions, str) else set(extensions)
        return allowed <= set(torchvision.IMG_EXTENSIONS) or allowed <= {
            os.path.splitext(self.path(id))[1].lower() for id in range(len(index))
        }


def _list(name: str) -> property:
    """Returns an attribute that is a list for scripts, and a _Listing while torchvision's
    constructor runs."""

    def get(self) -> Any:
        found = vars(self)[name]
        if not (isinstance(found, _Listing) and self._built):
            return found
        if found.made is None:
            found.made = list(found)
        return found.made

    def set(self, samples: Any) -> None:
        vars(self)[name] = samples
        if self._built:
            self._compare()

    return property(get, set)


class DatasetFolder(Served, torchvision.DatasetFolder):
    """torchvision's DatasetFolder, with the option `rng`.

    Under `rankpool run --data ROOT`, samples come from the cache, a batch at a time, if a sampler
    of rankpool draws them; others are read from storage. `loader` gets the path, as in torchvision,
    and whatever it opens there with Python's open() has its bytes from the cache. A loader that
    reads files in another way reads storage, with one warning. So does the data set if it has other
    samples than the cache, or in another order.

    With rng="sample", the generators of Python, NumPy and torch (CPU) are seeded before the
    transforms of a sample that a sampler of rankpool drew, otherwise for each pass over the data,
    draw of the sample and read of the draw. So the tensors are the same with any number of workers
    and trainers, and after a resume. In the training process the generators are restored
    afterwards. rng=None leaves them alone.
    """

    _built = False

    def __init__(self, root, *args: Any, rng: Optional[str] = "sample", **options: Any) -> None:
        Served.__init__(self, os.path.expanduser(root), rng)
        data = self._find_served()
        self._cache = None if data is None else _Listing(data, self.root)  # what it serves there
        self._by_path = False  # the loader cannot use what open() returns
        own = type(self).make_dataset is torchvision.DatasetFolder.make_dataset
        if own:  # for the constructor only
            self.make_dataset = self._from_index
        super(Served, self).__init__(root, *args, **options)
        if own:
            del self.make_dataset
        self._built = True
        self._compare()

    samples, imgs = _list("samples"), _list("imgs")

    def _from_index(
        self, directory, class_to_idx, extensions=None, is_valid_file=None, *args, **options
    ):
        """Returns what torchvision's make_dataset does, without a look at storage if the cache's
        index has all files of the classes."""
        found = self._cache
        if (
            found is not None
            and found.has_all(extensions)
            and class_to_idx.keys() <= set(found.data.classes)
            and (extensions is None) != (is_valid_file is None)
        ):
            labels = found.data.labels
            numbers = found.numbers = list(map(class_to_idx.get, found.data.classes))
            valid = is_valid_file or (
                lambda path: torchvision.has_file_allowed_extension(path, extensions)
            )
            ids = [
                id for id, label in enumerate(labels)
                if numbers[label] is not None and valid(found.path(id))
            ]
            if len({labels[id] for id in ids}) == len(class_to_idx):
                return found if len(ids) == len(labels) else [found[id] for id in ids]
        return torchvision.DatasetFolder.make_dataset(
            directory, class_to_idx, extensions, is_valid_file, *args, **options
        )

    def _compare(self) -> None:
        """Finds out whether these are the samples that the cache serves."""
        self._data = None
        if self._cache is not None:
            reason = self._difference(self._cache)
            if reason:
                say_once(f"{self.root} is read from storage: {reason}")
            else:
                self._data = self._cache.data

    def _difference(self, cache: _Listing) -> str:
        """Returns why the cache's samples are not the data set's, "" if they are."""
        mine, count = vars(self)["samples"], len(cache.data)
        if not cache.data.index.whole_files:
            return "the cache takes its shards or arrays apart (--format files does not)"
        for id, (path, _) in () if mine is cache and cache.made is None else enumerate(mine):
            if id < count and path != cache.path(id):
                return f"sample {id} is {path} here, and {cache.path(id)} in the cache"
        return "" if len(mine) == count else f"it has {len(mine)} samples, and {count} in the cache"

    def __len__(self) -> int:
        mine = vars(self)["samples"]
        if self._data is not None and len(mine) != len(self._data):  # changed in place
            self._compare()
        return len(mine)

    def _item(self, index: int) -> Tuple[Any, Any]:
        path, target = vars(self)["samples"][index]
        try:
            sample = self._load(index, path)
            if self.transform is not None or self.target_transform is not None:
                self._seed(index)
            if self.transform is not None:
                sample = self.transform(sample)
            if self.target_transform is not None:
                target = self.target_transform(target)
        except Exception as error:
            if hasattr(error, "add_note"):  # since Python 3.11
                error.add_note(f"rankpool: the sample is {path}")
            raise
        return sample, target

    def _load(self, index: int, path: str) -> Any:
        """Returns what the loader makes of a sample."""
        count, data = len(vars(self)["samples"]), self._data
        known = data is not None and count == len(data)  # else changed in place
        if self._by_path or not known or path != self._cache.path(range(count)[index]):
            return self.loader(path)
        failed = False
        with opens(path, lambda: self._bytes(index)) as file:
            try:
                sample = self.loader(path)
            except Exception:
                if file.count == 0 or file.error is not None:
                    raise
                failed = True
        if file.error is not None:  # the loader must not hide it
            raise file.error
        if failed:
            sample = self.loader(path)  # or its error: the file's own, or the sample's
            self._by_path = True
            say_once(f"the loader of {self.root} needs a file on storage: it reads past the cache")
        elif file.count == 0:
            say_once(
                f"the loader of {self.root} does not use Python's open(): if it reads files, it "
                "reads storage, past the cache"
            )
        return sample


class ImageFolder(DatasetFolder, torchvision.ImageFolder):
    """torchvision's ImageFolder, with the option `rng`; see rankpool.DatasetFolder."""
