"""A door in Python: the server's side of docs/wire/README.md, with faults on demand, for the
client's tests."""

import json
import mmap
import os
import random
import socket
import struct
import threading
import weakref
from array import array
from collections import namedtuple
from itertools import accumulate

from dataset_tree import make_tree, write_index

HEADER = struct.Struct("<IHHI")
SLAB_BYTES = 1 << 20
PLACE_BYTES = 1024  # of one sample in the slab; samples of the tests are smaller

_doors = weakref.WeakSet()


def _close_copies():
    """Closes the doors' sockets in a forked worker: they belong to the parent, and a killed process
    leaves no copies either."""
    for door in _doors:
        for sock in [*door.sockets, door.listener]:
            if sock is not None:
                sock.close()


os.register_at_fork(after_in_child=_close_copies)

SCORERS = {"pads": "logrank"}  # of samplers that draw by scores

Request = namedtuple("Request", "kind connection values")


class Data:
    """One data set: its files, its index, and its bytes."""

    def __init__(self, folder, name, make=make_tree, **tree):
        self.name, self.root = name, os.path.join(folder, name)
        self.files = make(self.root, **tree)
        self.index = os.path.join(folder, name + ".idx")
        self.identity, self.times = write_index(self.index, self.root, self.files)
        self.bytes = [open(f, "rb").read() for f in self.files]
        self.labels = [int(os.path.basename(os.path.dirname(f))[1:]) for f in self.files]


