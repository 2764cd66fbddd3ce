import pickle
import re
import signal
import struct
import warnings
from threading import Event

import numpy
import pytest
import rankpool
import torch
from fakedoor import plan
from rankpool import batch_sampler as sampler_module
from rankpool import connection
from rankpool import stopping as stopping_module
from rankpool.batch_sampler import BatchSampler

REPORT, METRIC, SAVE = 5, 7, 8


def make(**options):
    data = rankpool.Dataset()
    return data, BatchSampler(data, **{"batch_size": 4, **options})


def test_a_batch_is_a_small_list_that_can_be_pickled(door):
    _, sampler = make()
    for number, batch in enumerate(sampler):
        again = pickle.loads(pickle.dumps(batch))
        assert again == batch == plan(door, 0, sampler.spec._asdict(), 0)[number]
        assert (again.stream, again.epoch, again.number, again.spec) == (0, 0, number, sampler.spec)
        assert len(pickle.dumps(batch)) < 300
    assert len(sampler) == 5


def test_the_spec_comes_from_the_environment(door, monkeypatch):
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    make(seed=3, sampler="torch", drop_last=True)
    (opened,) = door.seen(2)
    training = opened.pop("training")
    assert training == {
        "life": training["life"], "turn": 0, "checkpoint": None, "planned": [],
    }
    assert [opened] == [
        {
            "data": "train",
            "identity": door.data[0].identity,
            "sampler": "torch",
            "seed": 3,
            "batch_size": 4,
            "drop_last": True,
            "sampler_drop_last": False,
            "assign": "",
            "trainer": 1,
            "world": 2,
        }
    ]
    assert {hello[1:3] for hello in door.seen(1)} == {(1, 2)}


def test_a_forgotten_set_epoch_warns_once_and_replays(door):
    _, sampler = make()
    first = [list(b) for b in sampler]
    with pytest.warns(UserWarning, match="set_epoch was not called; epoch 0 is trained again"):
        assert [list(b) for b in sampler] == first
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert [list(b) for b in sampler] == first
    sampler.set_epoch(1)
    assert [list(b) for b in sampler] != first
    assert len(door.seen(3)) == 2


def test_a_sequential_sampler_needs_no_set_epoch(door):
    _, sampler = make(sampler="sequential")
    assert [list(b) for b in sampler] == [list(b) for b in sampler]


@pytest.mark.parametrize(
    "kind", [list, numpy.array, torch.tensor, lambda v: torch.tensor(v, dtype=torch.float32)]
)
def test_report_sends_the_losses_of_the_batch(door, kind):
    _, sampler = make()
    for batch in sampler:
        losses = [id / 2 for id in batch]
        ids = torch.tensor(batch) if kind is not list else list(batch)
        sampler.report(ids, kind(losses))
    door.wait(lambda: len(door.seen(REPORT)) == 5)
    assert door.seen(REPORT) == [
        (0, 0, b, [id / 2 for id in ids])
        for b, ids in enumerate(plan(door, 0, sampler.spec._asdict(), 0))
    ]


def rows(ids):
    return [[id, id + 0.5, -id] for id in ids]


@pytest.mark.parametrize(
    "kind",
    [
        list, numpy.array, lambda v: numpy.array(v, dtype="float16"), torch.tensor,
        lambda v: torch.tensor(v, dtype=torch.bfloat16).requires_grad_(),
        lambda v: [torch.tensor(row) for row in v],
    ],
)
def test_report_sends_the_embeddings_of_the_batch(door, kind):
    door.embeddings = 3
    _, sampler = make(embeddings=3)
    assert door.seen(2)[0]["embeddings"] == 3
    batches = [list(b) for b in sampler]
    sampler.report(batches[0], [0.5] * 4, embeddings=kind(rows(batches[0])))
    sampler.report(batches[1][::-1], [0.5] * 4, kind(rows(batches[1][::-1])))  # another order
    sampler.report(batches[2][2:], [0.5] * 2, kind(rows(batches[2][2:])))  # in parts
    sampler.report(batches[2][:2], [0.5] * 2, kind(rows(batches[2][:2])))
    door.wait(lambda: len(door.seen(REPORT)) == 3)
    for number, report in enumerate(door.seen(REPORT)):
        assert report[2:] == (number, [0.5] * 4, rows(batches[number]))
    door.hang_up()  # a cache that comes back receives them again
    told = door.seen(REPORT)
    door.requests.clear()
    sampler.metric("any", 1)
    sampler.metric("any", 1)
    door.wait(lambda: len(door.seen(REPORT)) == 3)
    assert door.seen(REPORT) == told


