"""Drop-in data sets: torchvision's DatasetFolder and ImageFolder, which read from the cache when it serves their root."""

from __future__ import annotations

import io
import os
import sys
from typing import Any, Callable, Dict, List, Optional, Tuple, Union

from torch.utils.data import Dataset as TorchDataset
from torch.utils.data import get_worker_info

from . import session
from .batch import Batch, Index, ask, take
from .connection import connection
from .dataset import Dataset, data_sets
from .seeding import keep, number_of, seed_all

IMG_EXTENSIONS = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")

_said = set()


def say_once(text: str) -> None:
    """Prints a sentence on stderr, once a trainer."""
    worker = get_worker_info()
    if text not in _said and (worker is None or worker.id == 0):
        print(f"rankpool: {text}", file=sys.stderr, flush=True)
    _said.add(text)


def pil_loader(file) -> Any:
    """Returns the image in a file, or at a path, as torchvision's default loader does."""
    from PIL import Image

    if isinstance(file, (str, bytes, os.PathLike)):
        with open(file, "rb") as opened:
            return Image.open(opened).convert("RGB")
    return Image.open(file).convert("RGB")


class DatasetFolder(TorchDataset):
    """torchvision's DatasetFolder, with its signature, attributes and items (sample, target).

    Under `rankpool run --data ROOT` samples come from the cache, a batch at a time, when a sampler of rankpool draws them;
    others are read from storage. A root that the cache does not serve as these samples is read from storage, which is said
    once. `loader` gets a file-like object (with `.name`, the path); one that cannot use it gets the path, and then
    reads past the cache, which is said once.

    With rng="sample" the generators of Python, NumPy and torch (CPU) are seeded from (seed, epoch, sample, k) before the
    transforms of a sample that a sampler of rankpool drew, its k-th draw in the epoch: the same tensors with any number of workers
    and trainers, and after a resume. rng=None leaves them alone. In the training process they are restored afterwards.
    """

    def __init__(
        self,
        root: Union[str, os.PathLike],
        loader: Callable[[Any], Any],
        extensions: Optional[Union[str, Tuple[str, ...]]] = None,
        transform: Optional[Callable] = None,
        target_transform: Optional[Callable] = None,
        is_valid_file: Optional[Callable[[str], bool]] = None,
        allow_empty: bool = False,
        *,
        rng: Optional[str] = "sample",
    ) -> None:
        if (extensions is None) == (is_valid_file is None):
            raise ValueError("Both extensions and is_valid_file cannot be None or not None at the same time")
        if rng not in ("sample", None):
            raise ValueError(f'rankpool: rng must be "sample" or None, not {rng!r}')
        self.root = os.path.expanduser(root) if isinstance(root, str) else root
        self.loader, self.extensions, self.rng = _known(loader), extensions, rng
        self.transform, self.target_transform = transform, target_transform
        self._by_path = False  # the loader takes nothing else
        self._reader: Optional[_Reader] = None
        self._restore: Optional[Callable[[], None]] = None  # puts the script's generators back: not yet
        self.classes, self.class_to_idx = self.find_classes(self.root)
        self._samples: Optional[List[Tuple[str, int]]] = None
        self._targets: Optional[List[int]] = None
        self._data = self._find_served(_validity(extensions, is_valid_file))
        if self._data is None:
            self._samples = self.make_dataset(self.root, self.class_to_idx, extensions, is_valid_file, allow_empty)

    def find_classes(self, directory) -> Tuple[List[str], Dict[str, int]]:
        """Returns the class folders, sorted, and the number of each."""
        classes = sorted(entry.name for entry in os.scandir(directory) if entry.is_dir())
        if not classes:
            raise FileNotFoundError(f"Couldn't find any class folder in {directory}.")
        return classes, {name: i for i, name in enumerate(classes)}

    @staticmethod
    def make_dataset(
        directory, class_to_idx, extensions=None, is_valid_file=None, allow_empty=False
    ) -> List[Tuple[str, int]]:
        """Returns (path, class) of each sample, in the order that torchvision gives them."""
        valid, found, empty = _validity(extensions, is_valid_file), [], []
        for name in sorted(class_to_idx):
            before = len(found)
            for folder, _, files in sorted(os.walk(os.path.join(directory, name), followlinks=True)):
                paths = (os.path.join(folder, file) for file in sorted(files))
                found += [(path, class_to_idx[name]) for path in paths if valid(path)]
            if len(found) == before:
                empty.append(name)
        if empty and not allow_empty:
            raise FileNotFoundError(f"Found no valid file for the classes {', '.join(empty)}.")
        return found

    # --- what the cache serves ---

    def _find_served(self, valid: Callable[[str], bool]) -> Optional[Dataset]:
        """Returns the cache's data set that has exactly these samples, None when there is none."""
        if not session.launched():
            return None
        door = session.door()
        root = os.path.realpath(self.root)
        names = [d["name"] for d in data_sets(door) if os.path.realpath(d["root"]) == root]
        if not names:
            say_once(f"the cache does not serve {self.root}: it is read from storage (give it to `rankpool run --data`)")
            return None
        data = Dataset(names[0])
        reason = self._difference(data, valid)
        if reason:
            say_once(f"{self.root} is read from storage: {reason}")
            return None
        return data

    def _difference(self, data: Dataset, valid: Callable[[str], bool]) -> str:
        """Says why the cache's samples are not those that torchvision would find, "" when they are."""
        if list(data.classes) != self.classes:
            return f"the cache has {len(data.classes)} classes, and the folder {len(self.classes)}, or others"
        if any(self.class_to_idx[name] != i for i, name in enumerate(self.classes)):
            return "its classes have other numbers than their places"
        index = data.index
        for id in range(len(index)):
            path = os.fsdecode(index.relative(id))
            if not index.is_file(id):
                return f"sample {id} is a part of {path}"
            if not valid(path):
                return f"{path}, which the cache serves, is no sample here"
        return ""

    # --- what torchvision's has ---

    @property
    def samples(self) -> List[Tuple[str, int]]:
        """The (path, class) of each sample."""
        if self._samples is None:
            self._samples = [(self._path(id), target) for id, target in enumerate(self._data.labels)]
        return self._samples

    @samples.setter
    def samples(self, samples: List[Tuple[str, int]]) -> None:
        if self._data is not None:
            say_once(f"{self.root} is read from storage: the script gave it other samples")
        self._samples, self._data = samples, None

    @property
    def targets(self) -> List[int]:
        """The class of each sample."""
        if self._targets is None:
            self._targets = [s[1] for s in self._samples] if self._data is None else list(self._data.labels)
        return self._targets

    @targets.setter
    def targets(self, targets: List[int]) -> None:
        self._targets = targets

    def __len__(self) -> int:
        return len(self._data) if self._data is not None else len(self._samples)

    def __getstate__(self) -> dict:
        return {**self.__dict__, "_reader": None, "_restore": None}

    # --- items ---

    def __getitem__(self, index: int) -> Tuple[Any, Any]:
        if not self._restores(index):
            return self._item(index)
        self._restore = self._restore or keep()
        last = not index.batch.together or index.place == len(index.batch) - 1
        try:
            return self._item(index)
        except BaseException:
            last = True
            raise
        finally:
            if last:
                self._end()

    def __getitems__(self, indices: List[int]) -> List[Tuple[Any, Any]]:
        """Returns the items of a batch, as torch 2 asks for them."""
        if any(map(self._restores, indices)):
            self._restore = self._restore or keep()
        try:
            return [self._item(index) for index in indices]
        finally:
            self._end()

    def _restores(self, index: int) -> bool:
        """Returns whether the generators are put back after this item: no others' are in a worker."""
        return self._seeds(index) and get_worker_info() is None

    def _end(self) -> None:
        restore, self._restore = self._restore, None
        if restore is not None:
            restore()

    def _seeds(self, index: int) -> bool:
        return self.rng is not None and isinstance(index, Index)

    def _item(self, index: int) -> Tuple[Any, Any]:
        sample, target = self._load(index)
        if self.transform is None and self.target_transform is None:
            return sample, target
        if self._seeds(index):
            batch = index.batch
            k = batch.repeats[index.place] if batch.repeats else 0
            seed_all(number_of(batch.spec.seed, batch.epoch, int(index), k))
        if self.transform is not None:
            sample = self.transform(sample)
        if self.target_transform is not None:
            target = self.target_transform(target)
        return sample, target

    def _load(self, index: int) -> Tuple[Any, int]:
        """Returns what the loader makes of a sample, and its class."""
        if self._samples is not None:  # the script has seen the list, and may have changed it
            path, target = self._samples[index]
            if self._data is None or self._by_path or path != self._path(index):
                return self.loader(path), target
        elif self._by_path:
            return self.loader(self._path(index)), self._data.labels[index]
        else:
            path, target = self._path(index), self._data.labels[index]
        file = _File(self._bytes(index), path)
        try:
            return self.loader(file), target
        except Exception:
            sample = self.loader(path)  # or its error: the file's own, or the sample's
        self._by_path = True
        say_once(f"the loader of {self.root} takes paths only: it reads storage, past the cache")
        return sample, target

    def _path(self, index: int) -> str:
        """Returns the path as `samples` has it."""
        if index < 0:
            index += len(self)
        if not 0 <= index < len(self):
            raise IndexError(f"rankpool: no sample {index} among {len(self)}")
        return os.path.join(self.root, os.fsdecode(self._data.index.relative(index)))

    def _bytes(self, index: int) -> bytes:
        if isinstance(index, Index) and index.batch.stream >= 0 and index.batch.spec.data == self._data.name:
            if self._reader is None or self._reader.pid != os.getpid():
                self._reader = _Reader(self._data)
            return self._reader.read(index.batch, index.place)
        say_once(
            f"samples of {self.root} are read from storage one by one, because no sampler of rankpool draws them "
            "in whole batches"
        )
        return self._data.index.read(int(index) % len(self))


