"""How long training waited, as the run log says it, beside a stopwatch of the script."""

import sys

import pytest
from run import HERE, PATIENT

TRAINERS = 2
SHARE = 0.05


def between(seconds, least, most):
    return least * (1 - SHARE) <= seconds <= most * (1 + SHARE)


@pytest.mark.parametrize("workers", [[0], [1], [1, "persistent"], [4], [4, "persistent"]])
def test_the_run_log_says_what_the_script_measures(start, tree, workers):
    """Storage opens 60 files a second, so that training waits for most of its time, and 5 % of it
    are longer than a busy machine stops a process between the two stopwatches."""
    one = start(
        ranks=1, trainers_per_rank=TRAINERS, memory="0",
        options=["--max-opens", 60, *PATIENT],
        command=[sys.executable, HERE / "stopwatch.py", tree, *workers],
    )
    result = one.finish()
    assert result.code == 0, result.stderr
    lines = [line.split()[1:] for line in result.stdout.splitlines() if line.startswith("epoch ")]
    lines = [[float(number) for number in line] for line in lines]
    assert len(lines) == 2 * TRAINERS and len(result.epochs) == 2, result.stdout
    for epoch, event in enumerate(result.epochs):
        mine = lines[epoch * TRAINERS : (epoch + 1) * TRAINERS]
        waited, making = (sum(line[i] for line in mine) / TRAINERS for i in (0, 1))
        assert waited > 4
        assert between(event["stall_seconds"], waited, waited + making), (event, mine)
        longest, making = max(line[2] for line in mine), max(line[1] for line in mine)
        assert between(event["seconds"], longest - making, longest), (event, mine)
