"""A trainer that grows until its control group is full: the cache gives memory back, and the job lives."""

import os
import sys
from pathlib import Path

import pytest
from test_memory import GROUP, MIB

SAMPLES, SAMPLE_BYTES = 1600, 150_000  # 229 MiB
LIMIT, SLAB = 512 * MIB, 256 * MIB
TAKE = 256 * MIB  # with the slab, Python and the rank some 100 MiB more than the limit

@pytest.fixture(scope="module")
def large_tree(tmp_path_factory):
    root = tmp_path_factory.mktemp("large")
    (root / "a").mkdir()
    for i in range(SAMPLES):
        (root / "a" / f"{i:05}").write_bytes(os.urandom(SAMPLE_BYTES))
    return root


def test_slab_shrinks_and_the_job_lives(start, large_tree):
    """Where no control group can be made there is nothing that kills: then only the stream is compared, and the Go tests shrink."""
    command = [sys.executable, Path(__file__).parent / "hungry.py"]
    options = ["--log-every", "1s"]
    calm = start(data=large_tree, memory=SLAB, options=options, command=command).finish()
    assert calm.code == 0, calm.stderr

    def hungry():
        return start(data=large_tree, memory=SLAB, options=options, command=[*command, "--take-mib", TAKE // MIB]).finish()

    if GROUP is None:
        result = hungry()
    else:
        with GROUP.limited(LIMIT):
            result = hungry()
    assert result.code == 0, result.stderr
    assert result.digest == calm.digest
    fallback = sum(event["fallback_reads"] for event in result.epochs)
    assert fallback == 0, result.events
    if GROUP is not None:
        slab = [event["slab_bytes"] for event in result.events if event["event"] == "node"]
        assert slab[-1] < SLAB * 3 // 4 and slab == sorted(slab, reverse=True), slab
        assert "the cache gives some back" in result.stderr, result.stderr
        assert result.epochs[2]["hits_local"] > 0
