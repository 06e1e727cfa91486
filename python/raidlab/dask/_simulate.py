"""Seeds of the simulator on the workers of a cluster.

Invariant: a seed counts once; what was not run is in the result, as ranges.
"""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import distributed

from raidlab import _native
from raidlab.dask import _worker
from raidlab.dask._blocks import Block, BlockProgress, Blocks, even
from raidlab.dask._cluster import Cluster, connected
from raidlab.dask._flight import PATIENCE_S, Stopped
from raidlab.dask._sweep import note_on_stderr
from raidlab.errors import UsageError

#: Longest task by default, seconds: how long a measurement waits for it, and what a lost one costs.
BLOCK_S = 5.0

#: Part of it that a block is cut for: seeds are not equally long.
AIM = 0.8

#: Seeds of the first blocks, of which nothing is known.
FIRST = 64

#: Shortest task that a rest is cut for, seconds: below it, the scheduler's part counts.
SHORTEST_S = 0.25


@dataclass(frozen=True)
class SeedBlock:
    """Seeds that one task has run.

    :ivar first_seed: the first
    :ivar seeds: their number
    :ivar host: host name of the worker
    :ivar wall_s: seconds on the worker, with what made findings smaller
    :ivar cpu_s: CPU seconds of the thread that ran the seeds, without that
    :ivar began_unix_s: when it began, by the clock of the host, seconds since 1970
    """

    first_seed: int
    seeds: int
    host: str
    wall_s: float
    cpu_s: float
    began_unix_s: float


@dataclass(frozen=True)
class SimulationResult:
    """What the seeds of a call have shown.

    :ivar first_seed: the first seed
    :ivar seeds: number of seeds that were run
    :ivar findings: scenarios that fail, those with few actions first; :func:`raidlab.replay` runs
        one again
    :ivar totals: as :attr:`raidlab.Simulation.totals`, of all blocks
    :ivar blocks: what each task has run, in the order of the seeds
    :ivar left: seeds that were not run, as (first, number): it was stopped, or has found enough
    :ivar stopped: it was stopped
    :ivar seconds: seconds of the call, from the first task that was submitted
    """

    first_seed: int
    seeds: int
    findings: list[_native.Finding]
    totals: dict[str, Any]
    blocks: list[SeedBlock]
    left: list[tuple[int, int]]
    stopped: bool
    seconds: float


@dataclass
class Seeds:
    """What was seen so far."""

    most_findings: int
    block_seconds: float
    options: dict[str, Any]
    runs: list[tuple[SeedBlock, _worker.SeedsRun]] = field(default_factory=list)
    findings: list[_native.Finding] = field(default_factory=list)
    seeds: int = 0
    busy_s: float = 0.0

    def size(self, left: int, threads: int) -> int:
        """Seeds of the next block: as many as fit its time, by what they took so far."""
        if self.busy_s <= 0:
            return min(FIRST, even(left, threads))
        rate = self.seeds / self.busy_s
        shortest, longest = rate * SHORTEST_S, rate * self.block_seconds * AIM
        return max(1, int(min(longest, max(even(left, threads), shortest))))

    def call(self, block: Block) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        """The task of a block."""
        most = max(1, self.most_findings - len(self.findings))
        options = self.options | {"seconds": self.block_seconds, "most_findings": most}
        return _worker.run_seeds, (block.first, block.count, _worker.build(), options)

    def take(self, block: Block, run: _worker.SeedsRun) -> int:
        """Keeps what a block returned."""
        done = SeedBlock(
            block.first, run.seeds, run.host, run.wall_s, run.cpu_s, run.began_unix_s
        )
        self.runs.append((done, run))
        self.findings += run.findings
        self.seeds += run.seeds
        self.busy_s += run.wall_s
        return run.seeds

    def enough(self) -> bool:
        """Whether there are as many findings as requested."""
        return len(self.findings) >= self.most_findings

    def totals(self, first_seed: int) -> dict[str, Any]:
        """The totals of all blocks."""
        speed = "member_operations_per_second_and_core"
        sums: dict[str, Any] = {"first_seed": first_seed}
        marks: dict[str, int] = {}
        core_s = 0.0
        for _, run in self.runs:
            for name, value in run.totals.items():
                if name not in ("first_seed", "findings", "marks", speed):
                    sums[name] = sums.get(name, 0) + value
            for mark, count in run.totals["marks"].items():
                marks[mark] = marks.get(mark, 0) + count
            if run.totals[speed]:
                core_s += run.totals["member_operations"] / run.totals[speed]
        sums[speed] = sums["member_operations"] / core_s if core_s else 0.0
        sums["marks"] = marks
        sums["findings"] = [
            {"place": it.place, "message": it.message, "scenario": it.scenario}
            for it in self.found()
        ]
        return sums

    def found(self) -> list[_native.Finding]:
        """The findings, those with few actions first."""
        return sorted(self.findings, key=lambda it: (len(it.scenario.split()), it.scenario))