class Door:
    """Serves data sets at `path`. Faults: `sources` {(epoch, batch, place): source}, `not_ready`
    (kinds), `wrong_ids` (epochs), `version`, `weights`, `hang_up_at` {(epoch, batch)}: the
    connection ends there."""

    def __init__(self, path, data, draws="shuffle"):
        self.path, self.data = path, data
        self.draws = draws
        self.requests, self.changed = [], threading.Condition()
        self.sources, self.not_ready, self.wrong_ids, self.hang_up_at = {}, set(), set(), set()
        self.refuses_lists = False
        self.version, self.refuse, self.weights = 5, None, False
        self.pieces, self.most = b"", 0  # what OPEN says of the batches; 0: as many as there are
        self.embeddings = 0  # length of the embedding that it needs with each loss
        self.missing = None  # what it says of trainers that have not come
        self.welcome = {"plan_version": 1}
        self.saved = {"saved": "/state", "state": "5a" * 16}
        self.slab_bytes = SLAB_BYTES  # as it claims
        self.listener, self.sockets, self.life = None, [], 0
        self.goes = threading.Event()  # cleared: it hangs like a stopped process
        self.goes.set()
        self.faults = []  # how clients violated the protocol
        _doors.add(self)
        self.start()

    # --- life and death ---

    def start(self):
        self.fd = os.memfd_create("slab")
        os.ftruncate(self.fd, SLAB_BYTES)
        self.slab = mmap.mmap(self.fd, SLAB_BYTES)
        self.free = list(range(0, SLAB_BYTES, PLACE_BYTES))
        self.leases, self.next_lease = {}, 1
        # by epoch: the batches that were handed in, and whether that is final
        self.listed, self.opened = {}, set()
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.listener.bind(self.path)
        self.listener.listen(16)
        self.life += 1
        threading.Thread(target=self._accept, args=(self.listener, self.life), daemon=True).start()

    def kill(self):
        """Closes all connections, as when the process is killed, and stops writing to its slab."""
        with self.changed:
            self.life += 1
            if self.listener is not None:
                os.unlink(self.path)
                _shut(self.listener)
                os.close(self.fd)
                self.listener = None
            self._shut_all()

    def hang_up(self):
        """Ends all connections, and lives on: the leases are free, and their places soon hold other
        bytes."""
        with self.changed:
            self._shut_all()
            for lease in list(self.leases):
                self._end(lease)

    def _shut_all(self):
        for sock in self.sockets:
            _shut(sock)
        self.sockets = []

    def _accept(self, listener, life):
        while True:
            try:
                sock, _ = listener.accept()
            except OSError:
                return
            self.goes.wait()
            with self.changed:
                if self.life != life:
                    return _shut(sock)
                self.sockets.append(sock)
            threading.Thread(target=self._serve, args=(sock, object(), life), daemon=True).start()

    def _serve(self, sock, who, life):
        streams = {}
        try:
            while True:
                length, kind, _, ticket = HEADER.unpack(_exactly(sock, HEADER.size))
                payload = _exactly(sock, length)
                self.goes.wait()
                with self.changed:
                    if self.life != life:
                        return
                    reply = self._answer(kind, payload, streams, who)
                if reply is None:
                    continue
                reply_kind, body = reply
                sent = HEADER.pack(len(body), reply_kind, 0, ticket) + body
                fds = [self.fd] if reply_kind == 101 else []
                socket.send_fds(sock, [sent], fds)
        except OSError:
            pass
        finally:
            _linger(sock)
            with self.changed:
                for lease in [
                    n for n, (owner, _) in self.leases.items() if owner is who and self.life == life
                ]:
                    self._end(lease)
                if sock in self.sockets:
                    self.sockets.remove(sock)
                self.changed.notify_all()

    # --- answers ---

    def _answer(self, kind, payload, streams, who):
        values = decode(kind, payload)
        self.requests.append(Request(kind, who, values))
        self.changed.notify_all()
        if kind == 4:
            for lease in values[3]:
                self._end(lease)
        if kind in self.not_ready:
            return 99, struct.pack("<HH", 3, 0) + b"no plan yet"
        return getattr(self, f"_answer_{kind}")(values, streams, who)

    def _answer_1(self, values, streams, who):
        if self.refuse:
            return 99, struct.pack("<HH", 1, 0) + self.refuse.encode()
        data = [
            {
                "name": d.name, "samples": len(d.files), "index": d.index, "root": d.root,
                "identity": d.identity, "times": d.times,
            }  # fmt: skip
            for d in self.data
        ]
        hello = struct.pack("<HHIIQ", self.version, 0, 0, 1, self.slab_bytes)
        return 101, hello + json.dumps({"data": data, "session": "test", **self.welcome}).encode()

    def _answer_2(self, spec, streams, who):
        stream = next((i for i, d in enumerate(self.data) if d.name == spec["data"]), None)
        if stream is None or spec["batch_size"] == 13:
            return 99, struct.pack(
                "<HH", 2, 0
            ) + b"trainer 0 has batch_size 64, trainer 1 batch_size 13"
        batches = self.most or len(plan(self, stream, spec, 0))
        streams[stream] = spec
        scorer = SCORERS.get(spec["sampler"], "")
        reply = {"stream": stream, "batches": batches, "scorer": scorer}
        if self.embeddings:
            reply["embeddings"] = self.embeddings
        return 102, json.dumps(reply).encode()

    def _answer_3(self, values, streams, who):
        stream, epoch, _ = values
        listed = streams[stream]["sampler"] == "listed"
        if self.missing or listed and not self.listed.get(epoch, ([], False))[1]:
            return 99, struct.pack("<HH", 3, 0) + (self.missing or "not handed in").encode()
        self.opened.add(epoch)
        batches = plan(self, stream, streams[stream], epoch)
        ids = [id for batch in batches for id in batch]
        scored = streams[stream]["sampler"] in SCORERS
        # for one trainer: the draws of others are not known here
        repeats = [ids[:place].count(id) for place, id in enumerate(ids)]
        flags = (1 if self.weights else 0) | (2 if any(repeats) else 0) | (4 if scored else 0)
        body = struct.pack("<4I", epoch, len(batches), len(ids), flags)
        body += array("I", map(len, batches)).tobytes() + array("I", ids).tobytes()
        if self.weights:
            body += array("f", [1 + id for id in ids]).tobytes()
        if any(repeats):
            body += array("I", repeats).tobytes()
        if scored:
            body += bytes([epoch]) * 16
        return 103, body

    def _answer_4(self, values, streams, who):
        stream, epoch, batch, _, _ = values
        if (epoch, batch) in self.hang_up_at:
            self.hang_up_at.remove((epoch, batch))
            raise OSError("hang up")
        if streams[stream]["sampler"] == "listed" and epoch not in self.listed:
            return 99, struct.pack("<HH", 3, 0) + b"not handed in"
        self.opened.add(epoch)
        ids = plan(self, stream, streams[stream], epoch)[batch]
        if epoch in self.wrong_ids:
            ids = ids[1:] + ids[:1]
        return 104, self._batch(stream, epoch, batch, ids, who)

    def _batch(self, stream, epoch, batch, ids, who):
        data, places, ends, sources = self.data[stream], [], [], []
        for place, id in enumerate(ids):
            source = self.sources.get((epoch, batch, place), 0)
            content = data.bytes[id] if source & 0x7F < 4 else b""
            at = self.free.pop(0)
            self.slab[at : at + len(content)] = content
            places.append(at)
            ends.append(at + len(content))
            sources.append(source)
        lease, self.next_lease = self.next_lease, self.next_lease + 1
        self.leases[lease] = who, places
        n = len(ids)
        body = struct.pack("<II", lease, n) + array("I", ids).tobytes()
        body += array("I", [data.labels[id] for id in ids]).tobytes()
        body += array("Q", places + ends).tobytes() + bytes(sources)
        bad = [place for place, source in enumerate(sources) if source == 5]
        body += struct.pack("<I", len(bad))
        for place in bad:
            body += struct.pack("<II", place, 9) + b"bad block"
        return body

    def _answer_5(self, values, streams, who):
        pass

    def _answer_6(self, values, streams, who):
        tally = values[-1]
        if tally["stream"] not in streams and any(
            tally[sum] for sum in ("hits_local", "fallback_reads")
        ):
            self.faults.append(
                f"a tally of stream {tally['stream']}, which this connection has not opened"
            )
        for lease in values[0]:
            self._end(lease)

    def _answer_7(self, values, streams, who):
        pass

    def _answer_8(self, values, streams, who):
        return 108, json.dumps(self.saved).encode()

    def _answer_11(self, values, streams, who):
        stream, epoch, ahead, total, first, words = values
        assert streams[stream]["sampler"] == "listed"
        if self.refuses_lists:
            return 99, struct.pack("<HH", 2, 0) + b"refused"
        if epoch in self.opened and epoch in self.listed:
            return 111, b""
        if total == 0:
            if epoch not in self.listed:
                return 99, struct.pack("<HH", 3, 0) + b"not handed in"
            self.listed[epoch] = self.listed[epoch][0], True
            return 111, b""
        self.pieces = self.pieces + words if first else words
        assert first == (len(self.pieces) - len(words)) // 4
        if len(self.pieces) == 4 * total:
            numbers = array("I", self.pieces).tolist()
            counts, ids = numbers[1 : 1 + numbers[0]], numbers[1 + numbers[0] :]
            ends = list(accumulate(counts, initial=0))
            assert ends[-1] == len(ids) and all(counts)
            self.listed[epoch] = [ids[a:b] for a, b in zip(ends, ends[1:])], not ahead
        return 111, b""

    def _end(self, lease):
        if lease not in self.leases:
            self.faults.append(f"lease {lease} was not held")
            return
        _, places = self.leases.pop(lease)
        for at in places:
            # whoever reads now sees other bytes
            self.slab[at : at + PLACE_BYTES] = b"\xee" * PLACE_BYTES
            self.free.append(at)
        self.changed.notify_all()

    # --- for tests ---

    def seen(self, kind):
        """Returns the values of all requests of a kind so far."""
        with self.changed:
            return [r.values for r in self.requests if r.kind == kind]

    def wait(self, condition):
        """Waits until condition() holds; a test that hangs here fails by its deadline."""
        with self.changed:
            assert self.changed.wait_for(condition, timeout=60)


