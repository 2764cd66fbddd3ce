"""The network is cut for good, for one node or only between two: training continues as far as it is
planned, and then ends with a sentence."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import run

SCRIPT = """
import os, time, rankpool
data = rankpool.Dataset()
sampler = rankpool.BatchSampler(data, 12)
with open("trained-" + os.environ["RANK"], "w") as trained:
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for samples in data.batches(sampler):
            sampler.report(list(samples.ids), [1.0] * len(samples.ids))
            print(epoch, sampler.batch, file=trained, flush=True)
            while epoch == 0 and sampler.batch == 5 and not os.path.exists("go"):
                time.sleep(0.01)
"""
SAMPLES = 360  # a trainer has 12 of a batch


def ip(*words):
    subprocess.run(["ip", *map(str, words)], check=True)


@pytest.fixture
def nodes():
    """The addresses of three network namespaces; needs root."""
    mark, net = f"e{os.getpid()}", f"10.{100 + os.getpid() % 100}.{os.getpid() // 100 % 250}"
    bridge = f"b{mark}"
    try:
        ip("link", "add", bridge, "type", "bridge")
        ip("addr", "add", f"{net}.254/24", "dev", bridge)
        ip("link", "set", bridge, "up")
        for n in (1, 2, 3):
            ip("netns", "add", f"{mark}-{n}")
            ip(
                "link", "add", f"v{mark}-{n}", "type", "veth", "peer", "name", "eth0", "netns",
                f"{mark}-{n}",
            )
            ip("link", "set", f"v{mark}-{n}", "master", bridge, "up")
            ip("-n", f"{mark}-{n}", "addr", "add", f"{net}.{n}/24", "dev", "eth0")
            for device in ("lo", "eth0"):
                ip("-n", f"{mark}-{n}", "link", "set", device, "up")
        yield mark, net
    finally:
        for n in (1, 2, 3):
            subprocess.run(["ip", "netns", "del", f"{mark}-{n}"], check=False)
            subprocess.run(["ip", "link", "del", f"v{mark}-{n}"], check=False)
            shutil.rmtree(f"/tmp/{mark}-{n}", ignore_errors=True)
        subprocess.run(["ip", "link", "del", bridge], check=False)


def begin(nodes, tree, tmp_path, count):
    """Starts a training on nodes 1 to count, and waits until each trainer has had five batches."""
    mark, net = nodes
    agent = tmp_path / "agent.sh"  # in place of ssh
    # Nodes with one name and one /tmp would have one session folder: of Open MPI 4.1's daemons that
    # create it at the same time, one fails, and mpirun hangs.
    agent.write_text(
        f"""#!/bin/sh
node={mark}-${{1##*.}}; shift
export TMPDIR=/tmp/$node
mkdir -p $TMPDIR
exec nsenter --net=/run/netns/$node sh -c "$*"
"""
    )
    agent.chmod(0o755)
    (tmp_path / "train.py").write_text(SCRIPT)
    mca = {
        "plm_rsh_agent": agent, "plm_rsh_no_tree_spawn": 1, "btl": "tcp,self",
        "oob_tcp_if_include": f"{net}.0/24", "btl_tcp_if_include": f"{net}.0/24",
    }  # fmt: skip
    argv = [
        "mpirun.openmpi", "--allow-run-as-root",
        *(word for pair in mca.items() for word in ("--mca", *pair)), "--bind-to", "none",
    ]
    for name in (
        "RANKPOOL_E2E", "RANKPOOL_BATCH_TIMEOUT=1", "RANKPOOL_PLAN_TIMEOUT=10",
        f"MASTER_ADDR={net}.1", "MASTER_PORT=29400",
    ):  # fmt: skip
        argv += ["-x", name]
    argv += [
        "-H", ",".join(f"{net}.{n}:1" for n in range(1, count + 1)), run.RANKPOOL, "run", "--data",
        tree, "--memory", "100%", "--tune", "rank-timeout=10s", "--", sys.executable,
        tmp_path / "train.py",
    ]
    one = run.Run(tmp_path, argv)
    one.wait_for(
        lambda: all(one.text(f"trained-{r}").count("\n") == 5 for r in range(count)),
        "all trainers had five batches",
    )
    return one


def gives_up(one, count):
    """Lets a training whose network is cut continue to the end of its epoch."""
    one.wait_for(
        lambda: "another rank does not answer" in one.text("stderr"), "the other rank was missed"
    )
    Path(one.folder, "go").touch()
    one.wait_for(
        lambda: "waited 10 s in vain for the cache to plan epoch 1" in one.text("stderr"),
        "the trainer gave up",
    )
    last = [one.text(f"trained-{r}").split("\n")[-2] for r in range(count)]
    assert last == [f"0 {SAMPLES // (12 * count)}"] * count


def end(one):
    one.kill(one.processes())
    one.process.wait()


@pytest.mark.xdist_group("network namespaces")
def test_link_cut_for_good(nodes, tree, tmp_path):
    one = begin(nodes, tree, tmp_path, 2)
    try:
        ip("link", "set", f"v{nodes[0]}-2", "down")
        gives_up(one, 2)
        launcher = [
            pid
            for pid, (env, argv) in one.processes().items()
            if argv[1:2] == ["run"] and "OMPI_COMM_WORLD_RANK=0" in env
        ]
        one.wait_for(
            lambda: not set(launcher) & set(one.processes()),
            "run has ended, although the other cannot be told",
        )
    finally:
        end(one)


@pytest.mark.xdist_group("network namespaces")
def test_two_nodes_that_reach_only_the_first(nodes, tree, tmp_path):
    """Nodes 2 and 3 lose each other; rank 0 is on node 1, and reaches both."""
    mark, net = nodes
    one = begin(nodes, tree, tmp_path, 3)
    try:
        for here, there in ((2, 3), (3, 2)):  # frames go to an address that nobody has
            ip(
                "-n", f"{mark}-{here}", "neigh", "replace", f"{net}.{there}", "lladdr",
                "02:00:00:00:00:01", "dev", "eth0", "nud", "permanent",
            )
        gives_up(one, 3)
        one.process.wait(run.PATIENCE_SECONDS)
        said = one.text("stderr")
        assert "rank 2 has not answered" in said and "rank 1 has not answered" in said
    finally:
        end(one)
