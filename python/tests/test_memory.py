"""A rank's memory: what a client reads from it without the rank, and to whom it returns it."""

import collections
import os
import random
import socket
import threading
from pathlib import Path

import pytest

from rankpool.memory import BACK_DOOR, MAGIC, NOTE, Memory

GOLDEN = Path(__file__).parents[2] / "docs" / "wire" / "slab_golden.bin"
DIRECTORY = 256  # where it begins there


@pytest.fixture
def memory():
    """A copy of the golden file in memory, and a way to write to it."""
    fd = os.memfd_create("slab")
    os.write(fd, GOLDEN.read_bytes())
    found = Memory(os.dup(fd))
    found.write = lambda at, content: os.pwrite(fd, content, at)
    yield found
    found.close()
    os.close(fd)


def test_whole_samples_are_read(memory):
    assert memory.read(0, 2, 21) == b"the bytes of sample 2"
    assert memory.read(1, 0, 16) == b"those of another"


NOT_THERE = [(0, 0), (0, 1), (1, 1), (0, 3), (2, 0), (-1, 2), (1 << 31, 2)]


@pytest.mark.parametrize("stream, id", NOT_THERE)
def test_what_is_not_there_is_not_read(memory, stream, id):
    assert memory.read(stream, id, 16) is None


def test_other_bytes_are_not_read(memory):
    assert memory.read(0, 2, 20) is None
    assert memory.read(0, 2, 1 << 20) is None
    memory.write(70, b"X")
    assert memory.read(0, 2, 21) is None
    assert memory.read(1, 0, 16) == b"those of another"


def test_memory_without_a_directory():
    fd = os.memfd_create("slab")
    os.write(fd, bytes(4096))
    memory = Memory(fd)
    assert memory.read(0, 0, 1) is None
    memory.close()
    assert memory.read(0, 0, 1) is None


def test_a_directory_that_somebody_wrote_to(memory):
    """A sample has its own bytes or is not there, whatever the directory contains."""
    whole, rng = GOLDEN.read_bytes(), random.Random(1)
    wanted = {(0, 2, 21): b"the bytes of sample 2", (1, 0, 16): b"those of another"}
    seen = collections.Counter()
    for _ in range(5000):
        changed = bytearray(whole)
        for _ in range(rng.randint(1, 3)):
            at = rng.randrange(DIRECTORY, len(whole) - 8)
            if rng.random() < 0.5:
                at = rng.randrange(DIRECTORY, DIRECTORY + 128) & ~7  # header and sets
            at = rng.choice([at, at, len(whole) - 8])
            number = rng.choice([0, 1, 255, 1 << 31, 1 << 62, (1 << 64) - 1, rng.getrandbits(64)])
            width = rng.choice([1, 4, 8])
            changed[at : at + width] = number.to_bytes(8, "little")[:width]
        memory.write(0, bytes(changed))
        again = Memory(os.dup(memory.fd))
        for (stream, id, size), content in wanted.items():
            found = again.read(stream, id, size)
            assert found in (None, content)
            seen[found is None] += 1
        assert again.read(1 << 40, 1 << 40, 16) is None
        again.close()
    assert min(seen[True], seen[False]) > 500, seen


def note(folder, memory, more=0):
    stat = os.fstat(memory.fd)
    (folder / NOTE).write_text(f"{stat.st_dev} {stat.st_ino} {stat.st_size + more}\n")


def test_only_the_memory_that_the_folder_names_is_kept(memory, tmp_path):
    assert not memory.named(str(tmp_path))
    note(tmp_path, memory)
    assert memory.named(str(tmp_path))
    note(tmp_path, memory, 1)
    assert not memory.named(str(tmp_path))
    (tmp_path / NOTE).write_text("something else")
    assert not memory.named(str(tmp_path))


def test_the_memory_is_brought_back(memory, tmp_path):
    memory.hand_back(str(tmp_path))  # nobody looks for it
    tmp_path.chmod(0o700)
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(str(tmp_path / BACK_DOOR))
        door.listen()
        bringing = threading.Thread(target=memory.hand_back, args=(str(tmp_path),))
        bringing.start()
        with door.accept()[0] as client:
            said, fds, _, _ = socket.recv_fds(client, 16, 2)
        bringing.join()
    assert said == MAGIC and len(fds) == 1 and memory.same(fds[0])
    os.close(fds[0])
    memory.hand_back(str(tmp_path))  # the socket is there, and nobody listens
