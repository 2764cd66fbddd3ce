"""What is simulated in virtual time holds for processes and the Python client as well: scenes.py
plays the jobs of the first hundred seeds."""

import pytest
from scenes import HARMS, LEFT_OUT, REQUEUE, Play, scenes

SCENES = scenes()


def how_often(seed):
    if seed == 0:
        return ()
    return pytest.mark.full if seed < 10 else pytest.mark.nightly


@pytest.mark.parametrize("seed", [pytest.param(s, marks=how_often(s)) for s in range(len(SCENES))])
def test_scene(start, tmp_path, seed):
    Play(SCENES[seed], start, tmp_path).play()


def test_every_fault_is_known():
    names = {name for scene in SCENES for _, name in scene.faults}
    assert len(SCENES) == 100 and names == {*HARMS, *LEFT_OUT, REQUEUE}
