"""Jobs that Slurm ends before their training has ended: they continue where they were, on as many
nodes or on fewer."""

import shlex
import signal

import pytest
from dataset import BATCHES, EPOCHS, GLOBAL_BATCH
import run
from testbed import HERE, pending

SBATCH = ["--ntasks-per-node=1", "--requeue", "--open-mode=append"]


@pytest.fixture
def job(bed, submit, tree, losses):
    """job(pause=…, options=[…]) submits a job that requeues itself and resumes from its checkpoint,
    with the global batch of all tests.

    Training pauses after batch `pause` until a signal comes; `torchrun` are words to start it with.
    """

    def job(
        nodes=2,
        trainers=1,
        torchrun=(),
        requeue="--requeue",
        args=(),
        options=(),
        torch=False,
        pause=BATCHES + 4,
        **way,
    ):
        args = [
            "--epochs",
            EPOCHS,
            "--sampler",
            "pads",
            "--checkpoint",
            "checkpoint",
            *(losses if torch else []),
            *args,
        ]
        python, *train = run.training(args, torch=torch, pause=[pause])
        train = [python, *torchrun, *train]
        script = f"""
            exec rankpool run {requeue} --data {tree} --memory 20% --tune window=1MiB \\
            --state state --log run.jsonl -- \\
            {shlex.join(map(str, train))} \\
            --batch-size $(({GLOBAL_BATCH} / SLURM_NTASKS / {trainers}))"""
        return submit(script, options=[f"--nodes={nodes}", *SBATCH, *options], **way)

    return job


@pytest.fixture
def goes_on(bed, reference):
    """goes_on(job, nodes=…) asserts that a job is requeued, and that all its lives together train
    the reference's batches.

    From 24.05 on, Slurm treats the end of a job that was preempted before as another preemption,
    and requeues it once more (docs/start.md): that life has nothing left to train.
    """
    version = tuple(
        int(part) for part in bed.call("scontrol", "--version").split()[1].split(".")[:2]
    )

    def goes_on(job, nodes=None, preempted=False):
        restarts = "2" if preempted and version >= (24, 5) else "1"
        job.wait_for(
            lambda: job.state()["Restarts"] == "1" and job.state()["JobState"] == "PENDING",
            "it was requeued",
        )
        told = job.batches()
        assert BATCHES <= len(told) < EPOCHS * BATCHES, job.text("stderr")
        job.go(BATCHES + 4)  # its next life does not pause
        if nodes:
            bed.call(
                "scontrol", "update", f"JobId={job.id}", f"NumNodes={nodes}", f"NumTasks={nodes}"
            )
        result = job.finish()
        assert result.code == 0 and job.state()["Restarts"] == restarts, result.stderr
        assert f"restart 1 of job {job.id}: importance scores continue from" in result.stderr
        assert "did not save its scores" not in result.stderr
        assert result.batches == reference("pads").batches
        assert "digest " in result.stdout  # of the second life: training came to its end
        return result

    return goes_on


def preempt(submit, job):
    """Submits a job of another partition that takes the nodes of a job in its second epoch. The
    trainers are stopped first: they would finish in a second, and Slurm takes as long."""
    job.wait_for_batches(BATCHES + 4)
    job.kill(job.trainers(), signal.SIGSTOP)
    submit("true", options=["--partition=urgent", "--nodes=4", "--exclusive"])


@pytest.mark.parametrize("workers", [[], pytest.param(["--workers", 2], marks=pytest.mark.full)])
def test_preempted_and_continued_on_half_the_nodes(submit, job, goes_on, workers):
    one = job(mpi="mpich", options=["--signal=B:USR1@60"], torch=bool(workers), args=workers)
    preempt(submit, one)
    one.wait_for(
        lambda: any(pending(pid, signal.SIGUSR1) for pid in one.trainers()),
        "run passed the signal on",
    )
    one.kill(one.trainers(), signal.SIGCONT)
    result = goes_on(one, nodes=1, preempted=True)
    assert result.stderr.count(f"job {one.id} is requeued") == 1


@pytest.mark.full
def test_preempted_by_sigterm_to_the_steps(submit, job, goes_on):
    """Without --signal, the steps get SIGTERM after a SIGCONT, and the batch script gets nothing
    until the grace time is over."""
    one = job(torch=True, args=["--workers", 1])
    preempt(submit, one)
    assert f"job {one.id} is requeued" in goes_on(one, preempted=True).stderr


@pytest.mark.full
def test_torchrun_and_signals_to_all_steps(bed, job, goes_on):
    """As with --signal=USR1@60, without B:."""
    one = job(torchrun=[HERE / "torchrun.py", "--nproc_per_node", "2"], torch=True, trainers=2)
    one.wait_for_batches(BATCHES + 4)
    bed.call("scancel", "--signal=USR1", one.id)
    goes_on(one)


@pytest.mark.full
def test_time_limit(bed, job, goes_on):
    """SIGTERM, and SIGKILL after KillWait: the job is requeued in between."""
    one = job()
    one.wait_for_batches(BATCHES + 4)
    # Slurm looks at the limit every half minute, and sends SIGCONT first
    one.kill(one.trainers(), signal.SIGSTOP)
    bed.call("scontrol", "update", f"JobId={one.id}", "EndTime=now")
    goes_on(one)


@pytest.mark.full
@pytest.mark.parametrize("mpi, node", [("openmpi", "node2"), ("mpich", "node1")])
def test_a_rank_dies_while_the_job_is_requeued(bed, job, goes_on, mpi, node):
    """The checkpoint is made while the cache is away: its scores are saved when it is back."""
    one = job(mpi=mpi)
    one.wait_for_batches(BATCHES + 4)
    one.kill(one.ranks(node))
    bed.call("scancel", "--batch", "--signal=USR1", one.id)
    goes_on(one)


def test_cancelled(bed, job):
    one = job()
    one.wait_for_batches(BATCHES + 4)
    one.cancel()
    one.finish()
    state = one.state()
    assert (state["JobState"], state["Restarts"]) == ("CANCELLED", "0")
    assert (one.folder / "checkpoint").exists() and "did not save its scores" not in one.text(
        "stderr"
    )
    assert "is requeued" not in one.text("stderr")


@pytest.mark.full
def test_requeue_is_forbidden(bed, job):
    one = job(nodes=1, options=["--no-requeue"], pause=3)
    one.wait_for_batches(3)
    bed.call("scancel", "--batch", "--signal=USR1", one.id)
    result = one.finish()
    assert result.code == 0 and f"Slurm does not requeue job {one.id} (" in result.stderr