def plan(door, stream, spec, epoch):
    """Returns this trainer's part of each global batch: ids drawn with replacement, or in order."""
    n = len(door.data[stream].files)
    if spec["sampler"] == "listed":
        batches = door.listed[epoch][0] if epoch in door.listed else [[0]] * 1000
        return [batch[::-1] for batch in batches] if spec["assign"] == "local" else batches
    if spec["sampler"].startswith("torch"):
        return torch_plan(n, spec, epoch)
    if spec["sampler"] == "sequential":
        draws = list(range(n))
    else:
        rng = random.Random(f"{spec['seed']} {epoch}")
        draws = (
            [rng.randrange(n) for _ in range(n)]
            if door.draws == "replacement"
            else rng.sample(range(n), n)
        )
    size = spec["batch_size"] * spec["world"]
    batches = [draws[at : at + size] for at in range(0, n, size)]
    if spec["drop_last"] and len(batches[-1]) < size:
        batches.pop()
    return [batch[spec["trainer"] :: spec["world"]] for batch in batches]


def torch_plan(n, spec, epoch):
    from torch.utils.data import DistributedSampler

    part = spec["world"], spec["trainer"]
    shuffle, drop_last = spec["sampler"] == "torch", spec["sampler_drop_last"]
    sampler = DistributedSampler(range(n), *part, shuffle, spec["seed"], drop_last)
    sampler.set_epoch(epoch)
    draws, size = list(sampler), spec["batch_size"]
    end = len(draws) // size * size if spec["drop_last"] else len(draws)
    return [draws[at : at + size] for at in range(0, end, size)]


