"""Stopping at a signal: all trainers end after the same step, with a checkpoint, before the job's
time is over."""

from __future__ import annotations

import atexit
import multiprocessing
import os
import signal
import sys
import threading
from contextlib import contextmanager
from multiprocessing import resource_tracker
from typing import Any, Callable, Dict, Iterator, List, Optional, Set

# how long a loader's worker outlives SIGTERM: the step under way may need its batches
WORKER_SECONDS = 10.0

_handled: Set[int] = set()  # the signals that a Stop of this process waits for
_stopping = threading.Event()  # one of them has come, here or to another trainer
# tensors that a Stop gave to torch.distributed, whose threads may hold them to the end
_kept: List[Any] = []


class Stop:
    """Notices the signals that end a training's time; call it once per step, on every trainer.

        stop = rankpool.Stop()
        for ids, x, y in loader:
            ...
            if stop():
                save(...)
                break

    It returns True from the same step on for all trainers of the process group (torch.distributed's
    default), even if only one of them got a signal: a step or two later. The all-reduce of one byte
    that this takes runs beside the step. Without a process group, only this process counts.

    Training then ends like any other program: the script returns, or calls sys.exit.

    `signals` are SIGUSR1, SIGUSR2 and SIGTERM unless given. Create it in the main thread, as early
    as possible: until then they end the process. It replaces other handlers of these signals until
    `close`. Workers of DataLoaders over rankpool's data sets or samplers that are started
    afterwards survive these signals; SIGTERM, for WORKER_SECONDS.
    """

    def __init__(self, *signals: int) -> None:
        self.signal: Optional[int] = None  # the first that came to this process
        self._over = False
        self._pending: Any = None
        self._flag: Any = None  # the tensor of all all-reduces
        numbers = signals or (signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM)
        self._before: Dict[int, Any] = {int(n): signal.signal(n, self._hear) for n in numbers}
        _handled.update(self._before)

    def _hear(self, number: int, frame) -> None:
        if self.signal is None:
            self.signal = number
            _stopping.set()

    def __call__(self) -> bool:
        """Returns whether this step is the last one."""
        if not self._over:
            self._over = self._agreed()
            if self._over:
                _stopping.set()
        return self._over

    def _agreed(self) -> bool:
        dist = _process_group()
        if dist is None:
            return self.signal is not None
        # The answer to one call is used in the next: no call waits for it.
        over = False
        if self._pending is not None:
            self._pending.wait()
            over = bool(self._flag.item())
        self._pending = None if over else self._begin(dist)
        return over

    def _begin(self, dist: Any) -> Any:
        """Begins an all-reduce of whether this trainer was told to stop, and returns the
        torch.distributed.Work."""
        if self._flag is None:
            import torch

            device = torch.cuda.current_device() if dist.get_backend() == "nccl" else "cpu"
            self._flag = torch.zeros(1, dtype=torch.uint8, device=device)
            _kept.append(self._flag)
        self._flag.fill_(self.signal is not None)
        return dist.all_reduce(self._flag, op=dist.ReduceOp.MAX, async_op=True)

    def close(self) -> None:
        """Restores the previous handlers of the signals."""
        for number, before in self._before.items():
            signal.signal(number, signal.SIG_DFL if before is None else before)
        _handled.difference_update(self._before)
        self._before = {}


def stopping() -> bool:
    """Returns whether a Stop has been told to end training."""
    return _stopping.is_set()


def _process_group() -> Any:
    """Returns torch.distributed, None when this process trains alone."""
    dist = sys.modules.get("torch.distributed")
    several = dist and dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1
    return dist if several else None


@atexit.register
def _ignore_signals() -> None:
    """Ignores the signals of a Stop that has ended training.

    Python restores their default handlers when it exits. A launcher that passes SIGTERM on may come
    later than that, and would kill a process that has saved its checkpoint.
    """
    if _stopping.is_set():
        for number in _handled:
            signal.signal(number, signal.SIG_IGN)


# --- workers ---


class Spared:
    """A worker_init_fn: signals that stop training, and go to all of its processes, do not end the
    worker before training ends."""

    def __init__(self, then: Optional[Callable[[int], None]]) -> None:
        self.then, self.signals = then, frozenset()

    def __call__(self, worker: int) -> None:
        for number in self.signals:
            signal.signal(number, _linger if number == signal.SIGTERM else signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, self.signals)
        if self.then is not None:
            self.then(worker)

    @contextmanager
    def starting(self, context) -> Iterator[None]:
        """Workers that are started in this context begin with the signals blocked, until they call
        this object.

        `context` is their multiprocessing context, None for the default one.
        """
        self.signals = frozenset(_handled)
        before = signal.pthread_sigmask(signal.SIG_BLOCK, self.signals)
        try:
            if self.signals and (context or multiprocessing).get_start_method() != "fork":
                # this unblocks SIGTERM: do it before a worker is started
                resource_tracker.ensure_running()
                signal.pthread_sigmask(signal.SIG_BLOCK, self.signals)
            yield
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _linger(number: int, frame) -> None:
    """Ends the worker after WORKER_SECONDS, if training has not done so: torch also uses SIGTERM to
    end stuck workers."""
    end = threading.Timer(WORKER_SECONDS, os._exit, (0,))
    end.daemon = True
    end.start()
