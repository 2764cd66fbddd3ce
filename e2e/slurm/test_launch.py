"""Every way to launch on several nodes trains on the same stream, and leaves nothing behind."""

import re
import signal
import sys

import pytest
import run
from dataset import BATCHES, EPOCHS, SAMPLES
from testbed import HERE

FULL = pytest.mark.full
MPI = {"openmpi": "pmix", "mpich": "pmi2"}
PYTHON = sys.executable
SAY = "sh -c 'echo trainer $RANK of $WORLD_SIZE'"


def trainers(output):
    """What SAY has printed, in order."""
    return ", ".join(sorted(re.findall(r"trainer \d+ of \d+", output)))


@pytest.mark.parametrize("mpi, nodes, tasks", [("openmpi", 2, 2), ("mpich", 4, 1)])
def test_run_in_the_batch_script(submit, words, same_stream, mpi, nodes, tasks):
    cache, train = words(nodes * tasks)
    options = [
        f"--nodes={nodes}",
        f"--ntasks-per-node={tasks}",
        "--gpus-per-node=4",
        "--cpus-per-task=2",
    ]
    say = "'[ $SLURM_CPUS_PER_TASK = 2 ] && echo gpus $CUDA_VISIBLE_DEVICES && exec \"$0\" \"$@\"'"
    result = same_stream(
        submit(f"rankpool run {cache} -- sh -c {say} {train}", mpi=mpi, options=options)
    )
    assert result.summary["fallback_reads"] == 0
    assert result.stdout.count("gpus 0,1,2,3\n") == nodes * tasks


@pytest.mark.parametrize("gpus", [
    "--gpus-per-task=1", *(pytest.param(g, marks=FULL) for g in ("--gres=gpu:4", "--gpus=8", "--mem-per-gpu=300 --gpus-per-node=2")),
])  # fmt: skip
def test_ways_to_ask_for_gpus(submit, words, gpus):
    """A training step gets its share of GPUs beside a cache that does not keep them."""
    cache, _ = words(4)
    options = ["--nodes=2", "--ntasks-per-node=2", *gpus.split()]
    result = submit(
        f"rankpool run {cache} -- sh -c 'echo gpus $CUDA_VISIBLE_DEVICES'", options=options
    ).finish()
    assert result.code == 0, result.stderr
    assert result.stdout.count("gpus 0") >= 2 and "gpus \n" not in result.stdout


@pytest.mark.parametrize(
    "mpi, nodes",
    [pytest.param("openmpi", 2, marks=FULL), ("mpich", 2), pytest.param("openmpi", 1, marks=FULL)],
)
def test_one_step(submit, words, same_stream, mpi, nodes):
    cache, train = words(2 * nodes)
    script = f"srun --mpi={MPI[mpi]} rankpool run --trainers-per-rank 2 {cache} -- {train}"
    result = same_stream(
        submit(
            script,
            mpi=mpi,
            options=[f"--nodes={nodes}", "--ntasks-per-node=1", "--cpus-per-task=2"],
        )
    )
    assert ("started as a task of srun" in result.stderr) == (nodes > 1)


@pytest.mark.parametrize("mpi, launch", [
    ("mpich", "mpirun.openmpi -n 2 --map-by node"),
    pytest.param("openmpi", "mpirun.mpich -n 2 -ppn 1", marks=FULL),
    pytest.param("openmpi", "srun --mpi=pmi2", marks=FULL),
])  # fmt: skip
def test_the_launcher_decides(submit, words, mpi, launch):
    """The ranks load the library of the launcher that started them, whatever module is loaded."""
    cache, _ = words(2)
    result = submit(
        f"{launch} rankpool run {cache} -- {SAY}",
        mpi=mpi,
        options=["--nodes=2", "--ntasks-per-node=1"],
    ).finish()
    assert result.code == 0, result.stderr
    assert trainers(result.stdout) == "trainer 0 of 2, trainer 1 of 2"


@pytest.mark.parametrize("mpirun", [
    "mpirun.openmpi -n 4 --map-by node --bind-to none", pytest.param("mpirun.mpich -n 4 -ppn 1", marks=FULL),
])  # fmt: skip
def test_mpirun_in_an_allocation(submit, words, same_stream, mpirun):
    cache, train = words(4)
    script = f"{mpirun} rankpool run {cache} -- {train}"
    same_stream(
        submit(
            script,
            mpi=mpirun.split()[0].split(".")[1],
            options=["--nodes=4", "--ntasks-per-node=1"],
        )
    )


def test_torchrun(submit, words, same_stream):
    cache, train = words(4, torch=True)
    command = train.split(" ", 1)[1]  # without python
    script = f"rankpool run {cache} -- {PYTHON} {HERE / 'torchrun.py'} --nproc_per_node 2 {command}"
    same_stream(submit(script, options=["--nodes=2", "--ntasks-per-node=1"]))


