"""Load of several hosts on one target: the same item on each of them, started at one time.

::

    workers: set up, "ready" --Queue--> director: all are ready --Variable--> the agreed start
             wait for it by their own clock, whose offset is known

Invariant: rates are added only over the time in which all hosts measured; where there is none, the
parts are stored with the reason.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
import uuid
from collections.abc import Callable, Sequence
from typing import Unpack

import distributed

from raidlab.dask import _worker
from raidlab.dask._cluster import HOST, Cluster, ClusterError, Host
from raidlab.dask._flight import ATTEMPTS, LOOK, PATIENCE_S, Stopped
from raidlab.dask._sweep import (
    Director,
    Source,
    SweepOptions,
    SweepResult,
    Task,
    directed,
)
from raidlab.errors import UsageError

#: From the last host that is ready to the agreed start, seconds: messages have arrived by then.
LEAD_S = 1.0


def load(
    file: str | os.PathLike[str],
    scheduler: str | distributed.Client | None = None,
    *,
    hosts: int | Sequence[str],
    **options: Unpack[SweepOptions],
) -> SweepResult:
    """Starts each item of a sweep file on several hosts at one time, against one target.

    The target is one that the hosts share: ``device:nbd://HOST/EXPORT``, which is only read, or
    ``path:DIR`` on a shared file system, where each host has a file of its own. The record has a
    cell of each host, and one of all: its rate is that of the common window.

    :param hosts: how many, or their names
    :raises UsageError: fewer than two hosts
    :raises ClusterError: there are not as many workers

    The other parameters are those of :func:`sweep`.
    """
    if isinstance(hosts, str):
        raise UsageError(f"hosts={hosts!r}: a number, or a list of names")
    count = hosts if isinstance(hosts, int) else len(set(hosts))
    # Loads of other hosts are other runs.
    whose = str(hosts) if isinstance(hosts, int) else "+".join(sorted(set(hosts)))
    if count < 2:
        raise UsageError(f"hosts={hosts!r}: load of several hosts is of two at least")
    patience = options.get("patience", PATIENCE_S)

    def prepare(_: Source, cluster: Cluster, stopped: Callable[[], bool]) -> None:
        cluster.expect(patience, stopped)
        # Where it was stopped here, nothing is begun below.
        with contextlib.suppress(Stopped):
            _chosen(cluster, hosts, patience, stopped)

    def direct(director: Director, tasks: list[Task]) -> None:
        for task in tasks:
            _one(director, task, hosts)

    return directed(file, scheduler, options, whose, prepare, direct)


def _chosen(
    cluster: Cluster,
    hosts: int | Sequence[str],
    patience: float,
    stopped: Callable[[], bool],
) -> list[Host]:
    """The hosts of the load, when all of them are there."""
    until = time.monotonic() + patience
    while True:
        cluster.refresh()
        there = sorted(cluster.hosts.values(), key=lambda host: host.hostname)
        names = [host.hostname for host in there]
        if isinstance(hosts, int):
            chosen, missing = there[:hosts], f"{hosts} hosts are required"
            enough = len(chosen) == hosts
        else:
            chosen = [host for host in there if host.hostname in hosts]
            missing = f"{', '.join(sorted(set(hosts) - set(names)))} is not there"
            enough = len(chosen) == len(set(hosts))
        if enough:
            return chosen
        if stopped():
            raise Stopped
        if time.monotonic() > until:
            raise ClusterError(f"{missing}; workers that may measure: {', '.join(names) or 'none'}")
        time.sleep(LOOK)


def _one(state: Director, task: Task, hosts: int | Sequence[str]) -> None:
    """Runs a task on all hosts, again where one of them is lost."""
    if task.not_shared is not None:
        state.fail(task, task.not_shared)
        return
    if task.host is not None:
        state.fail(task, f"it is bound to host {task.host}: a load is of several")
        return
    for attempt in range(ATTEMPTS):
        if state.stopped():
            raise Stopped
        chosen = _chosen(state.cluster, hosts, state.patience, state.stopped)
        parts, problem = _together(state, task, chosen)
        if problem is None:
            _store(state, task, chosen, parts)
            return
        state.cluster.note(f"{task.whats[0]}: {problem}, attempt {attempt + 1} of {ATTEMPTS}")
    state.fail(task, f"{problem}, {ATTEMPTS} times")


def _together(state: Director, task: Task, chosen: list[Host]) -> tuple[list[bytes], str | None]:
    """What each host measured, or why not all of them did."""
    client, name = state.cluster.client, f"raidlab-{uuid.uuid4().hex}"
    # As near to the load as can be: clocks drift.
    clocks = state.cluster.clocks((host.address for host in chosen), age=0)
    state.note_errors(clocks)
    names = [host.hostname for host in chosen]
    ready: dict[int, set[str]] = {}
    answers = distributed.Queue(f"{name}-ready", client=client)
    futures = {
        client.submit(
            _worker.measure,
            state.source.text,
            task.keys,
            _worker.build(),
            clocks.get(host.address),
            name,
            key=f"{name}-{host.hostname}",
            workers=[host.address],
            allow_other_workers=False,
            resources={HOST: 1.0},
            pure=False,
        ): host
        for host in chosen
    }
    agreed: set[int] = set()

    def agree(entry: int, problem: str | None) -> None:
        start = distributed.Variable(f"{name}-start-{entry}", client=client)
        start.set((time.time() + LEAD_S, names, problem))
        agreed.add(entry)

    problem: str | None = None
    try:
        while not all(future.done() for future in futures):
            if state.stopped():
                raise Stopped
            try:
                host, entry = answers.get(timeout=LOOK)
            except TimeoutError:
                state.cluster.refresh()
            else:
                ready.setdefault(entry, set()).add(host)
                if len(ready[entry]) == len(chosen):
                    agree(entry, None)
            gone = [it.hostname for it in chosen if it.address not in state.cluster.hosts]
            ended = [it.hostname for future, it in futures.items() if future.done()]
            lost = [future for future, it in futures.items() if it.hostname in gone]
            waiting = [entry for entry in ready if entry not in agreed]
            if gone and not all(future.done() for future in lost):
                return [], f"host {', '.join(gone)} is gone"
            # A host that cannot run it would be waited for.
            if ended and waiting:
                for entry in waiting:
                    agree(entry, f"host {', '.join(ended)} has ended before the start")
        parts = []
        for future, host in futures.items():
            try:
                parts.append(future.result(timeout=30))
            except Exception as error:
                problem = f"{host.hostname}: {str(error) or repr(error)}"
        return parts, problem
    finally:
        with contextlib.suppress(Exception):
            client.cancel(list(futures), force=True)
            answers.close()
            for entry in agreed:
                distributed.Variable(f"{name}-start-{entry}", client=client).delete()


def _store(state: Director, task: Task, chosen: list[Host], parts: list[bytes]) -> None:
    """Stores the parts of a load and what they are together."""
    together = "+".join(host.hostname for host in chosen)
    done = dict(state.run.put_load(parts))
    what_of = dict(zip(task.keys, task.whats, strict=True))
    first = json.loads(parts[0])
    measured = {item["key"] for item in first["items"] if item["cells"] is not None}
    for key, why in done.items():
        if key in measured and state.dataset is not None and key in set(state.run.finished()):
            state.dataset.write(key)
        state.hosts.update(host.hostname for host in chosen)
        state.count(what_of[key], together, why)
    missing = [key for key in task.keys if key not in done]
    if missing:
        left = task.without(set(done))
        if left is not None:
            state.fail(left, "a host was stopped while it measured")
