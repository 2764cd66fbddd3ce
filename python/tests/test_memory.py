"""A rank's memory: who keeps it, and to whom a client returns it."""

import os
import socket
import threading

import pytest

from rankpool.memory import BACK_DOOR, MAGIC, NOTE, Memory


@pytest.fixture
def memory():
    fd = os.memfd_create("slab")
    os.truncate(fd, 4096)
    found = Memory(fd)
    yield found
    found.close()


def note(folder, memory, more=0):
    stat = os.fstat(memory.fd)
    (folder / NOTE).write_text(f"{stat.st_dev} {stat.st_ino} {stat.st_size + more}\n")


def test_only_the_memory_that_the_folder_names_is_kept(memory, tmp_path):
    assert not memory.hand_back(str(tmp_path))
    note(tmp_path, memory)
    assert memory.hand_back(str(tmp_path))  # nobody looks for it
    note(tmp_path, memory, 1)
    assert not memory.hand_back(str(tmp_path))
    (tmp_path / NOTE).write_text("something else")
    assert not memory.hand_back(str(tmp_path))


def test_the_memory_is_brought_back(memory, tmp_path):
    note(tmp_path, memory)
    tmp_path.chmod(0o700)
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(str(tmp_path / BACK_DOOR))
        door.listen()
        bringing = threading.Thread(target=memory.hand_back, args=(str(tmp_path),))
        bringing.start()
        with door.accept()[0] as client:
            said, fds, _, _ = socket.recv_fds(client, 16, 2)
        bringing.join()
    assert said == MAGIC and len(fds) == 1 and os.path.sameopenfile(fds[0], memory.fd)
    os.close(fds[0])
    assert memory.hand_back(str(tmp_path))  # the socket is there, and nobody listens