def test_trainings_of_one_command(submit, words, reference, tree, tmp_path):
    """run --trainings: each training is a step on both nodes, with its share of the GPUs and the
    stream that it would have alone. A training that fails ends alone, and run exits with its
    code."""
    cache, train = words(2)
    say = (
        "'echo gpus $CUDA_VISIBLE_DEVICES, trainer $RANK of $WORLD_SIZE; "
        # when one task fails, srun ends the other, which exits with the same code once both have
        # begun
        '[ $RANKPOOL_TRAINING = 2 ] && { trap "exit 3" TERM; touch begun-$RANK; '
        "until [ -e begun-0 ] && [ -e begun-1 ]; do sleep 0.1; done; exit 3; }; "
        'exec "$0" "$@" --seed $RANKPOOL_TRAINING --digest-log digest-$RANKPOOL_TRAINING\''
    )
    job = submit(
        f"rankpool run --trainings 3 {cache} -- sh -c {say} {train}",
        options=["--nodes=2", "--ntasks-per-node=1", "--gpus-per-node=4"],
    )
    result = job.finish()
    assert result.code == 3, result.stderr
    for training in range(3):
        for trainer in range(2):
            line = f"[{training}] gpus {training}, trainer {trainer} of 2\n"
            assert result.stdout.count(line) == 1, result.stdout
    assert "rankpool: training 2 ended (exit code 3); the other trainings continue" in result.stderr
    args = ["--epochs", EPOCHS, "--sampler", "pads", "--seed", 1]
    alone = tmp_path / "alone"
    alone.mkdir()
    other = run.start(alone, tree, memory="0", args=args).finish().check(EPOCHS, SAMPLES)
    assert job.text("digest-0").splitlines() == reference("pads").batches, result.stderr
    assert job.text("digest-1").splitlines() == other.batches, result.stderr


def test_job_array(bed, submit, words, reference):
    """Two tasks of an array at once, on the same nodes."""
    cache, train = words(2)
    script = f"""
        mkdir $SLURM_ARRAY_TASK_ID && cd $SLURM_ARRAY_TASK_ID || exit
        touch here; until [ -e ../0/here ] && [ -e ../1/here ]; do sleep 0.05; done
        rankpool run {cache} -- {train} >stdout && touch good"""
    job = submit(
        script,
        options=["--nodes=2", "--ntasks-per-node=1", "--array=0-1", "--nodelist=node1,node2"],
    )
    for task in "01":
        job.wait_for(
            (job.folder / task / "good").exists, f"task {task} ended well", ended_is_failure=False
        )
        assert job.text(f"{task}/digest").splitlines() == reference("pads").batches
    job.wait_for(
        lambda: not bed.call("squeue", "-h", "-j", job.id),
        "the array ended",
        ended_is_failure=False,
    )
    assert not job.sessions()


def test_two_jobs_on_a_node(submit, words, same_stream):
    cache, train = words(2, pause=[1], **{"--memory": "10%"})
    options = ["--nodes=1", "--ntasks-per-node=2", "--mem=1500", "--nodelist=node3"]
    jobs = [submit(f"rankpool run {cache} -- {train}", options=options) for _ in range(2)]
    for job in jobs:
        job.wait_for_batches(1)
    for job in jobs:  # they were paused until both ran
        job.go(1)
    for job in jobs:
        same_stream(job)


@FULL
def test_two_torchruns_on_a_node(submit, words, tmp_path):
    """Each has its own port."""
    cache, _ = words(1, **{"--memory": "10%"})
    here = tmp_path / "here"
    here.mkdir()
    both = f"'touch {here}/$SLURM_JOB_ID; until [ $(ls {here} | wc -l) = 2 ]; do sleep 0.05; done'"
    script = f"rankpool run {cache} -- {PYTHON} {HERE / 'torchrun.py'} --nproc_per_node 1 --no_python sh -c {both}"
    jobs = [
        submit(script, options=["--nodes=1", "--mem=1500", "--nodelist=node3"]) for _ in range(2)
    ]
    for job in jobs:
        result = job.finish()
        assert result.code == 0, result.stderr


@pytest.mark.parametrize(
    "mpi, node", [pytest.param("openmpi", None, marks=FULL), ("mpich", "node2")]
)
def test_cache_is_killed(submit, words, same_stream, mpi, node):
    """Training is stopped until the ranks of all nodes, or of one, are dead, and the cache is
    back."""
    cache, train = words(2, pause=[BATCHES + 5])
    job = submit(
        f"rankpool run {cache} -- {train}", mpi=mpi, options=["--nodes=2", "--ntasks-per-node=1"]
    )
    job.wait_for_batches(BATCHES + 5)
    stopped = job.trainers()
    job.kill(stopped, signal.SIGSTOP)
    old = job.ranks()
    assert len(old) == 2
    job.kill(job.ranks(node))
    job.wait_for(lambda: not set(old) & set(job.ranks()), "the ranks were dead")
    job.wait_for(lambda: len(job.ranks()) == 2 and job.ready(2), "the cache was back")
    job.kill(stopped, signal.SIGCONT)
    job.go(BATCHES + 5)
    assert "cache restarts 1" in same_stream(job).stdout