def simulate(
    first_seed: int,
    count: int,
    scheduler: str | distributed.Client | None = None,
    *,
    only: str | None = None,
    most_findings: int = 5,
    shrink_seconds: float = 0.0,
    planted: str | None = None,
    block_seconds: float = BLOCK_S,
    security: Any = None,
    patience: float = PATIENCE_S,
    progress: Callable[[BlockProgress], None] | None = None,
    note: Callable[[str], None] | None = None,
    stop: threading.Event | None = None,
) -> SimulationResult:
    """Runs seeds of the simulator on all workers of a Dask cluster: :func:`raidlab.simulate`.

    The seeds are cut into blocks of a bounded time, of which each thread of a worker runs one at a
    time. A worker needs no resource; no block runs while a sweep or a load measures on its host. A
    worker that dies costs its block, which runs again. The same seeds give the same findings; which
    of them are found first, where they are more than `most_findings`, depends on the workers.

    :param first_seed: the first seed
    :param count: number of seeds
    :param scheduler: address (``tcp://``, ``tls://``), a client, or None: the current client
    :param only: leaves out arrays without this text in their description
    :param most_findings: ends it after as many
    :param shrink_seconds: how long each finding is made smaller, on the worker, beside the time of
        its block
    :param planted: a bug, by the words of ``cargo xtask sim --mutants``
    :param block_seconds: longest block, seconds
    :param security: ``distributed.Security`` for TLS; None: Dask's own configuration
    :param patience: seconds without any worker
    :param progress: is called for each block that ends
    :param note: is called with remarks; None: a line on stderr
    :param stop: ends it when it is set; the result has what was run, and what is left
    :raises RefusedError: workers have another raidlab
    :raises ClusterError: no worker, no scheduler, seeds that have cost three workers
    :raises Error: a scenario that does not end, with its text
    """
    if count < 0 or first_seed < 0 or first_seed + count >= 2**64:
        raise UsageError(f"seeds {first_seed} and {count} more: they are below 2^64")
    if not (0 < block_seconds < math.inf):
        raise UsageError(f"block_seconds {block_seconds}: more than 0")
    options: dict[str, Any] = {"only": only, "shrink_seconds": shrink_seconds, "planted": planted}
    # What is wrong with the options is wrong here already.
    nothing = _native.simulate(first_seed, 0, most_findings=most_findings, **options)
    client, own = connected(scheduler, security)
    stopped = stop.is_set if stop is not None else lambda: False
    seeds = Seeds(most_findings, block_seconds, options)
    try:
        cluster = Cluster(client, note or note_on_stderr, measures=False)
        cluster.expect(patience, stopped)
        began = time.monotonic()

        def show(done: int) -> None:
            if progress is not None:
                left_s = (count - done) * (time.monotonic() - began) / done if done else None
                found, workers = len(seeds.findings), len(cluster.hosts)
                progress(BlockProgress(done, count, left_s, found, workers))

        blocks = Blocks(
            cluster,
            "seeds",
            patience,
            stopped,
            first_seed,
            first_seed + count,
            seeds.size,
            seeds.call,
            seeds.take,
            seeds.enough,
            show,
        )
        was_stopped = False
        try:
            blocks.run()
        except Stopped:
            was_stopped = True
        seconds = time.monotonic() - began
    finally:
        if own:
            with contextlib.suppress(Exception):
                client.close(timeout=5)
    return SimulationResult(
        first_seed,
        seeds.seeds,
        seeds.found(),
        seeds.totals(first_seed) if seeds.runs else nothing.totals,
        sorted((it for it, _ in seeds.runs), key=lambda it: it.first_seed),
        blocks.left(),
        was_stopped,
        seconds,
    )
