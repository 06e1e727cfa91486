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
import hashlib
import itertools
import json
import os
import re
import sys
import tempfile
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypedDict, Unpack

import distributed

from raidlab import _native
from raidlab.dask import _worker
from raidlab.dask._cluster import HOST, Cluster, connected
from raidlab.dask._flight import ATTEMPTS, LOOK, PATIENCE_S, Ended, Flight, Stopped, reason
from raidlab.errors import Error, NotFoundError, RefusedError, UsageError


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
    :ivar clock_error_s: largest error of a host's clock against this one, seconds; None: none was
        measured. Each cell has that of its own host.
    """

    run: int
    db: Path
    items: int
    measured: int
    failed: list[tuple[str, str]]
    stopped: bool
    hosts: list[str]
    clock_error_s: float | None


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


class SweepOptions(TypedDict, total=False):
    """How items are measured over hosts.

    :ivar options: options of ``raidlab bench`` over the file's, by name: ``{"runs": 2}``
    :ivar db: results file; None: that of ``raidlab sweep``
    :ivar dataset: directory of a Parquet data set besides, a file for each item
    :ivar again: whether to begin a new run, instead of resuming the newest
    :ivar directory: directory of member files, on each host; None: of its temporary files
    :ivar destroy_contents: permission to overwrite what devices hold
    :ivar cores: CPUs to pin to
    :ivar parity_impl: parity kernels by name; None: the fastest of each host
    :ivar security: ``distributed.Security`` for TLS; None: Dask's own configuration
    :ivar patience: seconds without a worker, or without the one that an item is bound to (60)
    :ivar progress: is called for each item; None: a line on stderr
    :ivar note: is called with remarks; None: a line on stderr
    :ivar stop: ends it when it is set; what is running is measured again by the next call
    """

    options: Mapping[str, Any] | None
    db: str | os.PathLike[str] | None
    dataset: str | os.PathLike[str] | None
    again: bool
    directory: str | os.PathLike[str] | None
    destroy_contents: bool
    cores: int | None
    parity_impl: str | None
    security: Any
    patience: float
    progress: Callable[[Progress], None] | None
    note: Callable[[str], None] | None
    stop: threading.Event | None


@dataclass
class Source:
    """A sweep as its workers get it."""

    text: str
    plan: dict[str, Any]

    @classmethod
    def read(cls, file: str | os.PathLike[str], given: SweepOptions) -> Source:
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
                    for key, value in (given.get("options") or {}).items()
                    if value is not False
                ],
                "directory": _path(given.get("directory")),
                "destroy_contents": given.get("destroy_contents", False),
                "cores": given.get("cores"),
                "parity_impl": given.get("parity_impl"),
            }
        )
        return cls(source, json.loads(_native.sweep_plan(source)))

    def tasks(self) -> list[Task]:
        """All tasks, in order."""
        names = ("keys", "whats", "host", "devices", "export", "seconds", "not_shared")
        return [Task(**{name: task[name] for name in names}) for task in self.plan["tasks"]]


def _path(path: str | os.PathLike[str] | None) -> str | None:
    return None if path is None else os.fspath(path)


def _values(value: Any) -> list[str]:
    """The values of an option: True is one without."""
    if value is True:
        return []
    if isinstance(value, str) or not isinstance(value, Sequence):
        value = [value]
    return [str(one) for one in value]


@dataclass
class Dataset:
    """The Parquet data set of a run: a file for each item, which is there whole or not at all.

    Names of files have the sweep, the run and a digest of what distinguishes the run from others of its
    number, in other results files.
    """

    directory: Path
    name: str
    #: Set by :meth:`open`.
    run: _native.SweepRun | None = None
    prefix: str = ""

    def refuse_others(self, prefix: str | None) -> None:
        """Refuses a directory with files of another run of this sweep: read as one table, their
        cells would be counted together."""
        run = re.compile(rf"{re.escape(self.name)}-(\d+)-[0-9a-f]{{12}}-[^.-]*\.parquet")
        for file in sorted(self.directory.glob("*.parquet")):
            found = run.fullmatch(file.name)
            if found is not None and (prefix is None or not file.name.startswith(prefix)):
                raise RefusedError(
                    f"{file}: it is of run {found[1]} of {self.name} in this or another results "
                    "file; a data set has one run of a sweep: name another directory, or remove it",
                    path=str(file),
                )

    def open(self, run: _native.SweepRun, finished: Sequence[str]) -> None:
        """Writes what is missing: a run may have ended between the results file and this."""
        started = json.loads(run.record())["started"]
        of_run = f"{Path(run.path).resolve()}\n{run.number}\n{started}"
        digest = hashlib.sha256(of_run.encode()).hexdigest()[:12]
        self.run, self.prefix = run, f"{self.name}-{run.number}-{digest}-"
        self.directory.mkdir(parents=True, exist_ok=True)
        self.refuse_others(self.prefix)
        for key in finished:
            if not self.file(key).exists():
                self.write(key)

    def file(self, key: str) -> Path:
        """The file of an item."""
        return self.directory / f"{self.prefix}{key}.parquet"

    def write(self, key: str) -> None:
        """Writes the file of a stored item."""
        assert self.run is not None
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
    items: int = 0
    done: int = 0
    measured: int = 0
    failed: list[tuple[str, str]] = field(default_factory=list)
    hosts: set[str] = field(default_factory=set)
    began: float = field(default_factory=time.monotonic)
    #: Estimated seconds of what this call measured.
    estimated: float = 0.0
    #: Largest error of a clock, seconds.
    clock_error_s: float | None = None
    flight: Flight[Task] = field(init=False)

    def __post_init__(self) -> None:
        self.flight = Flight(self.cluster)

    def direct(self) -> None:
        """Measures everything that is pending."""
        looked = 0.0
        try:
            while self.pending or self.flight.active:
                if self.stopped():
                    raise Stopped
                if time.monotonic() - looked > LOOK:
                    self.look()
                    looked = time.monotonic()
                self.submit()
                ended = self.flight.wait(LOOK / 2)
                if ended is not None:
                    self.take(ended)
        finally:
            self.flight.cancel()

    def look(self) -> None:
        """Looks for workers that came and went."""
        self.cluster.look(self.patience)
        for ended in self.flight.stranded():
            self.take(ended)
        now = time.monotonic()
        for task in list(self.pending):
            if task.host is None or self.cluster.of_host(task.host):
                task.missing_since = None
            elif task.missing_since is None:
                task.missing_since = now
            elif now - task.missing_since > self.patience:
                self.pending.remove(task)
                self.fail(task, f"it is bound to host {task.host}, and no worker of it is there")

    def take(self, ended: Ended[Task]) -> None:
        """Takes what became of a task."""
        if ended.failed is not None:
            self.fail(ended.item, reason(ended.failed, "measured"))
        elif ended.lost is not None:
            self.again(ended.item, ended.lost)
        else:
            self.store(ended.item, ended.value)

    def again(self, task: Task, why: str) -> None:
        """Has a task run once more, unless it has cost too many workers."""
        task.lost += 1
        if task.lost >= ATTEMPTS:
            self.fail(task, f"{why}, {task.lost} times")
        else:
            self.pending.appendleft(task)

    def submit(self) -> None:
        """Gives the scheduler as many tasks as there are hosts."""
        there, active = set(self.cluster.hosts), self.flight.items()
        busy = [task.host for task in active]
        exports = {task.export for task in active} - {None}
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
        clocks = self.cluster.clocks(allowed)
        self.note_errors(clocks)
        self.flight.start(
            task,
            allowed,
            f"raidlab-{self.source.plan['name']}-{task.keys[0]}-{uuid.uuid4().hex[:8]}",
            measure_at,
            self.source.text,
            task.keys,
            _worker.build(),
            clocks,
            resources={HOST: 1.0} | {f"device:{device}": 1.0 for device in task.devices},
        )

    def note_errors(self, clocks: Mapping[str, tuple[float, float]]) -> None:
        """Keeps the largest error of clocks."""
        for _, error in clocks.values():
            self.clock_error_s = max(error, self.clock_error_s or 0.0)

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
        tasks = itertools.chain(self.pending, self.flight.items())
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
    clocks: Mapping[str, tuple[float, float]],
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


def directed(
    file: str | os.PathLike[str],
    scheduler: str | distributed.Client | None,
    given: SweepOptions,
    hosts: str | None,
    prepare: Callable[[Source, Cluster, Callable[[], bool]], None],
    direct: Callable[[Director, list[Task]], None],
) -> SweepResult:
    """Runs a sweep or a load.

    :param hosts: the hosts of a load, whose runs are others
    :param prepare: called before there is a run; what it raises leaves nothing behind
    :param direct: called with what is to be measured
    """
    unknown = sorted(given.keys() - SweepOptions.__annotations__.keys())
    if unknown:
        raise TypeError(f"no such option: {', '.join(unknown)}")
    source = Source.read(file, given)
    note, show = given.get("note") or note_on_stderr, given.get("progress") or show_on_stderr
    stop, patience = given.get("stop"), given.get("patience", PATIENCE_S)
    stopped = stop.is_set if stop is not None else lambda: False
    for text in source.plan["notes"]:
        note(text)
    client, own = connected(scheduler, given.get("security"))
    try:
        cluster = Cluster(client, note)
        prepare(source, cluster, stopped)
        name, again = source.plan["name"], given.get("again", False)
        data = None
        if (directory := given.get("dataset")) is not None:
            data = Dataset(Path(directory), name if hosts is None else f"{name}@{hosts}")
            if again:
                data.refuse_others(None)
        run = _native.SweepRun(source.text, _path(given.get("db")), hosts, again)
        with running(run, note):
            finished = set(run.finished())
            if data is not None:
                data.open(run, sorted(finished))
            director = Director(source, cluster, run, data, stopped, show, patience)
            tasks = [left for task in source.tasks() if (left := task.without(finished))]
            director.items = sum(len(task.keys) for task in tasks)
            director.failed = [(what, why) for what, why in source.plan["impossible"]]
            there = ", ".join(sorted(host.hostname for host in cluster.hosts.values()))
            items = "1 item" if director.items == 1 else f"{director.items} items"
            note(
                f"{name}: {items} to measure, {len(finished)} measured before; "
                f"{len(cluster.hosts)} host(s): {there}; run {run.number} in {run.path}"
            )
            was_stopped = False
            try:
                direct(director, tasks)
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
            director.clock_error_s,
        )
    finally:
        if own:
            with contextlib.suppress(Exception):
                client.close(timeout=5)


def sweep(
    file: str | os.PathLike[str],
    scheduler: str | distributed.Client | None = None,
    **options: Unpack[SweepOptions],
) -> SweepResult:
    """Measures the items of a sweep file on the hosts of a Dask cluster.

    Each result is in the results file when it is counted, and a call with the same file resumes
    where another one ended.

    :param file: a TOML file as for ``raidlab sweep``
    :param scheduler: address (``tcp://``, ``tls://``), a client, or None: the current client
    :raises UsageError: the file is wrong; with its line
    :raises RefusedError: workers have another raidlab, or share a host; the data set has files of
        another run
    :raises ClusterError: no worker, no scheduler

    The other parameters are :class:`SweepOptions`: ``options``, ``db``, ``dataset``, ``again``,
    ``directory``, ``destroy_contents``, ``cores``, ``parity_impl``, ``security``, ``patience``,
    ``progress``, ``note``, ``stop``.
    """

    def prepare(source: Source, cluster: Cluster, stopped: Callable[[], bool]) -> None:
        for task in source.tasks():
            if task.devices and task.host is None:
                raise UsageError(
                    f"{file}: {task.whats[0]}: it uses devices of one host, and the file does not "
                    'say of which: host = "NAME" in its [[run]]'
                )
            if task.devices and task.host is not None:
                cluster.devices.setdefault(task.host, set()).update(task.devices)
        cluster.expect(options.get("patience", PATIENCE_S), stopped)

    def direct(director: Director, tasks: list[Task]) -> None:
        director.pending.extend(tasks)
        director.direct()

    return directed(file, scheduler, options, None, prepare, direct)
