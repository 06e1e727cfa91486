"""What runs on a worker: one task, with the host for itself.

Invariant: of all workers in one network namespace one measures at a time, whatever their resources
say; a task that is no longer required stops within a second.
"""

from __future__ import annotations

import contextlib
import hashlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import distributed
from distributed.core import Status

from raidlab import BUILD, _native
from raidlab.errors import RefusedError

#: Interval at which a task looks whether it is still required, seconds.
LOOK = 0.25

#: An abstract socket: it exists once in a network namespace, and ends with its process.
HOST_LOCK = "\0raidlab-measures-on-this-host"


class OtherBuildError(RefusedError):
    """The worker has another raidlab than the one that directs the sweep."""


class CancelledTaskError(RefusedError):
    """The task was cancelled, or its worker ends."""


def build() -> str:
    """This raidlab: version, commit, and the contents of its binary part."""
    with open(_native.__file__, "rb") as file:
        contents = hashlib.file_digest(file, "sha256").hexdigest()
    return f"{BUILD} [{contents[:12]}]"


def probe() -> Callable[[], dict[str, Any]]:
    """A function that says what a worker is, for workers that may not even have raidlab."""

    def facts() -> dict[str, Any]:
        # Sent by value, because it is no name of a module: it imports what it needs.
        import pathlib
        import platform

        found: dict[str, Any] = {"hostname": platform.node(), "machine": platform.machine()}
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
    if build() != directing_build:
        raise OtherBuildError(f"raidlab {build()} here, {directing_build} directs the sweep")
    worker, stop = distributed.get_worker(), _native.Stop()
    with _watched(worker, str(worker.get_current_task()), stop), _alone(stop):
        meet = None if meeting is None else _meeting(meeting, stop)
        return _native.sweep_measure(source, keys, stop, clock, meet)


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
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as held:
        while True:
            try:
                held.bind(HOST_LOCK)
            except OSError:
                if stop.is_set():
                    raise CancelledTaskError("stopped before it began") from None
                time.sleep(LOOK)
            else:
                break
        yield


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
