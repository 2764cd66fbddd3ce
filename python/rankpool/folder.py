"""Drop-in data sets: torchvision's DatasetFolder and ImageFolder, which read from the cache when it
serves their root."""

from __future__ import annotations

import io
import os
from typing import Any, Callable, Dict, List, Optional, Tuple, Union

from .dataset import Dataset
from .served import Served, say_once

IMG_EXTENSIONS = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")

def pil_loader(file) -> Any:
    """Returns the image in a file, or at a path, as torchvision's default loader does."""
    from PIL import Image

    if isinstance(file, (str, bytes, os.PathLike)):
        with open(file, "rb") as opened:
            return Image.open(opened).convert("RGB")
    return Image.open(file).convert("RGB")


class DatasetFolder(Served):
    """torchvision's DatasetFolder, with its signature, attributes and items (sample, target).

    Under `rankpool run --data ROOT`, samples come from the cache, a batch at a time, if a sampler
    of rankpool draws them; others are read from storage. If the cache does not serve the root, or
    has other samples for it, the root is read from storage, with one warning. `loader` gets a
    file-like object (with `.name`, the path); a loader that cannot use it gets the path instead and
    so bypasses the cache, with one warning.

    With rng="sample", the generators of Python, NumPy and torch (CPU) are seeded before the
    transforms of a sample that a sampler of rankpool drew, otherwise for each pass over the data,
    draw of the sample and read of the draw. So the tensors are the same with any number of workers
    and trainers, and after a resume. In the training process the generators are restored
    afterwards. rng=None leaves them alone.
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
            raise ValueError(
                "Both extensions and is_valid_file cannot be None or not None at the same time"
            )
        super().__init__(os.path.expanduser(root) if isinstance(root, str) else root, rng)
        self.loader, self.extensions = _known(loader), extensions
        self.transform, self.target_transform = transform, target_transform
        self._by_path = False  # the loader accepts nothing else
        self.classes, self.class_to_idx = self.find_classes(self.root)
        self._samples: Optional[List[Tuple[str, int]]] = None
        self._targets: Optional[List[int]] = None
        valid = _validity(extensions, is_valid_file)
        self._data = self._find_served(lambda data: self._difference(data, valid, allow_empty))
        if self._data is None:
            self._samples = self.make_dataset(
                self.root, self.class_to_idx, extensions, is_valid_file, allow_empty
            )

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
            for folder, _, files in sorted(
                os.walk(os.path.join(directory, name), followlinks=True)
            ):
                paths = (os.path.join(folder, file) for file in sorted(files))
                found += [(path, class_to_idx[name]) for path in paths if valid(path)]
            if len(found) == before:
                empty.append(name)
        if empty and not allow_empty:
            raise FileNotFoundError(f"Found no valid file for the classes {', '.join(empty)}.")
        return found

    # --- what the cache serves ---

    def _difference(self, data: Dataset, valid: Callable[[str], bool], allow_empty: bool) -> str:
        """Returns why the cache's samples are not those that torchvision would find, "" if they
        are."""
        if list(data.classes) != self.classes:
            return (
                f"the cache has {len(data.classes)} classes, and the folder {len(self.classes)}, "
                "or others"
            )
        if any(self.class_to_idx[name] != i for i, name in enumerate(self.classes)):
            return "its classes have other numbers than their places"
        index = data.index
        for id in range(len(index)):
            path = os.fsdecode(index.relative(id))
            if not index.is_file(id):
                return f"sample {id} is a part of {path}"
            if not valid(path):
                return f"{path}, which the cache serves, is not a sample here"
        if not allow_empty and len(set(data.labels)) < len(self.classes):
            return "a class has no files"  # an error of make_dataset
        return ""

    # --- torchvision's attributes ---

    @property
    def samples(self) -> List[Tuple[str, int]]:
        """The (path, class) of each sample."""
        if self._samples is None:
            self._samples = [
                (self._path(id), target) for id, target in enumerate(self._data.labels)
            ]
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
            self._targets = (
                [s[1] for s in self._samples] if self._data is None else list(self._data.labels)
            )
        return self._targets

    @targets.setter
    def targets(self, targets: List[int]) -> None:
        self._targets = targets

    def __len__(self) -> int:
        if self._samples is None:
            return len(self._data)
        if self._data is not None and len(self._samples) != len(self._data):
            self.samples = self._samples
        return len(self._samples)

    # --- items ---

    def _item(self, index: int) -> Tuple[Any, Any]:
        sample, target = self._load(index)
        if self.transform is None and self.target_transform is None:
            return sample, target
        self._seed(index)
        if self.transform is not None:
            sample = self.transform(sample)
        if self.target_transform is not None:
            target = self.target_transform(target)
        return sample, target

    def _load(self, index: int) -> Tuple[Any, int]:
        """Returns what the loader makes of a sample, and its class."""
        if self._samples is not None:  # the script has seen the list, and may have changed it
            path, target = self._samples[index]
            whole = self._data is not None and len(self._samples) == len(self._data)
            if not whole or self._by_path or path != self._path(index):
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
            root, loader, extensions, transform, target_transform, is_valid_file, allow_empty,
            rng=rng,
        )

    @property
    def imgs(self) -> List[Tuple[str, int]]:
        """The (path, class) of each sample."""
        return self.samples


class _File(io.BytesIO):
    """A sample's bytes as an open file; `name` is its path."""

    def __init__(self, content: bytes, name: str) -> None:
        super().__init__(content)
        self.name = name


def _known(loader: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Replaces torchvision's own loader, which accepts only paths, by ours."""
    home, name = getattr(loader, "__module__", ""), getattr(loader, "__name__", "")
    return (
        pil_loader
        if home == "torchvision.datasets.folder" and name in ("default_loader", "pil_loader")
        else loader
    )


def _validity(extensions, is_valid_file) -> Callable[[str], bool]:
    if is_valid_file is not None:
        return is_valid_file
    wanted = extensions if isinstance(extensions, str) else tuple(extensions)
    return lambda path: path.lower().endswith(wanted)


