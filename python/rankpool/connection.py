"""One process's connection to the door: frames over a socket, the slab, and reconnecting after the
cache died."""

from __future__ import annotations

import json
import mmap
import multiprocessing.util
import os
import select
import socket
import struct
import threading
import time
import weakref
from collections import deque
from contextlib import suppress
from typing import Deque, Dict, List, NamedTuple, Optional, Sequence, Tuple

from . import session, wire
from .errors import Away, NotReady, RankpoolError, RequestError, VersionError
from .lease import Hands, Lease
from .memory import Memory
from .messages import say, say_once, worker
from .same_user import check_folder, check_peer
from .training import Identities, identities
from .waiting import Waiting, batch_timeout

RETRY_SECONDS = 0.5  # between attempts to reach a cache that is down: an attempt costs some 20 µs
HELLO_SECONDS = 5.0  # a door that accepts but does not reply for this long counts as down
READ_ALONG_SECONDS = 0.05  # another thread may have read the reply
WATCH_SECONDS = 0.5  # between two looks of the sentinel at the connection
HANG_UP_SECONDS = 1.0  # the longest that a process's exit waits for the door
# and for a cache that is away, to send it the counts: a restart takes a few seconds, or more on a
# busy machine
CLOSE_SECONDS = 30.0
# number of ended epochs whose tallies and metrics are resent to a restarted cache, which may not
# have recorded them
KEPT = 8
# bytes received at once: the first is many times the reply to a batch of 64
_BUFFER_BYTES, _MOST_BYTES = 64 << 10, 1 << 20


class Spec(NamedTuple):
    """The specification of a stream of batches in OPEN; `batch_size` is one trainer's."""

    data: str
    identity: str  # of the data set
    sampler: str
    seed: int
    batch_size: int
    drop_last: bool
    sampler_drop_last: bool
    assign: str  # "sampler", "local", or "": as the cache was started
    trainer: int
    world: int
    epochs: int = 0  # number of epochs to train; 0: unknown
    evaluates: bool = False  # batches that are evaluated are not trained on
    embeddings: int = 0  # length of the embedding reported with each loss; 0: none
    job: str = ""  # the training's name, where several share the cache
    first_chunk: int = 0  # of the sampler chunks: what epoch 0 begins with


