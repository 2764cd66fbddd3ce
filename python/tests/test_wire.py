import json
import struct
from array import array
from math import isnan, nan
from pathlib import Path

import pytest

import fakedoor
from rankpool import wire
from rankpool.connection import Spec

LINES = (Path(__file__).parents[2] / "docs" / "wire" / "frames.txt").read_text().splitlines()
FRAMES = {
    name: bytes.fromhex(hex)
    for name, hex in (line.split() for line in LINES if line and line[0] != "#")
}


def tally(evaluated=0, read=0, measured=True):
    t = wire.Tally(1, 3)
    t.measured = measured
    t.counts.update(
        hits_local=60, hits_remote=2, storage_reads=1, fallback_reads=1, storage_bytes=4096,
        fallback_bytes=512, evaluated=evaluated, evaluated_reads=read,
    )
    t.stall_ns = 1_500_999
    return t.pack()


TRAINING = {
    "life": 0x0123456789ABCDEF,
    "turn": 1,
    "checkpoint": {"epoch": 3, "batch": 5, "state": "a5" * 16},
    "planned": [{"epoch": 3, "scores": "5a" * 16}],
}

SENT = {
    "hello": (
        wire.HELLO, 1,
        wire.pack_hello(2, 4, 0x0123456789ABCDEF, 0x1111111111111111, 0x2222222222222222),
    ),
    "open": (
        wire.OPEN,
        2,
        wire.pack_open(
            Spec("train", "5a" * 16, "pads", 7, 64, False, True, "local", 2, 4), TRAINING
        ),
    ),
    "plan": (wire.PLAN, 3, wire.pack_place(1, 3, 5)),
    "get": (wire.GET, 5, wire.pack_get(1, 3, 9, [11, 12], tally())),
    "get_first": (wire.GET, 6, wire.pack_get(1, 3, 0, [], tally())),
    "report": (wire.REPORT, 7, wire.pack_report(1, 3, 9, array("f", [0.5, nan, 2.0]))),
    "report_embedded": (
        wire.REPORT, 18,
        wire.pack_report(
            1, 3, 9, array("f", [0.5, nan, 2.0]), array("f", [1.5, -2, 0, 0.25, 4, 8])
        ),
    ),
    "release": (wire.RELEASE, 8, wire.pack_release([13], tally())),
    "release_tally": (wire.RELEASE, 9, wire.pack_release([], tally())),
    "release_evaluated": (wire.RELEASE, 19, wire.pack_release([], tally(16, 3))),
    "release_unmeasured": (wire.RELEASE, 20, wire.pack_release([], tally(measured=False))),
    "metric": (
        wire.METRIC, 10,
        wire.compact({"stream": 1, "epoch": 3, "name": "accuracy", "value": 0.875}),
    ),
    "save": (wire.SAVE, 11, wire.pack_place(1, 3, 10)),
    "list": (
        wire.LIST, 21, wire.pack_list(1, 4, True, 6, 0, array("I", [2, 2, 1, 4, 0, 4]).tobytes())
    ),
    "list_final": (wire.LIST, 22, wire.pack_list(1, 4, False, 0, 0, b"")),
    "status": (wire.STATUS, 12, b""),
    "shutdown": (wire.SHUTDOWN, 13, b""),
}


@pytest.mark.parametrize("name", SENT)
def test_the_client_sends_the_golden_frame(name):
    assert wire.frame(*SENT[name]).hex() == FRAMES[name].hex()


def received(name, kind, ticket):
    length, got, flags, got_ticket = wire.HEADER.unpack_from(FRAMES[name])
    assert (length, got, flags, got_ticket) == (len(FRAMES[name]) - 12, kind, 0, ticket)
    return FRAMES[name][12:]


def test_hello_reply():
    welcome = wire.unpack_hello(received("hello_reply", wire.HELLO + wire.REPLY, 1))
    assert welcome[:3] == (1, 2, 1 << 20)
    assert welcome.data == [
        {
            "name": "train", "samples": 5, "index": "/run/train.idx", "root": "/data/train",
            "identity": "5a" * 16, "times": "71" * 16,
        }  # fmt: skip
    ]
    assert welcome.session == "s1"


