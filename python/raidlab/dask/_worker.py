"""What runs on a worker: a measurement, with the host for itself, or blocks of computations.

::

    gate    held by what measures, as long as it does; by what computes, while it takes a place
    places  one for each block that computes; what measures waits until all are free

Invariant: of all workers in one network namespace one measures at a time, and nothing computes
beside it, whatever their resources say; a task that is no longer required stops within a second.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import platform
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import distributed
from distributed.core import Status

from raidlab import BUILD, _native
from raidlab.errors import RefusedError

#: Interval at which a task looks whether it is still required, seconds.
LOOK = 0.25

#: The gate, an abstract socket: it exists once in a network namespace, and ends with its process.
HOST_LOCK = "\0raidlab-measures-on-this-host"

#: The places of a host, each such a socket: what computes there at one time, at most.
PLACES = [f"\0raidlab-computes-on-this-host-{place}" for place in range(256)]

#: First wait for the gate, seconds; what computes holds it for less.
GATE_S = 0.01


class OtherBuildError(RefusedError):
    """The worker has another raidlab than the one that directs the sweep."""


class CancelledTaskError(RefusedError):
    """The task was cancelled, or its worker ends."""


def _contents() -> str:
    """A digest of the package: its binary part and its modules, with their names."""
    binary = Path(_native.__file__)
    package = Path(__file__).parents[1]
    digest = hashlib.sha256(binary.read_bytes())
    for module in sorted(package.rglob("*.py")):
        contents = module.read_bytes()
        digest.update(f"{module.relative_to(package)} {len(contents)}\n".encode() + contents)
    return digest.hexdigest()[:12]


#: As it was when it was imported: an installation may replace the files below a process.
_BUILD = f"{BUILD} [{_contents()}]"


def build() -> str:
    """This raidlab: version, commit, and the contents of its files."""
    return _BUILD


def probe() -> Callable[..., dict[str, Any]]:
    """A function that says what a worker is, for workers that may not even have raidlab."""

    def facts(dask_worker: distributed.Worker) -> dict[str, Any]:
        # Sent by value, because it is no name of a module: it imports what it needs.
        import pathlib
        import platform

        found: dict[str, Any] = {"hostname": platform.node(), "machine": platform.machine()}
        found["worker"] = str(dask_worker.id)
        boot = pathlib.Path("/proc/sys/kernel/random/boot_id")
        found["boot"] = boot.read_text().strip() if boot.exists() else ""
        try:
            from raidlab.dask import _worker

            found["build"] = _worker.build()
        except Exception as error:
            found["build"] = None
            found["problem"] = f"{type(error).__name__}: {error}"
        return found

    return facts


def measure(
    source: str,
    keys: list[str],
    directing_build: str,
    clock: tuple[float, float] | None,
    meeting: str | None = None,
) -> bytes:
    """Measures the items of a task here; the answer is JSON of this version.

    :param source: the sweep, as the director has it
    :param keys: of the items
    :param directing_build: the raidlab that directs
    :param clock: offset of this host's clock, and its error, seconds
    :param meeting: name of the meeting of the hosts of a load
    """
    with _task(directing_build) as stop, _alone(stop):
        meet = None if meeting is None else _meeting(meeting, stop)
        return _native.sweep_measure(source, keys, stop, clock, meet)


@dataclass(frozen=True)
class SeedsRun:
    """What a worker has run of a block of seeds.

    :ivar seeds: their number, from the first on; fewer than requested where time was over
    :ivar wall_s: seconds that it took
    :ivar cpu_s: CPU seconds of the thread that ran them
    :ivar began_unix_s: when it began, by the clock of the host, seconds since 1970
    """

    seeds: int
    findings: list[_native.Finding]
    totals: dict[str, Any]
    host: str
    wall_s: float
    cpu_s: float
    began_unix_s: float


def run_seeds(first: int, count: int, directing_build: str, options: Mapping[str, Any]) -> SeedsRun:
    """Runs a block of seeds; `options` are those of :func:`raidlab.simulate`."""
    with _task(directing_build) as stop, _beside_others(stop):
        began, since = time.time(), time.perf_counter()
        run = _native.simulate(first, count, stop=stop, **options)
        wall_s = time.perf_counter() - since
    host = platform.node()
    return SeedsRun(run.seeds, run.findings, run.totals, host, wall_s, run.cpu_seconds, began)


@dataclass(frozen=True)
class Files:
    """Files that predictions read: their digests, by path, and the constants, whole."""

    digests: Mapping[str, str]
    constants: bytes | None

    def check(self) -> None:
        """Refuses files that are others here."""
        for path, digest in self.digests.items():
            try:
                here = digest_of(path)
            except OSError as error:
                raise RefusedError(
                    f"{path}: it cannot be read on {platform.node()}: {error.strerror}; files that "
                    "columns name are read where it is predicted",
                    path=path,
                ) from error
            if here != digest:
                raise RefusedError(
                    f"{path}: it has other contents on {platform.node()}", path=path
                )


def digest_of(path: str) -> str:
    """A digest of a file."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def predict_rows(
    table: _native.Table, first_row: int, directing_build: str, files: Files
) -> _native.Table:
    """Predicts the rows of a part of a table."""
    with _task(directing_build) as stop, _beside_others(stop):
        files.check()
        if files.constants is None:
            return _native.predict(table, first_row=first_row)
        with tempfile.NamedTemporaryFile(prefix="raidlab-constants-") as constants:
            constants.write(files.constants)
            constants.flush()
            return _native.predict(table, first_row=first_row, constants=constants.name)