def decode(kind, payload):
    """Returns the values of a request's payload."""
    if kind == 1:
        magic, version, _, *who = struct.unpack("<8sHHIIQQQ", payload)
        assert magic == b"rankpool"
        return (version, *who)
    if kind in (2, 7):
        return json.loads(payload)
    if kind in (3, 8):
        return struct.unpack(f"<{len(payload) // 4}I", payload)
    if kind == 4:
        stream, epoch, batch = struct.unpack_from("<3I", payload)
        return stream, epoch, batch, *_leases(payload, 12)
    if kind == 5:
        stream, epoch, batch, n = struct.unpack_from("<4I", payload)
        at = 16 + 4 * n
        report = stream, epoch, batch, list(struct.unpack_from(f"<{n}f", payload, 16))
        if at == len(payload):
            return report
        (d,) = struct.unpack_from("<I", payload, at)
        numbers = struct.unpack(f"<{n * d}f", payload[at + 4 :])
        return *report, [list(numbers[i : i + d]) for i in range(0, n * d, d)]
    if kind == 6:
        return _leases(payload, 0)
    if kind == 11:
        return *struct.unpack_from("<5I", payload), payload[20:]
    return ()


def _leases(payload, at):
    (count,) = struct.unpack_from("<I", payload, at)
    leases = list(struct.unpack_from(f"<{count}I", payload, at + 4))
    at += 4 + 4 * count
    tally = struct.unpack("<8I4Q2I", payload[at:] + bytes(72 - len(payload[at:])))
    names = "stream epoch hits_local hits_remote storage_reads fallback_reads substituted"
    names += " substitute_reads"
    names += " storage_bytes fallback_bytes stall_us elapsed_us evaluated evaluated_reads"
    return leases, dict(zip(names.split(), tally))


def _exactly(sock, size):
    parts = b""
    while len(parts) < size:
        part = sock.recv(size - len(parts))
        if not part:
            raise OSError("closed")
        parts += part
    return parts


def _linger(sock):
    """Hangs up, and returns when the client has hung up too: until then its leases hold."""
    try:
        sock.shutdown(socket.SHUT_WR)
        while sock.recv(1 << 16):
            pass
    except OSError:
        pass
    _shut(sock)


def _shut(sock):
    """Shuts down and closes; only closing would not wake the thread that reads."""
    try:
        sock.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass
    sock.close()