def test_an_embedding_that_is_not_reported_is_missing(door):
    door.embeddings = 2
    _, sampler = make(embeddings=2)
    batch = next(iter(sampler))
    sampler.report(batch[1:2], [0.5], [[3, 4]])
    sampler.state_dict()
    door.wait(lambda: door.seen(REPORT))
    (report,) = door.seen(REPORT)
    assert report[4][1] == [3, 4] and all(x != x for i in (0, 2, 3) for x in report[4][i])


def test_embeddings_that_are_wrong_change_nothing(door):
    door.embeddings = 3
    _, sampler = make(embeddings=3)
    batch = list(next(iter(sampler)))
    with pytest.raises(ValueError, match="pads scores samples by their embeddings, and none are"):
        sampler.report(batch, [0.5] * 4)
    for wrong, shape in (
        (numpy.ones((4, 2)), "[4, 2]"), (torch.ones(3), "[3]"), ([[1, 2, 3]] * 3, "[3, 3]"),
    ):
        with pytest.raises(
            ValueError, match=re.escape(f"must be of shape [4, 3], not {shape}")
        ):
            sampler.report(batch, [0.5] * 4, wrong)
    with pytest.raises(ValueError, match="inhomogeneous"):
        sampler.report(batch, [0.5] * 4, [[1, 2, 3]] * 3 + [[1]])
    sampler.state_dict()  # the door has read everything before it
    assert not door.seen(REPORT)
    for wrong in (0, 1 << 21):
        with pytest.raises(ValueError, match="embeddings must be in"):
            make(embeddings=wrong)


def test_embeddings_that_nobody_wants_are_left_out(door):
    _, sampler = make(embeddings=3)
    batch = list(next(iter(sampler)))
    sampler.report(batch, [0.5] * 4, numpy.ones((4, 3)))
    assert reported(door, 1) == [(0, [0.5] * 4)]


def reported(door, count):
    door.wait(lambda: len(door.seen(REPORT)) == count)
    return [
        (batch, [None if loss != loss else loss for loss in losses])
        for _, _, batch, losses in door.seen(REPORT)
    ]


def test_report_finds_the_batch(door):
    _, sampler = make(drop_last=True)
    batches = [list(b) for b in sampler]
    sampler.report(batches[0], [1, 2, 3, 4])
    sampler.report(batches[2], [5, 6, 7, 8])  # batch 1 was not reported
    sampler.report(batches[3][::-1], [1, 2, 3, 4])  # another order
    sampler.report(batches[4][1:3], [9, 9])  # a part
    sampler.state_dict()
    assert reported(door, 4) == [
        (0, [1, 2, 3, 4]),
        (2, [5, 6, 7, 8]),
        (3, [4, 3, 2, 1]),
        (4, [None, 9, 9, None]),
    ]
    with pytest.raises(
        ValueError, match=r"are not a batch, or part of one, of epoch 0 from batch 5 to 4"
    ):
        sampler.report(batches[1], [1, 2, 3, 4])
    with pytest.raises(ValueError, match="4 ids and 3 losses"):
        sampler.report(batches[4], [1, 2, 3])


def test_a_batch_reported_in_parts_is_put_together(door):
    door.draws = "replacement"
    _, sampler = make(batch_size=20, seed=1)
    (batch,) = [list(b) for b in sampler]
    assert len(set(batch)) < 20
    sampler.report(batch[:12], list(range(12)))
    sampler.report(batch[12:], list(range(12, 20)))
    ((number, losses),) = reported(door, 1)  # the cache takes one report a batch
    assert number == 0 and sorted(losses) == list(range(20))


