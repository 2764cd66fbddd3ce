"""Which training process this is, according to the launcher's environment and the script."""

import pytest

import rankpool
from rankpool import session


@pytest.fixture(autouse=True)
def bare(monkeypatch):
    for name in ("RANK", "WORLD_SIZE", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    "env, seat",
    [
        ({}, (0, 1)),
        ({"RANK": "3", "WORLD_SIZE": "4"}, (3, 4)),
        ({"SLURM_PROCID": "3", "SLURM_STEP_NUM_TASKS": "4"}, (3, 4)),
        ({"SLURM_PROCID": "3"}, (0, 1)),
        ({"RANK": "65534", "WORLD_SIZE": "65535"}, (65534, 65535)),
    ],
)
def test_seat(monkeypatch, env, seat):
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    assert session.seat() == seat


SEAT = (
    "RANK must be from 0 to WORLD_SIZE - 1, and WORLD_SIZE, the number of training processes, at "
    "most 65535: they are {} and {}"
)


@pytest.mark.parametrize(
    "env, says",
    [
        ({"RANK": "-1"}, SEAT.format(-1, 1)),
        ({"RANK": "5", "WORLD_SIZE": "4"}, SEAT.format(5, 4)),
        ({"RANK": "x"}, "the variable RANK must be a number, not 'x'"),
        ({"WORLD_SIZE": "0"}, SEAT.format(0, 0)),
        ({"WORLD_SIZE": "65536"}, SEAT.format(0, 65536)),
        ({"WORLD_SIZE": "-3"}, SEAT.format(0, -3)),
        (
            {"SLURM_PROCID": "?", "SLURM_STEP_NUM_TASKS": "4"},
            "the variable SLURM_PROCID must be a number, not '?'",
        ),
    ],
)
def test_a_seat_that_nobody_can_have(door, monkeypatch, env, says):
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ValueError) as raised:
        rankpool.Dataset("train")
    assert str(raised.value) == "rankpool: " + says


def test_a_seat_that_the_script_says(door):
    data = rankpool.Dataset("train")
    with pytest.raises(ValueError, match="they are 2 and 2"):
        rankpool.BatchSampler(data, 4, rank=2, world_size=2)
