"""Bad input is answered with one sentence about what is wrong, and an exit code that is not
0."""

import os
import re
import shutil
import subprocess

import pytest
import run


# What may be printed besides: the notice of Open MPI 5's mpirun about a rank that fails, which
# cannot be silenced; and what Open MPI's libevent prints if a process ends while its thread still
# has events (open-mpi/ompi#2004).
NOTICE = re.compile(
    r"^-{70,}\nprterun detected that .*?^-{70,}\n"
    r"|^\[warn\] Epoll [^\n]*: Bad file descriptor\n",
    re.M | re.S,
)


@pytest.fixture
def refused(train):
    """refused(patterns…, **way) starts a run that fails; one line of stderr must match all
    patterns."""

    def refused(*patterns, **way):
        result = train(**way)
        assert result.code not in (0, None) and result.code < 128, result.stderr
        said(result.stderr, *patterns)
        return result

    return refused


def said(stderr, *patterns):
    lines = [line for line in stderr.splitlines() if line.startswith("rankpool: ")]
    assert any(all(re.search(pattern, line) for pattern in patterns) for line in lines), stderr


def before_training(result):
    """Asserts that training was not started; a rank's message, which each rank may print, may be
    followed by the launcher's."""
    assert not result.batches and not result.events
    assert len(set(NOTICE.sub("", result.stderr).splitlines())) <= 2, result.stderr


def test_empty_folder(refused, tmp_path):
    (tmp_path / "empty").mkdir()
    before_training(refused(r"empty holds no sample", data=tmp_path / "empty"))


def test_no_such_data(refused, tmp_path):
    before_training(refused(r"nowhere cannot be read: no such file", data=tmp_path / "nowhere"))


@pytest.mark.parametrize("ranks", [1, 2])
def test_more_memory_than_there_is(refused, ranks):
    need = {1: r"900 TiB", 2: r"1\.8 PiB"}[ranks]
    before_training(
        refused(need, r"there are [\d.]+ \wiB", "--memory", memory="900TiB", ranks=ranks)
    )


def test_socket_path_too_long(refused, tmp_path):
    folder = tmp_path / ("long" * 20)
    folder.mkdir()
    before_training(
        refused(r"socket path .* 107 .*--runtime-dir", options=["--runtime-dir", folder])
    )


def test_no_command(refused):
    before_training(refused(r"which training command\? give it after --", command=[]))


@pytest.mark.parametrize("ranks", [1, 2])
def test_unknown_sampler(refused, ranks):
    refused(
        r'unknown sampler "best", the known ones are .*pads.*torch', ranks=ranks,
        args=["--sampler", "best"],
    )


def test_ranks_without_mpi(refused):
    sentence = r"4 ranks need MPI, and no MPI library can be loaded \(no /no/libmpi.so is there, .*load an MPI module"
    before_training(refused(sentence, ranks=4, env={"RANKPOOL_MPI_LIBRARY": "/no/libmpi.so"}))


def test_launcher_that_tells_nothing(refused, tmp_path):
    """It starts processes that are each alone in a world of their own, and nothing in their
    environment shows it."""
    mpirun = tmp_path / "mpirun"
    mpirun.write_text(
        """#!/bin/sh
[ "$1" = --version ] && exec echo "mpirun (Open MPI) 4.1.4"
while [ "$1" != -n ]; do shift; done
shift 2
"$@" & "$@"
"""
    )
    mpirun.chmod(0o755)
    sentence = "rankpool run started 2 tasks, but MPI sees 1: the launcher and the MPI library .* do not fit"
    env = {"RANKPOOL_MPI_LIBRARY": "", "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    before_training(refused(sentence, ranks=2, env=env))


@pytest.mark.parametrize(
    "library, patterns",
    [
        ("/no/libmpi.so", ["no MPI library can be loaded", "/no/libmpi.so", "load an MPI module"]),
        (
            "libmpich.so.12",
            [
                "Open MPI's mpirun started 4 tasks, but MPI sees 1",
                "libmpich.so.12, since RANKPOOL_MPI_LIBRARY",
            ],
        ),
    ],
)
def test_silent_singletons(tree, tmp_path, library, patterns):
    env = {**os.environ, **run.MPIRUN_ENV}
    env["RANKPOOL_MPI_LIBRARY"] = library
    command = [run.RANKPOOL, "run", "--data", tree, "--runtime-dir", tmp_path, "--", "true"]
    done = subprocess.run(
        ["mpirun.openmpi", "--oversubscribe", "-n", "4", *command],
        env=env, capture_output=True, text=True, timeout=run.PATIENCE_SECONDS,
    )  # fmt: skip
    assert done.returncode != 0
    said(done.stderr, *patterns)


@pytest.mark.parametrize(
    "option, values",
    [("--seed", (0, 1)), ("--batch-size", (12, 6)), ("--sampler", ("pads", "torch"))],
)
def test_trainers_that_disagree(refused, option, values):
    script = f'[ $RANK = 0 ] && value={values[0]} || value={values[1]}; exec "$@" {option} $value'
    field, (a, b) = option[2:].replace("-", "_"), values
    either = rf"trainer (0 has {field} {a}, trainer 1 has {b}|1 has {field} {b}, trainer 0 has {a})"
    command = ["sh", "-c", script, "sh", *run.training(["--epochs", 1], trainers=2)]
    refused("the trainers disagree", either, ranks=2, command=command)


# --- storage that changes ---


@pytest.fixture
def copy(tree, tmp_path):
    return shutil.copytree(tree, tmp_path / "copy")  # with modification times


def spoil(path):
    path.write_bytes(path.read_bytes()[:-1])


@pytest.mark.parametrize("harm, why", [(spoil, r"has \d+ bytes"), (os.unlink, "is missing")])
def test_file_changes_in_mid_run(start, copy, harm, why):
    one = start(
        data=copy, ranks=2, memory="0", args=["--epochs", 100, "--sampler", "torch"], pause=[3]
    )
    one.wait_for_batches(3)
    victim = copy / "b" / "00031.png"  # the 11th of the second class
    harm(victim)
    one.go(3)
    result = one.finish()
    assert result.code != 0
    said(result.stderr, rf"sample 130 \({victim}\)", why)


def index(folder, manifest):
    subprocess.run(
        [run.RANKPOOL, "index", folder, "-o", manifest], check=True, stdout=subprocess.DEVNULL
    )
    return manifest


def test_manifest_of_files_that_changed(refused, copy, tmp_path):
    manifest = index(copy, tmp_path / "m.parquet")
    spoil(copy / "b" / "00031.png")
    refused(
        r"sample 130 \(.*/b/00031.png\)", "index the data set again", data=manifest,
        args=["--sampler", "torch"],
    )


def test_manifest_of_a_folder_that_moved(refused, copy, tmp_path):
    manifest = index(copy, tmp_path / "m.parquet")
    copy.rename(tmp_path / "moved")
    before_training(
        refused(r"m.parquet does not describe .*copy: .*a/00000.png is missing", data=manifest)
    )


def test_manifest_of_another_data_set(refused, copy, tmp_path):
    manifest = index(copy, tmp_path / "m.parquet")
    shutil.rmtree(copy)
    other = copy / "a" / "00000.png"
    other.parent.mkdir(parents=True)
    other.write_bytes(b"another")
    before_training(refused(r"m.parquet does not describe", data=manifest))
