"""What a training process reports to a cache about its training: at the start, after a restart,
from a checkpoint."""

import pytest

import rankpool
from rankpool import batch_sampler as sampler_module

OPEN, PLAN, SAVE = 2, 3, 8


def make(**options):
    data = rankpool.Dataset()
    return data, rankpool.BatchSampler(data, **{"batch_size": 4, **options})


def train(data, sampler, epochs):
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        for _ in data.batches(sampler):
            pass


def restart(door, sampler):
    """Restarts the door; the sampler's connection notices by sending something, and comes back."""
    door.kill()
    door.requests.clear()
    door.start()
    sampler.metric("any", 1)
    sampler.metric("any", 1)


def test_plans_are_told_after_a_restart(door):
    data, sampler = make()
    train(data, sampler, 3)
    (first,) = door.seen(OPEN)
    restart(door, sampler)
    (again,) = door.seen(OPEN)
    assert again["training"].pop("planned") == [
        {"epoch": e, "scores": f"{e:02x}" * 16} for e in (1, 2)
    ]
    assert again["training"] == {"life": first["training"]["life"], "turn": 0, "checkpoint": None}


def test_samplers_without_scores_keep_nothing(door):
    data, sampler = make(sampler="torch")
    train(data, sampler, 2)
    assert sampler.state_dict()["state"] == "" and door.seen(SAVE) == []
    restart(door, sampler)
    assert door.seen(OPEN)[0]["training"]["planned"] == []


def test_a_checkpoint_begins_another_life(door):
    _, sampler = make()
    state = sampler.state_dict()
    first = list(sampler)
    sampler.load_state_dict({**state, "epoch": 3, "batch": 2})
    assert len(list(sampler)) == len(first) - 2
    before, after = (request["training"] for request in door.seen(OPEN))
    assert after["checkpoint"] == {"epoch": 3, "batch": 2, "state": "5a" * 16, "processes": 1}
    assert (
        after["planned"] == [] and after["life"] == before["life"] and before["checkpoint"] is None
    )
    assert (before["turn"], after["turn"]) == (0, 1)


def test_samplers_of_one_stream_are_one_training(door):
    data, sampler = make()
    train(data, sampler, 1)
    _, again = make()
    again.set_epoch(1)
    list(again)
    assert len(door.seen(OPEN)) == 1
    restart(door, again)
    assert [p["epoch"] for p in door.seen(OPEN)[-1]["training"]["planned"]] == [0, 1]


def test_a_state_of_another_version_is_refused(door):
    _, sampler = make()
    state = sampler.state_dict()
    for version in (1, 3, None):
        with pytest.raises(
            ValueError,
            match=f"has version = {version}, this sampler 2; continue with the rankpool that",
        ):
            sampler.load_state_dict({**state, "version": version})


def test_saving_waits_for_the_cache(door, monkeypatch):
    _, sampler = make()
    next(iter(sampler))
    waits = []

    def pause(self):
        waits.append(1)
        if len(waits) == 3:
            door.start()

    monkeypatch.setattr(sampler_module.Waiting, "pause", pause)
    door.kill()
    sampler.metric("any", 1)
    sampler.metric("any", 1)
    assert sampler.state_dict()["state"] == "5a" * 16 and len(waits) >= 3


def test_what_was_not_saved_is_said(door, monkeypatch):
    _, sampler = make()
    door.saved = {"saved": "", "state": ""}
    with pytest.warns(
        UserWarning,
        match="since it lacks reports of other trainers: a training that",
    ):
        assert sampler.state_dict()["state"] is None
    door.saved = {"saved": "", "state": "5a" * 16}
    with pytest.warns(
        UserWarning, match=r"saves no importance scores \(--state FILE\): another run that"
    ):
        assert sampler.state_dict()["state"] == "5a" * 16
    monkeypatch.setattr(sampler_module, "SAVE_SECONDS", 0.0)
    door.kill()
    sampler.metric("any", 1)
    with pytest.warns(
        UserWarning, match="did not save its scores, since it is away: a training that"
    ):
        assert sampler.state_dict()["state"] is None
