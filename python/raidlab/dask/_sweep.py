"""A sweep over the hosts of a cluster.

::

    pending tasks --submit--> Dask: any checked worker, or the one it is bound to
         ^                        |
         '-- its worker died -----+--> result --> results file, then data set

Invariant: an item is stored once, whatever Dask runs twice, because it is stored by its key in one
transaction. As many tasks are with the scheduler as there are hosts: Dask decides where, and a
worker that comes later gets its share.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import queue
import sys
import tempfile
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import distributed
from distributed.scheduler import KilledWorker

from raidlab import _native
from raidlab.dask import _worker
from raidlab.dask._cluster import HOST, Cluster, ClusterError, connected
from raidlab.errors import Error, NotFoundError, UsageError

#: Interval at which workers are looked for, and a stop, seconds.
LOOK = 0.5

#: Seconds within which a finished task's result comes, before it is waited for again.
FETCH_S = 10.0

#: How often a task begins that ends with its worker.
ATTEMPTS = 3

#: Seconds without any worker, or without the one that an item is bound to, until that is an error.
PATIENCE_S = 60.0


@dataclass(frozen=True)
class Progress:
    """How far a sweep is.

    :ivar done: items that are stored, or could not be run
    :ivar items: all items
    :ivar left_s: seconds left, estimated; None while nothing is known of programs
    :ivar what: the item that has just ended
    :ivar host: the host that measured it, or None where it could not be run
    :ivar problem: why it could not be run
    """

    done: int
    items: int
    left_s: float | None
    what: str
    host: str | None
    problem: str | None


@dataclass(frozen=True)
class SweepResult:
    """How a sweep ended.

    :ivar run: number of the run in the results file
    :ivar db: the results file
    :ivar items: number of items
    :ivar measured: items that this call measured
    :ivar failed: items that could not be run, and why
    :ivar stopped: it was stopped; the same call resumes
    :ivar hosts: hosts that measured something in this call
    """

    run: int
    db: Path
    items: int
    measured: int
    failed: list[tuple[str, str]]
    stopped: bool
    hosts: list[str]


@dataclass
class Task:
    """What is measured together, without the items that are stored."""

    keys: list[str]
    whats: list[str]
    host: str | None
    devices: list[str]
    export: str | None
    seconds: float | None
    not_shared: str | None
    #: How often its worker has ended before it.
    lost: int = 0
    #: Since when the host that it is bound to is missing.
    missing_since: float | None = None

    def without(self, finished: set[str]) -> Task | None:
        """The task without some of its items; None: none is left."""
        left = [at for at, key in enumerate(self.keys) if key not in finished]
        if not left:
            return None
        self.keys = [self.keys[at] for at in left]
        self.whats = [self.whats[at] for at in left]
        return self


@dataclass
class Source:
    """A sweep as its workers get it."""

    text: str
    plan: dict[str, Any]

    @classmethod
    def read(
        cls,
        file: str | os.PathLike[str],
        options: Mapping[str, Any] | None,
        directory: str | os.PathLike[str] | None,
        destroy_contents: bool,
        cores: int | None,
        parity_impl: str | None,
    ) -> Source:
        """Reads and plans a file, with options over it."""
        path = Path(file)
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeError) as error:
            raise NotFoundError(f"{path}: cannot be read: {error}", path=str(path)) from error
        source = json.dumps(
            {
                "file": str(path),
                "text": text,
                "given": [
                    [key, _values(value)]
                    for key, value in (options or {}).items()
                    if value is not False
                ],
                "directory": None if directory is None else os.fspath(directory),
                "destroy_contents": destroy_contents,
                "cores": cores,
                "parity_impl": parity_impl,
            }
        )
        return cls(source, json.loads(_native.sweep_plan(source)))

    def tasks(self) -> list[Task]:
        """All tasks, in order."""
        names = ("keys", "whats", "host", "devices", "export", "seconds", "not_shared")
        return [Task(**{name: task[name] for name in names}) for task in self.plan["tasks"]]


def _values(value: Any) -> list[str]:
    """The values of an option: True is one without."""
    if value is True:
        return []
    if isinstance(value, str) or not isinstance(value, Sequence):
        value = [value]
    return [str(one) for one in value]


class Stopped(Exception):
    """The caller stops it."""


@dataclass
class Dataset:
    """The Parquet data set of a run: a file for each item, which is there whole or not at all."""

    directory: Path
    name: str
    run: _native.SweepRun

    def file(self, key: str) -> Path:
        """The file of an item."""
        return self.directory / f"{self.name}-{self.run.number}-{key}.parquet"

    def write(self, key: str) -> None:
        """Writes the file of a stored item."""
        contents, file = self.run.parquet(key), self.file(key)
        with tempfile.NamedTemporaryFile(
            dir=self.directory, prefix=".raidlab-", suffix=".new", delete=False
        ) as new:
            try:
                new.write(contents)
                new.flush()
                os.fchmod(new.fileno(), 0o644)
                os.fsync(new.fileno())
                Path(new.name).replace(file)
            except BaseException:
                with contextlib.suppress(OSError):
                    Path(new.name).unlink()
                raise

    def complete(self, keys: Sequence[str]) -> None:
        """Writes what is missing: a run may have ended between the results file and this."""
        self.directory.mkdir(parents=True, exist_ok=True)
        for key in keys:
            if not self.file(key).exists():
                self.write(key)


@dataclass
class Director:
    """A running sweep."""

    source: Source
    cluster: Cluster
    run: _native.SweepRun
    dataset: Dataset | None
    stopped: Callable[[], bool]
    show: Callable[[Progress], None]
    patience: float
    pending: deque[Task] = field(default_factory=deque)
    #: What is with the scheduler, and the addresses that it may run at.
    active: dict[distributed.Future, tuple[Task, set[str]]] = field(default_factory=dict)
    ended: queue.SimpleQueue[distributed.Future] = field(default_factory=queue.SimpleQueue)
    items: int = 0
    done: int = 0
    measured: int = 0
    failed: list[tuple[str, str]] = field(default_factory=list)
    hosts: set[str] = field(default_factory=set)
    began: float = field(default_factory=time.monotonic)
    #: Estimated seconds of what this call measured.
    estimated: float = 0.0
    clocks: dict[str, tuple[float, float]] = field(default_factory=dict)
    alone_since: float | None = None

    def direct(self) -> None:
        """Measures everything that is pending."""
        looked = 0.0
        try:
            while self.pending or self.active:
                if self.stopped():
                    raise Stopped
                if time.monotonic() - looked > LOOK:
                    self.look()
                    looked = time.monotonic()
                self.submit()
                with contextlib.suppress(queue.Empty):
                    self.take(self.ended.get(timeout=LOOK / 2))
        finally:
            self.cancel(list(self.active))

    def look(self) -> None:
        """Looks for workers that came and went."""
        self.cluster.refresh()
        now, there = time.monotonic(), set(self.cluster.hosts)
        if there:
            self.alone_since = None
        elif self.alone_since is None:
            self.alone_since = now
            self.cluster.note("no worker is left; waiting for one")
        elif now - self.alone_since > self.patience:
            raise ClusterError(f"no worker is left since {self.patience:g} s")
        for future, (task, allowed) in list(self.active.items()):
            # Dask waits for ever for workers that were named and are gone.
            if not allowed & there and not future.done():
                self.cancel([future])
                self.again(task, "its worker has gone")
        for task in list(self.pending):
            if task.host is None or self.cluster.of_host(task.host):
                task.missing_since = None
            elif task.missing_since is None:
                task.missing_since = now
            elif now - task.missing_since > self.patience:
                self.pending.remove(task)
                self.fail(task, f"it is bound to host {task.host}, and no worker of it is there")

    def again(self, task: Task, why: str) -> None:
        """Has a task run once more, unless it has cost too many workers."""
        task.lost += 1
        if task.lost >= ATTEMPTS:
            self.fail(task, f"{why}, {task.lost} times")
        else:
            self.pending.appendleft(task)

    def submit(self) -> None:
        """Gives the scheduler as many tasks as there are hosts."""
        there = set(self.cluster.hosts)
        busy = [task.host for task, _ in self.active.values()]
        exports = {task.export for task, _ in self.active.values()} - {None}
        room = len(there) - busy.count(None)
        for task in list(self.pending):
            # Hosts share it: two tasks would disturb each other, and check each other's writes.
            if task.export in exports:
                continue
            if task.host is None and room > 0:
                room -= 1
                self.pending.remove(task)
                self.start(task, there)
                exports |= {task.export} - {None}
            elif task.host is not None and task.host not in busy:
                host = self.cluster.of_host(task.host)
                if host is not None:
                    busy.append(task.host)
                    self.pending.remove(task)
                    self.start(task, {host.address})
                    exports |= {task.export} - {None}

    def start(self, task: Task, allowed: set[str]) -> None:
        """Submits a task."""
        new = [address for address in allowed if address not in self.clocks]
        self.clocks.update(self.cluster.clocks(new))
        resources = {HOST: 1.0} | {f"device:{device}": 1.0 for device in task.devices}
        clocks = {address: self.clocks.get(address) for address in allowed}
        future = self.cluster.client.submit(
            measure_at,
            self.source.text,
            task.keys,
            _worker.build(),
            clocks,
            key=f"raidlab-{self.source.plan['name']}-{task.keys[0]}-{uuid.uuid4().hex[:8]}",
            workers=sorted(allowed),
            allow_other_workers=False,
            resources=resources,
            pure=False,
        )
        self.active[future] = (task, allowed)
        future.add_done_callback(self.ended.put)

    def cancel(self, futures: list[distributed.Future]) -> None:
        """Takes tasks back."""
        for future in futures:
            self.active.pop(future, None)
        # The scheduler may be gone.
        with contextlib.suppress(Exception):
            self.cluster.client.cancel(futures, force=True)

    def take(self, future: distributed.Future) -> None:
        """Takes what a task returned."""
        if future not in self.active:
            return
        task, _ = self.active[future]
        try:
            measured = future.result(timeout=FETCH_S)
        except TimeoutError:
            if future.status == "error":
                # Its own, not that of the fetch.
                del self.active[future]
                self.fail(task, "a system call of its worker timed out")
                return
            # Its worker died with the result: Dask measures it again.
            if not future.done():
                future.add_done_callback(self.ended.put)
            else:
                self.ended.put(future)
            return
        except KilledWorker:
            del self.active[future]
            self.fail(task, "workers died while they measured it: it may be what kills them")
            return
        except distributed.client.FutureCancelledError:
            del self.active[future]
            self.cluster.refresh()
            self.again(task, "the scheduler gave it up")
            return
        except _worker.OtherBuildError as error:
            del self.active[future]
            self.cluster.note(str(error))
            self.again(task, str(error))
            return
        except _worker.CancelledTaskError:
            del self.active[future]
            self.again(task, "its worker ended")
            return
        except Exception as error:
            del self.active[future]
            self.fail(task, str(error) or repr(error))
            return
        del self.active[future]
        future.release()
        self.store(task, measured)

    def store(self, task: Task, measured: bytes) -> None:
        """Stores what a worker sent; what it did not measure is pending again."""
        sent = json.loads(measured)
        host = sent["host"]["hostname"]
        stored = set(self.run.put(measured))
        if self.dataset is not None:
            for key in stored:
                self.dataset.write(key)
        self.hosts.add(host)
        self.estimated += task.seconds or 0.0
        for item in sent["items"]:
            problem = None if item["key"] in stored else item["problem"]
            if item["key"] in stored or problem is not None:
                self.count(item["what"], host, problem)
        settled = {item["key"] for item in sent["items"] if item["problem"] is not None}
        left = task.without(stored | settled)
        if left is not None:
            self.again(left, f"{host} stopped it")

    def fail(self, task: Task, why: str) -> None:
        """Records that a task cannot be run."""
        self.run.put_not_run(list(zip(task.keys, task.whats, strict=True)), why)
        for what in task.whats:
            self.count(what, None, why)

    def count(self, what: str, host: str | None, problem: str | None) -> None:
        """Counts an item."""
        self.done += 1
        if problem is None:
            self.measured += 1
        else:
            self.failed.append((what, problem if host is None else f"{host}: {problem}"))
        self.show(Progress(self.done, self.items, self.left(), what, host, problem))

    def left(self) -> float | None:
        """Seconds left: estimates, by how they have proved so far."""
        tasks = itertools.chain(self.pending, (task for task, _ in self.active.values()))
        seconds = [task.seconds for task in tasks]
        if any(one is None for one in seconds):
            return None
        hosts, took = max(len(self.cluster.hosts), 1), time.monotonic() - self.began
        rate = took * hosts / self.estimated if self.estimated > 0 else 1.0
        return sum(one for one in seconds if one is not None) * max(rate, 1.0) / hosts


def measure_at(
    source: str,
    keys: list[str],
    build: str,
    clocks: dict[str, tuple[float, float] | None],
) -> bytes:
    """:func:`_worker.measure`, with the clock of the worker that Dask has chosen."""
    address = distributed.get_worker().address
    return _worker.measure(source, keys, build, clocks.get(address))


def show_on_stderr(progress: Progress) -> None:
    """A line for each item."""
    left = "" if progress.left_s is None else f", {_duration(progress.left_s)} left"
    where = f"{progress.host}: " if progress.host else ""
    what = progress.what.removeprefix(where)
    problem = f": {progress.problem}" if progress.problem else ""
    line = f"[{progress.done}/{progress.items}{left}] {where}{what}{problem}"
    sys.stderr.write(_printable(line) + "\n")


def note_on_stderr(text: str) -> None:
    """A line of its own."""
    sys.stderr.write(f"raidlab: {_printable(text)}\n")


def _printable(text: str) -> str:
    """Text of other hosts, without what would control a terminal."""
    return "".join(one if one.isprintable() else "?" for one in text)


def _duration(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}h{minutes:02}m"
    return f"{minutes}m{seconds:02}s" if minutes else f"{seconds}s"


@contextlib.contextmanager
def running(run: _native.SweepRun, note: Callable[[str], None]) -> Iterator[None]:
    """Ends the run in any case: complete only where nothing stopped it."""
    try:
        yield
    except BaseException:
        note(f"run {run.number} in {run.path} has what was measured; the same command resumes it")
        # The error is what matters; the run can be resumed either way.
        with contextlib.suppress(Error):
            run.end(False)
        raise


def sweep(
    file: str | os.PathLike[str],
    scheduler: str | distributed.Client | None = None,
    *,
    options: Mapping[str, Any] | None = None,
    db: str | os.PathLike[str] | None = None,
    dataset: str | os.PathLike[str] | None = None,
    again: bool = False,
    directory: str | os.PathLike[str] | None = None,
    destroy_contents: bool = False,
    cores: int | None = None,
    parity_impl: str | None = None,
    security: Any = None,
    patience: float = PATIENCE_S,
    progress: Callable[[Progress], None] | None = None,
    note: Callable[[str], None] | None = None,
    stop: threading.Event | None = None,
) -> SweepResult:
    """Measures the items of a sweep file on the hosts of a Dask cluster.

    Each result is in the results file when it is counted, and a call with the same file resumes
    where another one ended.

    :param file: a TOML file as for ``raidlab sweep``
    :param scheduler: address (``tcp://``, ``tls://``), a client, or None: the current client
    :param options: options of ``raidlab bench`` over the file's, by name: ``{"runs": 2}``
    :param db: results file; None: that of ``raidlab sweep``
    :param dataset: directory of a Parquet data set besides, a file for each item
    :param again: whether to begin a new run, instead of resuming the newest
    :param directory: directory of member files, on each host; None: of its temporary files
    :param destroy_contents: permission to overwrite what devices hold
    :param cores: CPUs to pin to
    :param parity_impl: parity kernels by name; None: the fastest of each host
    :param security: ``distributed.Security`` for TLS; None: Dask's own configuration
    :param patience: seconds without a worker, or without the one that an item is bound to
    :param progress: is called for each item; None: a line on stderr
    :param note: is called with remarks; None: a line on stderr
    :param stop: ends it when it is set; what is running is measured again by the next call
    :raises UsageError: the file is wrong; with its line
    :raises RefusedError: workers have another raidlab, or share a host
    :raises ClusterError: no worker, no scheduler
    """
    source = Source.read(file, options, directory, destroy_contents, cores, parity_impl)
    note = note or note_on_stderr
    for text in source.plan["notes"]:
        note(text)
    stopped = stop.is_set if stop is not None else lambda: False
    tasks = source.tasks()
    for task in tasks:
        if task.devices and task.host is None:
            raise UsageError(
                f"{file}: {task.whats[0]}: it uses devices of one host, and the file does not say "
                'of which: host = "NAME" in its [[run]]'
            )
    client, own = connected(scheduler, security)
    try:
        cluster = Cluster(client, note)
        for task in tasks:
            if task.host is not None and task.devices:
                cluster.devices.setdefault(task.host, set()).update(task.devices)
        cluster.expect(patience, stopped)
        run = _native.SweepRun(source.text, None if db is None else os.fspath(db), None, again)
        with running(run, note):
            finished = set(run.finished())
            data = None
            if dataset is not None:
                data = Dataset(Path(dataset), source.plan["name"], run)
                data.complete(sorted(finished))
            pending = deque(left for task in tasks if (left := task.without(finished)))
            director = Director(
                source, cluster, run, data, stopped, progress or show_on_stderr, patience, pending
            )
            director.items = sum(len(task.keys) for task in pending)
            director.failed = [(what, why) for what, why in source.plan["impossible"]]
            hosts = ", ".join(sorted(host.hostname for host in cluster.hosts.values()))
            note(
                f"{source.plan['name']}: {director.items} item(s) to measure, {len(finished)} "
                f"measured before; {len(cluster.hosts)} host(s): {hosts}; run {run.number} in "
                f"{run.path}"
            )
            was_stopped = False
            try:
                director.direct()
            except Stopped:
                was_stopped = True
            run.end(not was_stopped)
        return SweepResult(
            run.number,
            Path(run.path),
            director.items,
            director.measured,
            director.failed,
            was_stopped,
            sorted(director.hosts),
        )
    finally:
        if own:
            with contextlib.suppress(Exception):
                client.close(timeout=5)