@pytest.mark.parametrize("end", ["later", "state_dict", "set_epoch", "close"])
def test_a_batch_reported_in_part_is_told_when_no_more_can_come(door, end):
    _, sampler = make()
    batches = []
    for batch in sampler:
        batches.append(list(batch))
        if batch.number < 2:
            sampler.report(batch[:3], [1, 1, 1])
    told = [(0, [1, 1, 1, None]), (1, [1, 1, 1, None]), (3, [2, 2, 2, 2])]
    assert reported(door, 1) == told[:1]
    if end == "later":
        sampler.report(batches[3], [2, 2, 2, 2])
    elif end == "state_dict":
        sampler.state_dict()
    elif end == "set_epoch":
        sampler.set_epoch(1)
        next(iter(sampler))
    else:
        connection._close_all()
    assert reported(door, 3 if end == "later" else 2) == told[: 3 if end == "later" else 2]
    if end == "set_epoch":
        kinds = [request.kind for request in door.requests]
        assert kinds.index(REPORT, kinds.index(REPORT) + 1) < kinds.index(3, kinds.index(REPORT))
    if end == "state_dict":
        with pytest.raises(
            ValueError, match="batch 1 of epoch 0 was reported in part, .* comes too late"
        ):
            sampler.report(batches[1][3:], [1])


def losses_that_are_not_finite(kind):
    """The losses of a batch of four, half of them not finite, in other forms than a list of
    floats."""
    if kind == "overflow":
        return [1e39, 0.5, -1e39, -0.0]
    losses = torch.tensor(
        [float("nan"), 0.5, float("inf"), -0.0], dtype=getattr(torch, kind, torch.float32)
    )
    if kind == "column":
        return losses.unsqueeze(1)
    if kind == "requires_grad":
        return losses.requires_grad_() * 1
    return losses.repeat_interleave(2)[::2] if kind == "alternate" else losses