@contextlib.contextmanager
def _task(directing_build: str) -> Iterator[_native.Stop]:
    """The task of this thread, by the same raidlab; what is set when it is no longer required."""
    if build() != directing_build:
        raise OtherBuildError(f"raidlab {build()} here, {directing_build} directs")
    worker, stop = distributed.get_worker(), _native.Stop()
    with _watched(worker, str(worker.get_current_task()), stop):
        yield stop


@contextlib.contextmanager
def _watched(worker: distributed.Worker, key: str, stop: _native.Stop) -> Iterator[None]:
    """Stops the measurement when the task is cancelled, or the worker ends."""
    done = threading.Event()

    def watch() -> None:
        while not done.wait(LOOK):
            task = worker.state.tasks.get(key)
            required = task is not None and task.state in ("executing", "long-running")
            if not required or worker.status not in (Status.running, Status.paused):
                stop.set()
                return

    thread = threading.Thread(target=watch, name="raidlab-watch", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


@contextlib.contextmanager
def _alone(stop: _native.Stop) -> Iterator[None]:
    """Holds the host: also against a worker that was declared dead and still measures."""
    with _gate(stop):
        # What computes now ends soon, and nothing begins.
        for place in PLACES:
            while (free := _bound(place)) is None:
                _wait(stop, LOOK)
            free.close()
        yield


@contextlib.contextmanager
def _beside_others(stop: _native.Stop) -> Iterator[None]:
    """Holds a place of the host, beside others that compute; waits while one measures."""
    with contextlib.ExitStack() as held:
        while True:
            with _gate(stop):
                place = next((it for name in PLACES if (it := _bound(name)) is not None), None)
            if place is not None:
                break
            _wait(stop, LOOK)
        held.enter_context(place)
        yield


@contextlib.contextmanager
def _gate(stop: _native.Stop) -> Iterator[None]:
    """Holds the gate of the host."""
    pause = GATE_S
    while (held := _bound(HOST_LOCK)) is None:
        _wait(stop, pause)
        pause = min(2 * pause, LOOK)
    with held:
        yield


def _bound(name: str) -> socket.socket | None:
    """An abstract socket of this name; None: there is one."""
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        made.bind(name)
    except OSError as error:
        made.close()
        if error.errno != errno.EADDRINUSE:
            raise
        return None
    return made


def _wait(stop: _native.Stop, seconds: float) -> None:
    if stop.is_set():
        raise CancelledTaskError("stopped before it began")
    time.sleep(seconds)


def _meeting(name: str, stop: _native.Stop) -> Callable[[int], tuple[float, list[str]]]:
    """Says that this host is ready for a workload, and waits for the agreed start."""
    client = distributed.get_client()
    hostname = socket.gethostname()

    def meet(entry: int) -> tuple[float, list[str]]:
        distributed.Queue(f"{name}-ready", client=client).put((hostname, entry))
        agreed = distributed.Variable(f"{name}-start-{entry}", client=client)
        while not stop.is_set():
            try:
                start, hosts, problem = agreed.get(timeout=1)
            except TimeoutError:
                continue
            if problem is not None:
                raise RefusedError(problem)
            return float(start), [str(host) for host in hosts]
        raise CancelledTaskError("stopped while it waited for the other hosts")

    return meet