class ImageFolder(DatasetFolder):
    """torchvision's ImageFolder: images in class folders; see DatasetFolder."""

    def __init__(
        self,
        root: Union[str, os.PathLike],
        transform: Optional[Callable] = None,
        target_transform: Optional[Callable] = None,
        loader: Callable[[Any], Any] = pil_loader,
        is_valid_file: Optional[Callable[[str], bool]] = None,
        allow_empty: bool = False,
        *,
        rng: Optional[str] = "sample",
    ) -> None:
        extensions = IMG_EXTENSIONS if is_valid_file is None else None
        super().__init__(
            root, loader, extensions, transform, target_transform, is_valid_file, allow_empty, rng=rng
        )

    @property
    def imgs(self) -> List[Tuple[str, int]]:
        """The (path, class) of each sample."""
        return self.samples


class _Reader:
    """The batch that this process reads: asked for at once, its samples given one by one."""

    def __init__(self, data: Dataset) -> None:
        self._data, self._batch, self._samples, self._left = data, None, None, 0
        self.pid = os.getpid()  # a forked worker begins with its own

    def read(self, batch: Batch, place: int) -> bytes:
        """Returns the bytes of the sample at a place of a batch; raises SampleError when it cannot be read."""
        if batch is not self._batch:
            self._close()
            link = self._data._connection(batch)
            self._samples = take(link, self._data.index, batch, ask(link, [batch])[0])
            self._batch, self._left = batch, len(batch)
        content = bytes(self._samples.views[place])
        if self._samples.lost():  # the cache went away meanwhile: they may be other bytes
            content = self._data.index.read(batch[place])
        self._left -= 1
        if not self._left:
            self._close()
        return content

    def _close(self) -> None:
        """Gives the lease back, and tells what was counted."""
        if self._batch is not None:
            batch, self._batch = self._batch, None
            self._samples.close()
            self._samples = None
            link = connection(self._data.door, batch.spec.trainer, batch.spec.world)
            link.send_tally(link.tally(batch.stream, batch.epoch))


class _File(io.BytesIO):
    """A sample's bytes as an open file; `name` is its path."""

    def __init__(self, content: bytes, name: str) -> None:
        super().__init__(content)
        self.name = name


def _known(loader: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Returns our loader for torchvision's own, which takes paths only."""
    home, name = getattr(loader, "__module__", ""), getattr(loader, "__name__", "")
    return pil_loader if home == "torchvision.datasets.folder" and name in ("default_loader", "pil_loader") else loader


def _validity(extensions, is_valid_file) -> Callable[[str], bool]:
    if is_valid_file is not None:
        return is_valid_file
    wanted = extensions if isinstance(extensions, str) else tuple(extensions)
    return lambda path: path.lower().endswith(wanted)


