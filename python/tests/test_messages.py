"""Messages reach stderr if it has a reader, and block nothing if it has none."""

import ast
import io
import os
import sys
from pathlib import Path

import pytest

from rankpool import messages

PACKAGE = Path(messages.__file__).parent


@pytest.mark.parametrize("module", sorted(PACKAGE.glob("*.py")), ids=lambda path: path.name)
def test_only_this_module_prints(module):
    """A print to a pipe that is full waits, and training with it."""
    calls = [
        node.lineno
        for node in ast.walk(ast.parse(module.read_text(encoding="utf-8")))
        if isinstance(node, ast.Name) and node.id == "print"
        or isinstance(node, ast.Attribute) and node.attr in ("stderr", "stdout")
    ]
    # those of pieces are programs whose output is a table
    allowed = "messages.py", "pieces.py", "learning.py"
    assert not calls or module.name in allowed, f"lines {calls}"


def fill(write):
    os.set_blocking(write, False)
    try:
        while True:
            os.write(write, b"x" * 4096)
    except BlockingIOError:
        os.set_blocking(write, True)


def test_nobody_reads(monkeypatch):
    read, write = os.pipe()
    with os.fdopen(read, "rb", 0) as reader, os.fdopen(write, "w") as stderr:
        monkeypatch.setattr(sys, "stderr", stderr)
        fill(write)
        messages.say("one")
        reader.read(1 << 20)
        messages.say("two")
        assert reader.read(1 << 20) == b"rankpool: two\n"


def test_nobody_has_it_open(monkeypatch):
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "w") as stderr:
        monkeypatch.setattr(sys, "stderr", stderr)
        messages.say("one")  # and no BrokenPipeError


@pytest.mark.parametrize("stderr", [None, io.StringIO()])
def test_stderr_without_a_descriptor(monkeypatch, stderr):
    monkeypatch.setattr(sys, "stderr", stderr)
    messages.say("hello")
    assert stderr is None or stderr.getvalue() == "rankpool: hello\n"