@FULL
@pytest.mark.parametrize(
    "mpi, node",
    [("openmpi", "node2"), ("mpich", "node2"), ("openmpi", "node1"), ("mpich", "node1")],
)
def test_a_rank_hangs(submit, words, same_stream, mpi, node):
    """One of two ranks is stopped for good, on the launcher's node or on the other one: the cache
    is restarted without that process."""
    cache, train = words(2, pause=[BATCHES + 5], **{"--tune": "window=1MiB,rank-timeout=4s"})
    job = submit(
        f"rankpool run {cache} -- {train}", mpi=mpi, options=["--nodes=2", "--ntasks-per-node=1"]
    )
    job.wait_for_batches(BATCHES + 5)
    (hung,) = job.ranks(node)
    job.kill([hung], signal.SIGSTOP)
    job.wait_for(lambda: hung not in job.ranks(), "the rank was ended")
    job.wait_for(lambda: len(job.ranks()) == 2 and job.ready(2), "the cache was back")
    job.go(BATCHES + 5)
    result = same_stream(job)
    assert "has not answered for 4" in result.stderr and "cache restarts 1" in result.stdout


@FULL
def test_a_rank_of_one_step_hangs(submit, words, reference):
    """A rank is stopped for good in the last epoch: its run ends it soon after training, and what
    that rank has counted is lost."""
    cache, train = words(2, pause=[2 * BATCHES + 5], **{"--tune": "window=1MiB,rank-timeout=4s"})
    script = f"srun --mpi=pmi2 rankpool run {cache} -- {train}"
    job = submit(script, mpi="mpich", options=["--nodes=2", "--ntasks-per-node=1"])
    job.wait_for_batches(2 * BATCHES + 5)
    job.kill(job.ranks("node2"), signal.SIGSTOP)
    job.go(2 * BATCHES + 5)
    result = job.finish()
    assert result.code == 0, result.stderr
    assert result.batches == reference("pads").batches


@FULL
def test_step_on_a_part_of_the_allocation(submit, words, same_stream):
    """The tasks agree on the host of task 0, which is not the first of the allocation.

    It uses PMI2, because Slurm 22.05's PMIx plugin has hung in steps that are not on the
    allocation's first nodes.
    """
    cache, train = words(2)
    script = f"srun --mpi=pmi2 --nodes=2 --ntasks=2 --nodelist=node3,node4 rankpool run {cache} -- {train}"
    same_stream(submit(script, mpi="mpich", options=["--nodes=4", "--ntasks-per-node=1"]))


@FULL
def test_shell_of_salloc(bed, words, tmp_path):
    """The launcher may run on none of the allocation's nodes."""
    cache, _ = words(2)
    script = f"rankpool run {cache} -- {SAY}"
    salloc = ["salloc", "--quiet", "--nodes=2", "--ntasks-per-node=1", "bash", "-c", script]
    assert (
        trainers(bed.call(*salloc, env=bed.user("openmpi"), cwd=tmp_path))
        == "trainer 0 of 2, trainer 1 of 2"
    )


def test_shell_on_the_first_node(bed, words, tmp_path):
    """The shell of salloc without a command is a step of one task, beside the tasks of the job."""
    cache, _ = words(2)
    (tmp_path / "shell").write_text(f"#!/bin/sh\nexec rankpool run {cache} -- {SAY} 2>&1\n")
    (tmp_path / "shell").chmod(0o755)
    env = {**bed.user("openmpi"), "SHELL": str(tmp_path / "shell")}
    out = bed.call("salloc", "--quiet", "--nodes=2", "--ntasks-per-node=1", env=env, cwd=tmp_path)
    assert trainers(out) == "trainer 0 of 2, trainer 1 of 2"
    assert "no rank is ready" not in out


@pytest.mark.parametrize(
    "step", ["--nodes=1 --ntasks=1", pytest.param("--nodes=2 --ntasks=2", marks=FULL)]
)
def test_job_from_inside_a_step(bed, words, tmp_path, step):
    """The job inherits the variables of the step, which may have as many tasks as the job."""
    cache, _ = words(2)
    (tmp_path / "job.sh").write_text(f"#!/bin/sh\nrankpool run {cache} -- {SAY}\n")
    sbatch = "[ $SLURM_PROCID != 0 ] || exec sbatch --wait --nodes=2 --ntasks-per-node=1 --output=stdout --error=stderr job.sh"
    srun = ["srun", "--mpi=pmix", "--mem=200", *step.split(), "sh", "-c", sbatch]
    bed.call(*srun, env=bed.user("openmpi"), cwd=tmp_path)
    assert trainers((tmp_path / "stdout").read_text()) == "trainer 0 of 2, trainer 1 of 2"
    assert "submitted from inside a step" in (tmp_path / "stderr").read_text()
