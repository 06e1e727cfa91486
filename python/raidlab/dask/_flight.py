"""Tasks that are with the scheduler, until they end or are taken back.

Invariant: what was started ends once: with a value, lost (its worker has gone: it may run again), or
failed; a task that was taken back does not end.
"""

from __future__ import annotations

import contextlib
import queue
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import distributed
from distributed.scheduler import KilledWorker

from raidlab.dask import _worker
from raidlab.dask._cluster import Cluster

#: How often a task begins that ends with its worker.
ATTEMPTS = 3

#: Interval at which workers are looked for, and a stop, seconds.
LOOK = 0.5

#: Seconds within which a finished task's result comes, before it is waited for again.
FETCH_S = 10.0

#: Seconds without any worker, or without the one that an item is bound to, until that is an error.
PATIENCE_S = 60.0

T = TypeVar("T")


class Stopped(Exception):
    """The caller stops it."""


@dataclass(frozen=True)
class Ended(Generic[T]):
    """How a task ended: with a value, or lost, or failed."""

    item: T
    value: Any = None
    lost: str | None = None
    failed: BaseException | None = None


@dataclass
class Flight(Generic[T]):
    """What is with the scheduler."""

    cluster: Cluster
    #: With the addresses that it may run at.
    active: dict[distributed.Future, tuple[T, set[str]]] = field(default_factory=dict)
    ended: queue.SimpleQueue[distributed.Future] = field(default_factory=queue.SimpleQueue)

    def items(self) -> list[T]:
        """What was started and has not ended."""
        return [item for item, _ in self.active.values()]

    def start(
        self,
        item: T,
        allowed: Iterable[str],
        key: str,
        function: Callable[..., Any],
        *arguments: Any,
        resources: Mapping[str, float] | None = None,
    ) -> None:
        """Submits a task, for workers at these addresses and no others."""
        allowed = set(allowed)
        future = self.cluster.client.submit(
            function,
            *arguments,
            key=key,
            workers=sorted(allowed),
            allow_other_workers=False,
            resources=None if resources is None else dict(resources),
            pure=False,
        )
        self.active[future] = (item, allowed)
        future.add_done_callback(self.ended.put)

    def cancel(self) -> None:
        """Takes everything back."""
        self._cancel(list(self.active))

    def _cancel(self, futures: list[distributed.Future]) -> None:
        for future in futures:
            self.active.pop(future, None)
        # The scheduler may be gone.
        with contextlib.suppress(Exception):
            self.cluster.client.cancel(futures, force=True)

    def stranded(self) -> list[Ended[T]]:
        """Takes back what no worker is left for: Dask waits for ever for those that were named."""
        found = []
        for future, (item, allowed) in list(self.active.items()):
            if not allowed & set(self.cluster.hosts) and not future.done():
                self._cancel([future])
                found.append(Ended(item, lost="its worker has gone"))
        return found

    def wait(self, seconds: float) -> Ended[T] | None:
        """The next that ends; None: none does in this time."""
        with contextlib.suppress(queue.Empty):
            return self._take(self.ended.get(timeout=seconds))
        return None

    def _take(self, future: distributed.Future) -> Ended[T] | None:
        if future not in self.active:
            return None
        item, _ = self.active[future]
        try:
            value = future.result(timeout=FETCH_S)
        except TimeoutError as error:
            if future.status == "error":
                # Its own, not that of the fetch.
                del self.active[future]
                return Ended(item, failed=error)
            # Its worker died with the result: Dask runs it again.
            if not future.done():
                future.add_done_callback(self.ended.put)
            else:
                self.ended.put(future)
            return None
        except distributed.client.FutureCancelledError:
            del self.active[future]
            self.cluster.refresh()
            return Ended(item, lost="the scheduler gave it up")
        except _worker.OtherBuildError as error:
            del self.active[future]
            self.cluster.note(str(error))
            return Ended(item, lost=str(error))
        except _worker.CancelledTaskError:
            del self.active[future]
            return Ended(item, lost="its worker ended")
        except Exception as error:
            del self.active[future]
            return Ended(item, failed=error)
        del self.active[future]
        future.release()
        return Ended(item, value)


def reason(error: BaseException, doing: str) -> str:
    """Why a task failed, in words; `doing`: what workers did, as in "measured"."""
    if isinstance(error, TimeoutError):
        return "a system call of its worker timed out"
    if isinstance(error, KilledWorker):
        return f"workers died while they {doing} it: it may be what kills them"
    return str(error) or repr(error)