class Connection:
    """A connection to the door at `path` for one trainer; get one from `connection()`.

    It connects when first needed; after a loss the next call reconnects, if the cache is back.
    Methods raise Away while the cache is down, and NotReady if the cache replies so. Threads may
    share it.
    """

    def __init__(self, path: str, trainer: int, world: int) -> None:
        self.path, self.trainer, self.world = path, trainer, world
        self.worker = int.from_bytes(os.urandom(8), "little")
        self.in_worker = worker() is not None
        self.welcome: Optional[wire.Welcome] = None
        self.slab: object = b""
        self._memory: Optional[Memory] = None  # contains the slab; outlives the connection
        self.generation = 0
        self.identities: Identities = identities(path)
        self.listeners: weakref.WeakSet = weakref.WeakSet()  # called for every new connection
        self._lock = threading.RLock()
        self._sentinel: Optional[threading.Thread] = None
        self._closed = threading.Event()
        self._sock: Optional[socket.socket] = None
        # the cache has been sent what it may have forgotten: other threads may use the connection
        self._ready = False
        self._retry_at = 0.0
        self._bound = batch_timeout()  # for a reply
        self._door = 0
        self._ticket = 0
        self._tallies: Dict[Tuple[int, int], wire.Tally] = {}  # by stream and epoch
        self._metrics: Deque[dict] = deque(maxlen=KEPT)
        self._hands: Optional[Hands] = None  # views of the slab in a script's hands
        self._kept: List[Lease] = []  # ended leases whose views are still in use
        # the newest replies to OPEN: the samplers may have ended before their sums are sent
        self.opened: Dict[Spec, dict] = {}
        self._forget()

    def _forget(self) -> None:
        """Discards the state of the connection; the slab is unmapped when its last view is gone."""
        self.slab = b""
        # of what this connection has opened: the lives of the trainings that were reported to it
        self._lives: Dict[Spec, Optional[Tuple[int, int]]] = {}
        # by ticket the replies that somebody wants; None: it has not come
        self._replies: Dict[int, Optional[Tuple[int, bytes]]] = {}
        self._due: List[int] = []
        self._buffer = bytearray()  # what was received, and not yet read

    # --- being connected ---

    def connect(self) -> bool:
        """Returns whether the cache is connected; tries to connect at most once in RETRY_SECONDS,
        or, if the cache hangs, RANKPOOL_BATCH_TIMEOUT."""
        if self._ready:
            return True
        with self._lock:
            now = time.monotonic()
            if self._sock is not None or now < self._retry_at:
                return self._sock is not None
            self._retry_at = now + RETRY_SECONDS
            again = self.generation > 0
            self._take_due()
            if self._memory is not None and not self._memory.hand_back(os.path.dirname(self.path)):
                self._forget_memory()
            try:
                self._hello()
                if again and not self.in_worker:
                    say("the cache is back")
                self._resume(again)
                self._ready = True
            except (OSError, NotReady, RankpoolError) as error:
                self._drop()
                if isinstance(error, RankpoolError):
                    raise
                if isinstance(error, socket.timeout):
                    self._late(HELLO_SECONDS)
            return self._ready

    def _forget_memory(self) -> None:
        if self._memory is not None:
            self._memory.close()
            self._memory = None

    def add_listener(self, listener) -> None:
        """Registers listener._reconnected(link) to be called for every new connection, possibly
        by the sentinel, a thread of a training process that notices a restarted cache.

        A trainer that waits in an all-reduce does not look at its connection. Trainers that
        meanwhile wait for a plan of a cache that was restarted would wait forever, because the plan
        needs what every trainer has opened and reported.
        """
        with self._lock:
            self.listeners.add(listener)
            if self._sentinel is None and not self.in_worker:
                self._sentinel = threading.Thread(
                    target=self._watch, name="rankpool sentinel", daemon=True
                )
                self._sentinel.start()

    def _watch(self) -> None:
        """Connects again whenever the connection has ended."""
        while not self._closed.wait(WATCH_SECONDS):
            with self._lock:
                if self._closed.is_set() or not self.listeners:
                    continue
                try:
                    if self._sock is not None and _ended(self._sock):
                        self._lost()
                    self.connect()
                except (OSError, RuntimeError):
                    # A cache that refuses us refuses training too, which raises it; and training
                    # may just have changed what is sent again.
                    self._drop()

    def _resume(self, again: bool) -> None:
        """Resends to a restarted cache what it may have lost."""
        for listener in list(self.listeners):
            listener._reconnected(self)
        if again:
            for spec in list(self.opened):
                self.open(spec)  # a door records counts only of open streams
            for metric in self._metrics:
                self._send(wire.METRIC, wire.compact({**metric, "to": "log"}))
            for tally in list(self._tallies.values()):
                self._send(wire.RELEASE, wire.pack_release((), tally.pack()))

    def _hello(self) -> None:
        self._sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._sock.settimeout(HELLO_SECONDS)
        check_folder(os.path.dirname(self.path))
        self._door = os.stat(self.path).st_ino
        self._hands = Hands(os.path.dirname(self.path))
        self._sock.connect(self.path)
        check_peer(self._sock, self.path)
        process, family = session.process(), session.family()
        hello = wire.pack_hello(self.trainer, self.world, self.worker, process, family)
        self._sock.sendall(wire.frame(wire.HELLO, 0, hello))
        fds: List[int] = []
        try:
            kind, _, payload = self._frame(fds)
            if kind == wire.ERROR:
                raise self._error(payload)
            self.welcome = welcome = wire.unpack_hello(payload)
            self.identities.check(welcome)
            if welcome.slab_bytes:
                if not fds:
                    raise RankpoolError("rankpool: the cache sent no descriptor of its slab")
                self.slab = mmap.mmap(fds[0], welcome.slab_bytes, mmap.MAP_SHARED, mmap.PROT_READ)
                self._forget_memory()
                self._memory = Memory(fds.pop(0))
        finally:
            for fd in fds:
                os.close(fd)
        self._sock.settimeout(None)
        _bound_calls(self._sock, self._bound)
        self.generation += 1

    def _drop(self) -> None:
        if self._sock is not None:
            self._sock.close()
            self._sock = None
        self._ready = False
        self._forget()
        if self._hands is not None:
            self._hands.leave()
            self._hands = None

    def _lost(self, late: bool = False) -> Away:
        """Drops the connection and returns the error to raise; `late`: the cache has not answered
        in time, and the next attempt to connect waits as long."""
        if late:
            self._late(self._bound)
        elif self._ready and not self.in_worker:
            say("the cache went away; reading storage until it comes back")
        self._drop()
        return Away(f"rankpool: the cache at {self.path} {'is late' if late else 'is away'}")

    def _late(self, seconds: float) -> None:
        say_once(f"the cache has not answered for {seconds:g} s; reading storage until it does")
        self._retry_at = time.monotonic() + self._bound

    def _door_answers(self) -> bool:
        """Returns whether the same door still answers the HELLO of another client: then a missing
        reply is only slow, like a plan that waits for another trainer."""
        try:
            if os.stat(self.path).st_ino != self._door:
                return False
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
                probe.settimeout(HELLO_SECONDS)
                probe.connect(self.path)
                probe.sendall(wire.frame(wire.HELLO, 0, wire.pack_hello(wire.CONTROL, 0, 0, 0, 0)))
                return bool(probe.recv(1))
        except OSError:
            return False

    def close(self) -> None:
        """Sends the last tallies and closes the connection, which ends all its leases.

        A training process waits up to CLOSE_SECONDS for a cache that is down; otherwise its counts
        would be lost.
        """
        with self._lock:
            self._closed.set()
            for listener in list(self.listeners):
                listener._closing()
            if self._sock is not None or self._tallies and not self.in_worker:
                at_most = HANG_UP_SECONDS if self.in_worker else CLOSE_SECONDS
                with suppress(RankpoolError):  # it does not come back, or refuses us
                    Waiting("to take the last counts", at_most).until(self, self._say_bye)
            self._drop()
            self._forget_memory()
        if self._sentinel is not None:  # it must not wake up when the interpreter is gone
            self._sentinel.join(HELLO_SECONDS)

    def _say_bye(self) -> None:
        """Sends the last tallies, and lets the door read to the end: if it fails to send a reply,
        it may never read the rest."""
        newest = {tally.stream: tally for tally in list(self._tallies.values())}
        for tally in newest.values():
            self._send(wire.RELEASE, wire.pack_release(self._take_due(), tally.pack()))
        try:
            self._sock.settimeout(HANG_UP_SECONDS)
            self._sock.shutdown(socket.SHUT_WR)
            while self._sock.recv(_BUFFER_BYTES):
                pass
        except ConnectionResetError:  # what was sent is lost
            raise self._lost() from None
        except OSError:
            pass

    # --- messages ---

    def post(self, kind: int, payload: bytes) -> bool:
        """Sends a one-way message; returns False if the cache is down."""
        with suppress(Away), self._lock:
            if self.connect():
                self._send(kind, payload)
                return True
        return False

    def post_metric(self, metric: dict) -> None:
        """Sends a METRIC, and keeps it to resend to a restarted cache."""
        self._metrics.append(metric)
        self.post(wire.METRIC, wire.compact(metric))

    def request(self, kind: int, payload: bytes) -> bytes:
        """Sends one request and returns the payload of its reply, waiting as long as the cache is
        alive.

        Other threads may have to act before the reply arrives; replies to them are handled
        meanwhile.
        """
        with self._lock:
            ticket = self._send(kind, payload)
            self._replies[ticket] = None
        since = time.monotonic()
        while self._is_due(ticket):
            if self._buffer or _readable(self._sock, READ_ALONG_SECONDS):
                with self._lock, suppress(socket.timeout):  # it may not be all there yet
                    if self._is_due(ticket) and (self._buffer or _readable(self._sock, 0)):
                        self._sort()
            if self._is_due(ticket) and time.monotonic() > since + self._bound:
                if not self._door_answers():
                    with self._lock:
                        raise self._lost(late=True)
                since = time.monotonic()
        return self.wait(ticket)

    def _is_due(self, ticket: int) -> bool:
        """Returns whether a reply may still come."""
        return self._replies.get(ticket, ()) is None

    def _send(self, kind: int, payload: bytes) -> int:
        self._ticket = ticket = self._ticket + 1 & 0xFFFFFFFF
        self._write(wire.frame(kind, ticket, payload))
        return ticket

    def _write(self, frames: bytes) -> None:
        if self._sock is None:
            raise self._lost()
        try:
            self._sock.sendall(frames)
        except (socket.timeout, BlockingIOError):
            raise self._lost(late=True) from None
        except OSError:
            raise self._lost() from None

    def wait(self, ticket: int) -> bytes:
        """Returns the payload of the reply to ticket.

        Raises Away if the connection was lost, or the cache does not answer for
        RANKPOOL_BATCH_TIMEOUT seconds; NotReady or RequestError if the cache replies so.
        """
        with self._lock:
            while self._is_due(ticket):
                try:
                    self._sort()
                except socket.timeout:
                    raise self._lost(late=True) from None
            if ticket not in self._replies:
                raise Away("rankpool: the connection was lost before the reply came")
            kind, payload = self._replies.pop(ticket)
            if kind == wire.ERROR:
                raise self._error(payload)
            return payload

    def batch(self, ticket: int) -> Tuple[wire.BatchReply, Lease]:
        """Returns the reply to a GET, and the lease of its samples in the connection's slab."""
        with self._lock:
            reply = wire.BatchReply(self.wait(ticket))
            lease = Lease(reply.lease, self.generation, self.slab, *reply.places)
            return reply, lease

    def _sort(self) -> None:
        """Reads a frame and stores it for the thread that waits for it."""
        kind, got, payload = self._frame()
        if kind == wire.ERROR and got == 0:  # the door hangs up: trying again would not help
            raise self._error(payload)
        if got in self._replies:
            self._replies[got] = kind, payload
        else:
            self._let_go(kind, payload)

    def _error(self, payload: bytes) -> Exception:
        code, text = wire.unpack_error(payload)
        if code == wire.E_NOT_READY:
            return NotReady(text)
        return (RequestError if code == wire.E_REQUEST else VersionError)(f"rankpool: {text}")

    def abandon(self, ticket: int) -> None:
        """Discards the reply to this GET; its lease is released when it arrives."""
        with self._lock:
            reply = self._replies.pop(ticket, None)
            if reply is not None:
                self._let_go(*reply)

    def _let_go(self, kind: int, payload: bytes) -> None:
        if kind == wire.GET + wire.REPLY:
            self._due.append(wire.BatchReply(payload).lease)

    # --- frames from the socket ---

    def _frame(self, fds: Optional[List[int]] = None) -> Tuple[int, int, bytearray]:
        """Reads the next frame and returns its kind, ticket and payload; appends descriptors that
        come with it to fds."""
        self._fill(wire.HEADER.size, fds)
        length, kind, _, ticket = wire.HEADER.unpack_from(self._buffer)
        end = wire.HEADER.size + length
        self._fill(end, fds)
        payload = self._buffer[wire.HEADER.size : end]
        del self._buffer[:end]
        return kind, ticket, payload

    def _fill(self, size: int, fds: Optional[List[int]]) -> None:
        """Reads until size bytes are buffered."""
        while len(self._buffer) < size:
            some = max(_BUFFER_BYTES, min(size - len(self._buffer), _MOST_BYTES))
            try:
                if fds is None:
                    got = self._sock.recv(some)
                else:
                    got, sent, _, _ = socket.recv_fds(self._sock, some, 4, socket.MSG_CMSG_CLOEXEC)
                    fds.extend(sent)
            except (socket.timeout, BlockingIOError):
                raise socket.timeout from None
            except OSError:
                raise self._lost() from None
            if not got:
                raise self._lost()
            self._buffer += got

    # --- streams, tallies, leases ---

    def open(self, spec: Spec, training: Optional[dict] = None) -> Tuple[int, int]:
        """Returns the stream's number and its batches in an epoch; sends OPEN once per connection
        and life of a training.

        `training` is the training process's description of itself (Training.describe), None in a
        worker.
        """
        life = training and (training["life"], training["turn"])
        if spec not in self._lives or life not in (None, self._lives[spec]):
            reply = json.loads(self.request(wire.OPEN, wire.pack_open(spec, training)))
            self.opened[spec], self._lives[spec] = reply, life or self._lives.get(spec)
        return self.opened[spec]["stream"], self.opened[spec]["batches"]

    def tally(self, stream: int, epoch: int) -> wire.Tally:
        """Returns the running sums for one epoch; if the epoch is new, sends the previous one's
        sums."""
        if stream < 0:  # nobody counts what no cache serves
            return wire.Tally(stream, epoch)
        tally = self._tallies.get((stream, epoch))
        if tally is None:
            ended = [key for key in list(self._tallies) if key[0] == stream]
            if ended:
                self.send_tally(self._tallies[ended[-1]])
            if len(ended) > KEPT:
                del self._tallies[ended[0]]
            tally = self._tallies[stream, epoch] = wire.Tally(stream, epoch)
        return tally

    def get(self, stream: int, epoch: int, batches: Sequence[int]) -> List[int]:
        """Requests batches in a single write, releases the leases that ended, and returns the
        tickets."""
        with self._lock:
            tally, due = self.tally(stream, epoch).pack(), self._take_due()
            frames, tickets = [], []
            for batch in batches:
                self._ticket = ticket = self._ticket + 1 & 0xFFFFFFFF
                tickets.append(ticket)
                frames.append(
                    wire.frame(wire.GET, ticket, wire.pack_get(stream, epoch, batch, due, tally))
                )
                due = ()
            self._write(b"".join(frames))
            self._replies.update(dict.fromkeys(tickets))
            return tickets

    def end(self, lease: Lease) -> None:
        """Ends the use of a lease; the next GET or RELEASE releases it, unless a view is still in
        use."""
        with self._lock:
            if not lease.release():
                self._kept.append(lease)
            elif lease.generation == self.generation and self._sock is not None:
                self._due.append(lease.number)

    def lost(self, lease: Lease) -> bool:
        """Returns whether the connection of a lease has ended, so that its bytes may have been
        overwritten."""
        sock = self._sock  # another thread may drop it
        return lease.generation != self.generation or sock is None or _ended(sock)

    def lend(self, lease: Lease) -> bool:
        """Hands the views of a lease to a script, which may use them until they are released;
        returns False if the connection has ended, and with it the lease."""
        with self._lock:
            return (
                lease.generation == self.generation
                and self._hands is not None
                and self._hands.take(lease)
            )

    def send_tally(self, tally: wire.Tally) -> None:
        """Sends the running sums at once, and the leases that ended."""
        if self._sock is not None and tally.stream >= 0:
            self.post(wire.RELEASE, wire.pack_release(self._take_due(), tally.pack()))

    def _take_due(self) -> Sequence[int]:
        with self._lock:
            kept, self._kept = self._kept, []
            for lease in kept:
                self.end(lease)
            due, self._due = self._due, []
            return due


