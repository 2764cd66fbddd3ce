"""Gives code that opens a file by its path the bytes that the cache has of it."""

from __future__ import annotations

import builtins
import io
import os
import threading
from contextlib import contextmanager
from typing import Any, Callable, Iterator, Optional


class _File(io.BytesIO):
    """A sample's bytes as an open file."""

    name, mode = "", "rb"


class Opened:
    """A file that is to be opened in this thread: how often it was, and the error that reading it
    raised."""

    def __init__(self, path: str, read: Callable[[], bytes]) -> None:
        self.path, self._read, self.count = path, read, 0
        self.error: Optional[BaseException] = None

    def open(self, name: Any) -> _File:
        self.count += 1
        try:
            file = _File(self._read())
        except BaseException as error:
            self.error = error
            raise
        file.name = name
        return file

    def names(self, file: Any) -> bool:
        """Returns whether open(file) means this file."""
        if not isinstance(file, (str, os.PathLike)):
            return False
        name = os.fspath(file)
        return name == self.path or (
            os.path.basename(name) == os.path.basename(self.path)
            and os.path.realpath(name) == os.path.realpath(self.path)
        )


class _Here(threading.local):
    opened: Optional[Opened] = None


_here = _Here()
_system_open = io.open


@contextmanager
def opens(path: str, read: Callable[[], bytes]) -> Iterator[Opened]:
    """While the context lasts, open(path) for reading returns what read() does, in this thread."""
    if builtins.open is not _open:
        _replace()
    before, _here.opened = _here.opened, Opened(path, read)
    try:
        yield _here.opened
    finally:
        _here.opened = before


def _replace() -> None:
    """Puts _open before what open() is now, which another library may have replaced too."""
    global _system_open
    _system_open = builtins.open
    builtins.open = io.open = _open


def _open(
    file, mode="r", buffering=-1, encoding=None, errors=None, newline=None, closefd=True,
    opener=None,
):
    opened = _here.opened
    if opened is None or opener or set(mode) - set("rbt") or not opened.names(file):
        return _system_open(file, mode, buffering, encoding, errors, newline, closefd, opener)
    content = opened.open(file)
    return content if "b" in mode else io.TextIOWrapper(content, encoding, errors, newline)
