"""Work that is cut into blocks, which any worker can run: seeds of the simulator, rows of a table.

::

    cut --> Dask: any checked worker, two blocks for each of its threads --> take --> what is left
     ^                |
     '- it was lost --'

Invariant: each part of the work is taken once, whatever Dask runs twice, because a block ends once;
a block that was lost runs again, and one that has cost three workers is an error.
"""

from __future__ import annotations

import math
import time
import uuid
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from raidlab.dask._cluster import Cluster, ClusterError
from raidlab.dask._flight import ATTEMPTS, LOOK, Ended, Flight, Stopped, reason
from raidlab.errors import Error

#: Blocks with the scheduler for each thread: one that runs, and one that waits at its worker.
FOR_EACH_THREAD = 2


@dataclass
class Block:
    """Consecutive parts of the work."""

    first: int
    count: int
    #: How often its worker has ended before it.
    lost: int = 0

    def words(self, what: str) -> str:
        """It in words: "seeds 5 to 9"."""
        return f"{what} {self.first} to {self.first + self.count - 1}"


@dataclass(frozen=True)
class BlockProgress:
    """How far it is.

    :ivar done: seeds or rows that are done
    :ivar count: all of them
    :ivar left_s: seconds left, estimated; None: nothing has ended
    :ivar findings: scenarios that failed so far
    :ivar workers: workers that are used
    """

    done: int
    count: int
    left_s: float | None
    findings: int
    workers: int


@dataclass
class Blocks:
    """Work in progress."""

    cluster: Cluster
    #: "seeds" or "rows".
    what: str
    patience: float
    stopped: Callable[[], bool]
    #: Part of the work that was not cut yet: the first, and the end.
    next: int
    end: int
    #: How many parts the next block has: of those that are left, for a number of threads.
    size: Callable[[int, int], int]
    #: The function of a block's task and its arguments.
    call: Callable[[Block], tuple[Callable[..., Any], tuple[Any, ...]]]
    #: Takes what a block returned; how many of its parts, from the first on, are done.
    take: Callable[[Block, Any], int]
    #: Whether what was taken is enough.
    enough: Callable[[], bool] = lambda: False
    show: Callable[[int], None] = lambda done: None
    #: Blocks that were lost, and what others have left.
    again: deque[Block] = field(default_factory=deque)
    done: int = 0
    flight: Flight[Block] = field(init=False)

    def __post_init__(self) -> None:
        self.flight = Flight(self.cluster)

    def run(self) -> None:
        """Runs everything, or enough of it.

        :raises Stopped: it was stopped
        """
        looked = time.monotonic()
        try:
            while not self.enough():
                if self.stopped():
                    raise Stopped
                if time.monotonic() - looked > LOOK:
                    self.cluster.look(self.patience)
                    for ended in self.flight.stranded():
                        self._take(ended)
                    looked = time.monotonic()
                self._submit()
                if not self.flight.active and not self.again and self.next >= self.end:
                    return
                one = self.flight.wait(LOOK / 2)
                if one is not None:
                    self._take(one)
        finally:
            # Also what was begun and is not needed.
            self.again.extend(self.flight.items())
            self.flight.cancel()

    def left(self) -> list[tuple[int, int]]:
        """What was not done: the first, and how many; joined where they touch."""
        rest = [Block(self.next, self.end - self.next)] if self.next < self.end else []
        joined: list[tuple[int, int]] = []
        for block in sorted([*self.again, *rest], key=lambda block: block.first):
            if joined and sum(joined[-1]) == block.first:
                joined[-1] = (joined[-1][0], joined[-1][1] + block.count)
            else:
                joined.append((block.first, block.count))
        return joined

    def _submit(self) -> None:
        hosts = self.cluster.hosts
        threads = sum(host.threads for host in hosts.values())
        while len(self.flight.active) < FOR_EACH_THREAD * threads:
            if self.again:
                block = self.again.popleft()
            elif self.next < self.end:
                left = self.end - self.next
                block = Block(self.next, min(max(1, self.size(left, threads)), left))
                self.next += block.count
            else:
                return
            function, arguments = self.call(block)
            key = f"raidlab-{self.what}-{block.first}-{uuid.uuid4().hex[:8]}"
            self.flight.start(block, hosts, key, function, *arguments)

    def _take(self, ended: Ended[Block]) -> None:
        block = ended.item
        words = block.words(self.what)
        if ended.lost is not None:
            block.lost += 1
            if block.lost >= ATTEMPTS:
                raise ClusterError(f"{words}: {ended.lost}, {block.lost} times")
            self.again.appendleft(block)
            return
        if ended.failed is not None:
            # Whole, where it says what is wrong with the work.
            if isinstance(ended.failed, Error):
                raise ended.failed
            raise ClusterError(f"{words}: {reason(ended.failed, 'ran')}") from ended.failed
        done = self.take(block, ended.value)
        self.done += done
        if done < block.count:
            self.again.appendleft(Block(block.first + done, block.count - done))
        self.show(self.done)


def even(left: int, threads: int) -> int:
    """A share of what is left, of which each thread gets two: so that all end at one time."""
    return math.ceil(left / (2 * max(threads, 1)))