def _bound_calls(sock: socket.socket, seconds: float) -> None:
    """Makes calls on a blocking socket end after this long with BlockingIOError; settimeout would
    poll before each call."""
    bound = struct.pack("@ll", int(seconds), int(seconds % 1 * 1e6))
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, bound)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, bound)


def _readable(sock: socket.socket, seconds: float, event: int = select.POLLIN) -> bool:
    """Returns whether data or the end of the stream can be read, waiting at most this many
    seconds."""
    poll = select.poll()
    try:
        poll.register(sock, event)
    except (TypeError, ValueError):  # another thread has closed it
        return True
    return bool(poll.poll(1000 * seconds))


def _ended(sock: socket.socket) -> bool:
    """Returns whether the door has hung up."""
    return _readable(sock, 0, select.POLLRDHUP)


# The connections of this process. A forked child begins with none: a socket has one owner.
_connections: Dict[Tuple[str, int, int], Connection] = {}


def connection(path: str, trainer: int, world: int) -> Connection:
    """Returns this process's connection for a trainer, the same one for all its data sets."""
    found = _connections.get((path, trainer, world))
    if found is None:
        if not _connections:
            multiprocessing.util.Finalize(None, _close_all, exitpriority=100)
        # Threads that come at the same time all get the connection of one of them: reports and
        # plans must go through one connection, in order.
        found = _connections.setdefault((path, trainer, world), Connection(path, trainer, world))
    return found


def _close_all() -> None:
    while _connections:
        _connections.popitem()[1].close()


def _after_fork() -> None:
    while _connections:
        link = _connections.popitem()[1]
        link._drop()  # only this process's copy
        link._forget_memory()


os.register_at_fork(after_in_child=_after_fork)
