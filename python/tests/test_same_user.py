"""Who owns a door: other users' folders, links and sockets are refused."""

import os
import subprocess
import sys

import pytest

import rankpool
from rankpool.same_user import check_folder

NOBODY = 65534
IS_ROOT = os.geteuid() == 0


def folder(base, name, mode):
    path = base / name
    path.mkdir()
    path.chmod(mode)
    return path


def link(base, to):
    (base / "link").symlink_to(to)
    return base / "link"


def foreign(path):
    """Makes path another user's; without root, finds one that is."""
    if not IS_ROOT:
        return "/usr"
    os.chown(path, NOBODY, NOBODY, follow_symlinks=False)
    return path


@pytest.mark.parametrize("mode", [0o700, 0o755])
def test_own_folders_are_taken(tmp_path, mode):
    check_folder(str(folder(tmp_path, "s", mode)))


@pytest.mark.parametrize(
    "make, sentence",
    [
        (lambda base: folder(base, "s", 0o777), "with mode drwxrwxrwx"),
        (lambda base: folder(base, "s", 0o1777), "with mode drwxrwxrwt"),
        (lambda base: folder(base, "s", 0o770), "with mode drwxrwx---"),
        (lambda base: folder(base, "s", 0o700) and link(base, "s"), "with mode l"),
        (lambda base: (base / "s").touch() or base / "s", "with mode -rw"),
        (
            lambda base: foreign(folder(base, "s", 0o700)),
            f"must be a folder of user {os.geteuid()} .* belongs to user [0-9]",
        ),
    ],
)
def test_others_may_not_have_made_it(tmp_path, make, sentence):
    with pytest.raises(rankpool.OwnerError, match=sentence):
        check_folder(str(make(tmp_path)))


def test_a_door_in_another_users_folder_is_refused(door):
    """Even if it is the right door, and at any time: the next connection is not made."""
    folder = os.path.dirname(door.path)
    os.chmod(folder, 0o777)
    with pytest.raises(
        rankpool.OwnerError, match="is not safe: .* with mode d......rwx"
    ):
        rankpool.Dataset()
    os.chmod(folder, 0o700)
    data = rankpool.Dataset()
    sampler = rankpool.BatchSampler(data, batch_size=4)
    door.kill()
    os.chmod(folder, 0o777)
    door.start()
    with pytest.raises(rankpool.OwnerError):
        list(sampler)
    os.chmod(folder, 0o700)


@pytest.mark.parametrize("kind", ["folder", "link"])
def test_a_jobs_session_that_another_user_made_is_refused(tmp_path, monkeypatch, kind):
    assert IS_ROOT, "only root makes what is another user's"
    for name in ("RANKPOOL_SOCKET", "RANKPOOL_SESSION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SLURM_JOB_ID", f"{os.getpid()}-{kind}")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    name = f"rankpool-0-slurm{os.getpid()}-{kind}"
    if kind == "folder":
        foreign(folder(tmp_path, name, 0o777))
    else:
        folder(tmp_path, "mine", 0o700)
        (tmp_path / name).symlink_to("mine")
        foreign(tmp_path / name)
    with pytest.raises(
        rankpool.OwnerError,
        match=f"belongs to user {NOBODY}",
    ):
        rankpool.Dataset()


SERVE = """
import os, socket, sys
door = socket.socket(socket.AF_UNIX)
door.bind(sys.argv[1])
os.chmod(sys.argv[1], 0o666)
os.setuid(65534)
door.listen()
print("listens", flush=True)
sys.stdin.read()
"""


def test_a_door_that_another_user_serves_is_refused(tmp_path, monkeypatch):
    assert IS_ROOT, "only root becomes another user"
    path = str(tmp_path / "door.sock")
    monkeypatch.setenv("RANKPOOL_SOCKET", path)
    served = subprocess.Popen(
        [sys.executable, "-c", SERVE, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert served.stdout.readline() == b"listens\n"
        with pytest.raises(
            rankpool.OwnerError, match=f"is served by user {NOBODY}, and you are user 0"
        ):
            rankpool.Dataset()
    finally:
        rankpool.connection._close_all()
        served.communicate()