def test_json_replies():
    assert json.loads(received("open_reply", 102, 2)) == {
        "stream": 1, "batches": 20, "scorer": "logrank",
    }
    assert json.loads(received("save_reply", 108, 11)) == {
        "saved": "/run/s1/state", "state": "5a" * 16,
    }
    assert json.loads(received("status_reply", 109, 12)) == {"rank": 1}
    assert received("shutdown_reply", 110, 13) == b""


def test_plan_reply():
    plan = wire.Plan(received("plan_reply", 103, 3))
    assert (plan.epoch, plan.batches, plan.draws) == (3, 2, 8)
    assert [plan.batch(0), plan.batch(1)] == [[4, 0], [4]]
    assert plan.weights.tolist() == [0.5, 1.25, 0.5]
    assert plan.repeats is None
    assert plan.source == "5a" * 16
    again = wire.Plan(received("plan_reply_repeats", 103, 16))
    assert (again.ids.tolist(), again.weights.tolist(), again.repeats.tolist()) == (
        [4, 0, 4], [0.5, 1.25, 0.5], [0, 2, 1],
    )
    assert again.source == ""
    some = wire.Plan(received("plan_reply_evaluated", 103, 17))
    assert (list(some.evaluated), some.repeats.tolist()) == ([1], [0, 0, 1, 0])
    assert some.source == plan.source
    assert not plan.evaluated and not again.evaluated
    plain = wire.Plan(received("plan_reply_unweighted", 103, 4))
    assert (plain.epoch, plain.ids.tolist(), plain.weights) == (0, [4, 0, 4], None)


def test_batch_replies():
    batch = wire.BatchReply(received("batch", 104, 5))
    assert (batch.lease, batch.size) == (13, 3)
    assert batch.places == ([0, 4096, 0], [100, 4296, 100])
    assert batch.has([4, 0, 4]) and not batch.has([4, 0, 0]) and not batch.has([4, 0])
    assert (batch.sources, batch.failures) == (b"\x00\x04\x05", {2: "file changed"})
    even = wire.BatchReply(received("batch_even", 104, 6))
    assert (even.lease, even.size, even.has([4, 0])) == (14, 2, True)
    assert even.places == ([8, 1 << 33], [108, (1 << 33) + 200])
    assert (even.sources, even.failures) == (b"\x01\x02", {})


def test_error_reply():
    assert wire.unpack_error(received("error", wire.ERROR, 14)) == (3, "no plan for epoch 3")


def test_the_fake_door_reads_the_golden_frames():
    sums = {
        "stream": 1, "epoch": 3, "hits_local": 60, "hits_remote": 2, "storage_reads": 1,
        "fallback_reads": 1,
    }
    sums |= {
        "substituted": 0, "substitute_reads": 0, "storage_bytes": 4096, "fallback_bytes": 512,
        "stall_us": 1500, "elapsed_us": 0, "evaluated": 0, "evaluated_reads": 0,
    }
    assert fakedoor.decode(4, FRAMES["get"][12:]) == (1, 3, 9, [11, 12], sums)
    assert fakedoor.decode(6, FRAMES["release"][12:]) == ([13], sums)
    sums |= {"evaluated": 16, "evaluated_reads": 3}
    assert fakedoor.decode(6, FRAMES["release_evaluated"][12:]) == ([], sums)
    *place, losses = fakedoor.decode(5, FRAMES["report"][12:])
    assert place == [1, 3, 9] and losses[0] == 0.5 and isnan(losses[1]) and losses[2] == 2.0
    assert fakedoor.decode(5, FRAMES["report_embedded"][12:])[4] == [[1.5, -2], [0, 0.25], [4, 8]]


def test_every_frame_is_tested():
    replies = {
        "hello_reply", "open_reply", "plan_reply", "plan_reply_unweighted", "plan_reply_repeats",
        "plan_reply_evaluated", "batch", "batch_even",
    }
    replies |= {"save_reply", "status_reply", "shutdown_reply", "error"}
    assert set(FRAMES) == replies | set(SENT)
    kinds = {struct.unpack_from("<H", frame, 4)[0] for frame in FRAMES.values()}
    assert kinds == {*range(1, 12), 99, 101, 102, 103, 104, 108, 109, 110}
