"""A wrong launch fails within seconds with one sentence that has the line to type, and no training
begins."""

import re
import time

import pytest

# wrong_launch_test.go tests the sentences; here they are tested with real Slurm and MPIs
FULL = pytest.mark.full
SECONDS = 60  # on a busy machine; most take two or three, with waits of rankpool twenty


@pytest.fixture
def wrong(submit, words):
    """wrong(launch, sentence, …) asserts that a launch fails before training and prints the
    sentence once; {cache} are the cache's options."""

    def wrong(
        launch, sentence, mpi="openmpi", options=("--nodes=2", "--ntasks-per-node=1"), times=1
    ):
        cache, _ = words(4)
        begin = time.monotonic()
        result = submit(launch.format(cache=cache, train="touch trained"), mpi=mpi, options=options)
        folder, result = result.folder, result.finish(left_sessions=True)
        assert time.monotonic() - begin < SECONDS
        assert result.code not in (0, 253), result.stderr
        assert len(re.findall(sentence, result.stderr)) == times, result.stderr
        assert not (folder / "trained").exists()
        return result

    return wrong


RUN = "rankpool run {cache} -- {train}"
OPENMPI, MPICH = "RANKPOOL_MPI_LIBRARY=libmpi.so.40", "RANKPOOL_MPI_LIBRARY=libmpich.so.12"


@pytest.mark.parametrize("mpi, launch, sentence", [
    pytest.param("openmpi", f"srun {RUN}", r'type "srun -K --mpi=pmix rankpool run …", or in the batch script "rankpool run …" without srun', marks=FULL),
    pytest.param("openmpi", f"{OPENMPI} srun --mpi=pmi2 {RUN}", r'training was not started: .*start it with "srun --mpi=pmix"', marks=FULL),
    ("mpich", f"srun --mpi=pmix {RUN}", r'MPI sees 1: .*start it with "srun --mpi=pmi2"'),
    pytest.param("mpich", f"srun {RUN}", r'MPI sees 1: .*start it with "srun --mpi=pmi2"', marks=FULL),
    pytest.param("mpich", f"{MPICH} mpirun.openmpi -n 2 --map-by node {RUN}", r"MPI sees 1: .*start it with MPICH's mpirun", marks=FULL),
    pytest.param(None, RUN, "2 ranks need MPI, and no MPI library can be loaded", marks=FULL),
    pytest.param(None, f"srun --mpi=pmix {RUN}", "2 ranks need MPI, and no MPI library can be loaded", marks=FULL),
])  # fmt: skip
def test_ranks_that_do_not_find_each_other(wrong, mpi, launch, sentence):
    wrong(launch, sentence, mpi)


@pytest.mark.parametrize("mpi, launch, sentence", [
    ("openmpi", f"srun {RUN}", r'type "rankpool run …" in the batch script, without srun, which starts 2 trainers a node, or "srun -K --mpi=pmix --ntasks=2 --ntasks-per-node=1 rankpool run --trainers-per-rank 2 …"'),
    pytest.param("openmpi", f"mpirun.openmpi -n 4 {RUN}", r'type "mpirun --map-by ppr:1:node --bind-to none rankpool run --trainers-per-rank 2 …"', marks=FULL),
    pytest.param("mpich", f"mpirun.mpich -n 4 {RUN}", r'type "mpirun -ppn 1 -n 2 rankpool run --trainers-per-rank 2 …"', marks=FULL),
])  # fmt: skip
def test_two_ranks_on_a_node(wrong, mpi, launch, sentence):
    wrong(launch, sentence, mpi, options=["--nodes=2", "--ntasks-per-node=2"])


LEAVE_SRUN_OUT = r"leave srun out, as in \"rankpool run … -- python train.py\""


@pytest.mark.parametrize("tasks, launch, command, sentence", [
    (1, "", "srun {train}", LEAVE_SRUN_OUT),
    (1, "srun --mpi=pmix", "srun {train}", LEAVE_SRUN_OUT),
    pytest.param(
        2, "", "torchrun --nproc-per-node 2 {train}", "use #SBATCH --ntasks-per-node=1", marks=FULL,
    ),
])  # fmt: skip
def test_training_command_that_starts_tasks_itself(wrong, tasks, launch, command, sentence):
    wrong(
        f"{launch} rankpool run {{cache}} -- {command}",
        sentence,
        options=["--nodes=2", f"--ntasks-per-node={tasks}"],
    )


def test_tasks_without_gpus(submit, words):
    """A warning: the training may want none."""
    cache, _ = words(2)
    script = f"srun --mpi=pmix --gres=none rankpool run {cache} -- true"
    result = submit(script, options=["--nodes=2", "--ntasks-per-node=1", "--gres=gpu:2"]).finish()
    assert result.code == 0, result.stderr
    assert (
        result.stderr.count(
            'the training tasks have none: start their step with "srun --gpus-per-node=N"'
        )
        == 1
    )


@FULL
def test_a_users_own_step_does_not_keep_the_cache_waiting(submit, words):
    """A step that runs beside it without --overlap holds all of the job's resources."""
    cache, _ = words(2)
    script = (
        f"srun sleep 1000 & sleep 1; rankpool run {cache} -- true; code=$?; kill %1; exit $code"
    )
    result = submit(
        script, options=["--nodes=2", "--ntasks-per-node=1", "--gpus-per-node=2"]
    ).finish()
    assert result.code == 0, result.stderr