KINDS = ["float16", "bfloat16", "float64", "column", "alternate", "requires_grad", "overflow"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("until", [1, 4])
def test_losses_that_are_not_finite_are_sent_again_too(door, kind, until):
    """A restarted cache receives the report of every batch, including the newest."""
    _, sampler = make()
    for batch in sampler:
        sampler.report(torch.tensor(batch), losses_that_are_not_finite(kind))
        if batch.number == until:
            before = reported(door, until + 1)
            door.kill()
            door.requests.clear()
            door.start()
            sampler.metric("any", 1)  # notices that the connection ended
            sampler.metric("any", 1)
            assert list(map(str, reported(door, until + 1))) == list(map(str, before))
            assert [b for b, _ in before] == list(range(until + 1))
            infinite = {"overflow": [float("inf"), 0.5, float("-inf"), -0.0]}.get(
                kind, [None, 0.5, float("inf"), -0.0]
            )
            assert before[-1][1] == infinite
            return


def test_one_loss_may_have_no_dimension(door):
    _, sampler = make(batch_size=1)
    for batch in sampler:
        sampler.report(torch.tensor(batch[0]), torch.tensor(0.5))
    assert reported(door, 20) == [(b, [0.5]) for b in range(20)]


def test_what_was_reported_does_not_change(door):
    """The cache uses the first report of a batch; a restarted one must receive the same."""
    _, sampler = make()
    for again in range(2):
        sampler.set_epoch(0)
        for batch in sampler:
            if batch.number < 2 + again:
                sampler.report(batch, [again] * 4)
                sampler.report(batch, [7] * 4)
    assert reported(door, 3) == [(0, [0] * 4), (1, [0] * 4), (2, [1] * 4)]
    door.hang_up()
    door.requests.clear()
    sampler.metric("any", 1)
    sampler.metric("any", 1)
    assert reported(door, 3) == [(0, [0] * 4), (1, [0] * 4), (2, [1] * 4)]


def test_a_loss_that_is_no_number_changes_nothing(door):
    _, sampler = make()
    batch = next(iter(sampler))
    for wrong in ([1, 2, "3", 4], [1, 2, 3j, 4], [1, 2, None, 4]):
        with pytest.raises(TypeError):
            sampler.report(batch, wrong)
    sampler.report(batch, [4, 3, 2, 1])
    assert reported(door, 1) == [(0, [4, 3, 2, 1])]


def test_nothing_reported_ends_nothing(door, monkeypatch):
    """An empty report belongs to the current batch: it closes no batch whose losses are still to
    come."""
    monkeypatch.setenv("WORLD_SIZE", "3")
    monkeypatch.setenv("RANK", "2")
    _, sampler = make(batch_size=3)  # of the last two samples this trainer has none
    for batch in sampler:
        sampler.report([], [])
        if batch:
            sampler.report(torch.tensor(batch), torch.ones(len(batch)))
    assert reported(door, 3) == [(0, [1] * 3), (1, [1] * 3), (2, [])]


def test_a_part_is_of_the_batch_that_training_has(door):
    """Samples of an unreported batch are drawn again: the report belongs to the newer draw."""
    door.draws = "replacement"
    data, sampler = make(batch_size=10, seed=1)
    first, second = plan(door, 0, sampler.spec._asdict(), 0)
    (twice, *_) = set(first) & set(second)
    for batch in data.batches(sampler):
        if batch.ids == second:
            sampler.report([twice], [5])
    sampler.state_dict()
    ((number, losses),) = reported(door, 1)
    assert number == 1 and losses[second.index(twice)] == 5


def test_equal_batches_are_told_apart_by_their_order(door):
    door.draws = "replacement"
    _, sampler = make(batch_size=1, seed=1)
    batches = [list(b) for b in sampler]
    assert len(set(map(tuple, batches))) < len(batches)
    sampler.set_epoch(0)
    for number, batch in enumerate(sampler):
        sampler.report(batch, [number])
    assert reported(door, 20) == [(b, [b]) for b in range(20)]


def test_only_some_batches_are_reported(door):
    _, sampler = make()
    for batch in sampler:
        if batch.number % 2:
            sampler.report(batch[:3], [1, 1, 1])
    sampler.state_dict()
    assert reported(door, 2) == [(1, [1, 1, 1, None]), (3, [1, 1, 1, None])]


def test_weights(door):
    _, sampler = make()
    for batch in sampler:
        assert sampler.weights(batch).tolist() == [1, 1, 1, 1]
    door.weights = True
    sampler.set_epoch(1)
    for batch in sampler:
        weights = sampler.weights(torch.tensor(batch))
        assert weights.dtype == torch.float32 and weights.tolist() == [1 + id for id in batch]
        assert sampler.weights(batch[2:][::-1]).tolist() == [1 + id for id in batch[2:][::-1]]
        sampler.report(batch, [0.0] * 4)
        assert sampler.weights(batch).tolist() == weights.tolist()


def test_batches_that_are_evaluated_are_found_by_their_ids(door):
    data, sampler = make(evaluates=True)
    assert door.seen(2)[0]["evaluates"] is True
    found = []
    for samples in data.batches(sampler):
        sampler._plan.evaluated = range(2, 4)  # the fake door evaluates none
        part = list(samples.ids)[1:]
        found.append((sampler.evaluating(samples.ids), sampler.evaluating(numpy.array(part))))
        assert not sampler.evaluating([])
        sampler.report(samples.ids, [0.5] * len(samples.ids))
    assert found == [(False, False)] * 2 + [(True, True)] * 2 + [(False, False)]
    with pytest.raises(ValueError, match="are not a batch"):
        sampler.evaluating([1 << 20])


def test_metric(door, capfd):
    _, sampler = make()
    sampler.set_epoch(2)
    sampler.metric("accuracy", torch.tensor(0.75))
    door.wait(lambda: door.seen(METRIC))
    assert door.seen(METRIC) == [{"stream": 0, "epoch": 2, "name": "accuracy", "value": 0.75}]
    for value in float("nan"), float("-inf"):
        sampler.metric("loss", value)
    assert capfd.readouterr().err == (
        "rankpool: the metric loss is nan in epoch 2: that is not recorded\n"
        "rankpool: the metric loss is -inf in epoch 2: that is not recorded\n"
    )


def test_state_dict_continues_in_mid_epoch_with_another_world_size(door):
    data, sampler = make()
    sampler.set_epoch(2)
    whole = [list(b) for b in sampler]
    sampler.set_epoch(2)
    coming = data.batches(sampler)
    seen = [list(next(coming).ids) for _ in range(3)]
    state = sampler.state_dict()
    assert state == {
        "version": 2,
        "identity": door.data[0].identity,
        "samples": 20,
        "seed": 0,
        "sampler": "pads",
        "scorer": "logrank",
        "global_batch": 4,
        "drop_last": False,
        "sampler_drop_last": False,
        "plan_version": 1,
        "options": "",
        "choice": "",
        "processes": 1,
        "epoch": 2,
        "batch": 3,
        "state": "5a" * 16,
    }
    assert door.seen(SAVE) == [(0, 2, 3)]
    parts = []
    rankpool.training.identities(door.path).first.clear()  # as in another process
    for rank in range(2):
        _, other = make(batch_size=2, rank=rank, world_size=2)
        other.load_state_dict(state)
        assert other.state_dict() == state
        parts.append([list(b) for b in other])
        other.set_epoch(3)
        assert len([list(b) for b in other]) == 5
    assert seen == whole[:3]
    assert [sorted(a + b) for a, b in zip(*parts)] == [sorted(b) for b in whole[3:]]


def test_a_state_of_another_stream_is_refused(door):
    _, sampler = make()
    state = sampler.state_dict()
    for field, value in [
        ("identity", "a5"), ("scorer", "loss"), ("samples", 3), ("seed", 1), ("sampler", "torch"),
        ("global_batch", 8),
    ]:
        with pytest.raises(ValueError, match=f"the saved state has {field} = {value!r}"):
            sampler.load_state_dict({**state, field: value})


@pytest.mark.parametrize(
    "field, value, most",
    [
        *(("batch", value, 5) for value in (-1, 6, 1_000_000, 1 << 32, None, "3", 2.5)),
        *(("epoch", value, 2147483646) for value in (-1, 1 << 31, 1 << 64, None, "3")),
    ],
)
def test_a_state_of_a_place_that_is_none_is_refused(door, field, value, most):
    """The field is named, and the sampler stays where it was."""
    _, sampler = make()
    sampler.set_epoch(3)
    state = {**sampler.state_dict(), field: value}
    with pytest.raises(
        ValueError,
        match=re.escape(f"saved state has {field} = {value!r}, which must be in [0, {most}]"),
    ):
        sampler.load_state_dict(state)
    del state[field]
    with pytest.raises(ValueError, match=f"saved state has {field} = None"):
        sampler.load_state_dict(state)
    assert (sampler.epoch, sampler.batch) == (3, 0) and len([list(b) for b in sampler]) == 5


def test_a_state_at_the_end_of_an_epoch_has_no_batches_left(door):
    """It is refused if the epoch turns out to be shorter: a sampler may draw fewer samples than
    there are."""
    _, sampler = make()
    state = sampler.state_dict()
    for batch in (5, 4):
        sampler.load_state_dict({**state, "batch": batch})
        assert len(list(sampler)) == 5 - batch
    answer = door._answer_3
    door._answer_3 = lambda *a: (103, struct.pack("<4I4I16I", 0, 4, 16, 0, *[4] * 4, *range(16)))
    sampler.load_state_dict({**state, "batch": 5})
    with pytest.raises(ValueError, match="the saved state has batch = 5, and epoch 0 has 4"):
        list(sampler)
    door._answer_3 = answer


@pytest.mark.parametrize("epoch", [-1, 1 << 31])
def test_an_epoch_that_is_none_is_refused(door, epoch):
    _, sampler = make()
    with pytest.raises(
        ValueError, match=re.escape(f"epoch must be in [0, 2147483646], not {epoch}")
    ):
        sampler.set_epoch(epoch)


@pytest.mark.parametrize(
    "given, sentence",
    [
        ({"batch_size": 1.5}, "batch_size must be a whole number, not 1.5"),
        ({"batch_size": "x"}, "batch_size must be a whole number, not 'x'"),
        ({"batch_size": 0}, "batch_size must be in [1, 2147483647], not 0"),
        ({"seed": None}, "seed must be a whole number, not None"),
        (
            {"seed": 1 << 63},
            "seed must be in [-9223372036854775808, 9223372036854775807], not 9223372036854775808",
        ),
    ],
)
def test_numbers_of_a_script_that_are_none_are_refused(door, given, sentence):
    with pytest.raises(ValueError, match=re.escape(sentence)):
        make(**given)
    assert not door.seen(2)
    _, sampler = make()
    with pytest.raises(ValueError, match="epoch must be a whole number, not 1.5"):
        sampler.set_epoch(1.5)


def test_numbers_of_numpy_are_numbers(door):
    _, sampler = make(batch_size=numpy.int64(4), seed=numpy.uint8(3), drop_last=numpy.bool_(True))
    sampler.set_epoch(numpy.int32(1))
    assert [len(b) for b in sampler] == [4] * 5
    assert sampler.state_dict()["seed"] == 3


def test_a_state_of_a_cache_with_other_options_is_refused(door, monkeypatch):
    _, sampler = make()
    state = sampler.state_dict()
    door.welcome = {"plan_version": 1, "options": "beta=0.5"}
    door.kill()
    door.start()
    rankpool.connection._close_all()
    monkeypatch.setattr(rankpool.training, "_by_door", {})  # as another process
    _, other = make()
    with pytest.raises(
        ValueError,
        match="options = '', this sampler 'beta=0.5'; start the cache with the same --system",
    ):
        other.load_state_dict(state)
    state["options"] = "beta=0.5"
    other.load_state_dict(state)
    assert other.state_dict()["options"] == "beta=0.5"
    door.welcome["options"] = "beta=0.6"
    door.kill()
    door.start()
    with pytest.raises(
        rankpool.IdentityError,
        match="came back with .*'options': 'beta=0.6'}, and training began with .* 'beta=0.5'}",
    ):
        list(other)


def test_a_state_of_other_choices_is_refused(door):
    _, sampler = make()
    state = {**sampler.state_dict(), "choice": "quiver with 100 bytes"}
    with pytest.raises(ValueError, match="'quiver with 100 bytes'.* and --memory as a share"):
        sampler.load_state_dict(state)


def test_a_state_of_another_plan_version_is_refused(door, monkeypatch):
    _, sampler = make()
    state = sampler.state_dict()
    with pytest.raises(
        ValueError,
        match="plan_version = 2, this sampler 1; continue with the rankpool that",
    ):
        sampler.load_state_dict({**state, "plan_version": 2})
    for welcome, version in ({"plan_version": 3}, 3), ({}, 1):
        door.welcome = welcome
        door.kill()
        door.start()
        rankpool.connection._close_all()
        monkeypatch.setattr(rankpool.training, "_by_door", {})  # as another process
        _, other = make()
        assert other.state_dict()["plan_version"] == version
        if version != 1:
            with pytest.raises(
                ValueError, match="the saved state has plan_version = 1, this sampler 3"
            ):
                other.load_state_dict(state)


def test_planning_waits_for_the_cache(door, capsys, monkeypatch):
    _, sampler = make()
    door.kill()
    monkeypatch.setattr(rankpool.waiting, "SAY_SECONDS", 0.0)
    pauses = []

    def pause(seconds):
        pauses.append(seconds)
        if len(pauses) == 3:
            door.start()

    monkeypatch.setattr(rankpool.waiting.time, "sleep", pause)
    sampler.set_epoch(3)
    assert list(next(iter(sampler))) == plan(door, 0, sampler.spec._asdict(), 3)[0]
    assert "rankpool: waiting for the cache to come back to plan epoch 3" in capsys.readouterr().err


def test_planning_gives_up(door, monkeypatch):
    _, sampler = make()
    door.kill()
    monkeypatch.setenv("RANKPOOL_PLAN_TIMEOUT", "0")
    with pytest.raises(
        rankpool.CacheAwayError, match="waited 0 s in vain for the cache to plan epoch 0"
    ):
        list(sampler)


def test_trainers_that_do_not_come_are_named(door, monkeypatch):
    _, sampler = make()
    door.missing = "of 2 trainers (WORLD_SIZE) 1 have not come: RANK 1"
    monkeypatch.setenv("RANKPOOL_PLAN_TIMEOUT", "0")
    with pytest.raises(
        rankpool.CacheAwayError, match="to plan epoch 0: of 2 trainers .* not come: RANK 1$"
    ):
        list(sampler)
    door.missing = None
    sampler.set_epoch(0)
    assert list(sampler)


def test_state_dict_without_the_cache_warns(door, monkeypatch):
    monkeypatch.setattr(sampler_module, "SAVE_SECONDS", 0.0)
    _, sampler = make()
    door.kill()
    with pytest.warns(UserWarning, match="did not save its scores"):
        assert sampler.state_dict()["batch"] == 0


def test_a_signal_ends_a_wait_for_the_cache(door, monkeypatch):
    monkeypatch.setattr(stopping_module, "_stopping", Event())
    monkeypatch.setattr(rankpool.waiting, "STOPPING_SECONDS", 0.0)
    data, sampler = make()
    door.kill()
    stop, pauses = rankpool.Stop(), []

    def sleep(seconds):
        pauses.append(seconds)
        if len(pauses) == 3:
            signal.raise_signal(signal.SIGUSR1)

    monkeypatch.setattr(rankpool.waiting.time, "sleep", sleep)
    try:
        with pytest.raises(
            rankpool.CacheAwayError, match="waited 0 s in vain for the cache to plan epoch 0"
        ):
            list(sampler)
    finally:
        stop.close()
    with pytest.warns(UserWarning, match="did not save its scores"):
        sampler.state_dict()
    rankpool.connection._close_all()
    assert len(pauses) == 3


def test_refused_requests_are_sentences(door):
    data = rankpool.Dataset()
    with pytest.raises(
        rankpool.RequestError,
        match="^rankpool: trainer 0 has batch_size 64, trainer 1 batch_size 13$",
    ):
        BatchSampler(data, batch_size=13)
    with pytest.raises(
        rankpool.RankpoolError, match="serves no data set 'valid'; it serves 'train', 'test'"
    ):
        rankpool.Dataset("valid")


def test_another_version_is_named(door):
    door.refuse = "the client speaks version 5 of the protocol, this rank version 1"
    with pytest.raises(rankpool.VersionError, match="^rankpool: the client .* this rank version 1"):
        rankpool.Dataset()


def test_where_the_door_is(door, monkeypatch, tmp_path):
    from rankpool import session

    monkeypatch.delenv("RANKPOOL_SOCKET")
    with pytest.raises(
        rankpool.RankpoolError, match="start the script under `rankpool run … -- python …`"
    ):
        rankpool.Dataset()
    monkeypatch.setenv("RANKPOOL_SESSION", str(tmp_path))
    with pytest.raises(rankpool.RankpoolError, match="has 0 doors"):
        session.door()
    for rank in range(2):
        (tmp_path / f"r{rank}").mkdir()
        (tmp_path / f"r{rank}" / "door.sock").touch()
        if rank == 0:
            assert session.door() == str(tmp_path / "r0" / "door.sock")
    with pytest.raises(rankpool.RankpoolError, match="has 2 doors"):
        session.door()
    monkeypatch.setenv("SLURM_NODEID", "1")
    assert session.door() == str(tmp_path / "r1" / "door.sock")
