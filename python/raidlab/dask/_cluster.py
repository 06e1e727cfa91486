"""The workers of a cluster: which of them may be used, and what their clocks say.

Invariant: a worker whose raidlab differs is never given a task; where hosts measure, two workers of
one host are refused. Workers that come later, also in the place of another one at the same address,
are checked before they get their first task.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import distributed

from raidlab.dask import _worker
from raidlab.errors import Error, RefusedError

#: Resource of a worker that has its host for itself.
HOST = "host"

#: Round trips that measure a clock; the fastest counts.
CLOCK_ROUNDS = 5

#: Most that the kernel slews a clock by, seconds per second: what an older offset may be wrong by.
SLEW = 500e-6

#: Age of an offset after which it is measured again, seconds.
CLOCK_AGE_S = 600.0

#: Seconds within which all workers answer what they are; then each has a part of it.
PROBE_S = 20.0


class ClusterError(Error):
    """The cluster cannot do it: no workers, no scheduler, the connection is lost."""

    kind = "cluster"


@dataclass(frozen=True)
class Host:
    """A worker that may be used."""

    address: str
    #: Of its process: another one at the same address has another one.
    worker: str
    hostname: str
    boot: str
    resources: dict[str, float]
    threads: int


@dataclass(frozen=True)
class Clock:
    """What a worker's clock says, at an instant of this process's monotonic clock."""

    offset_s: float
    error_s: float
    at: float

    def error_at(self, now: float) -> float:
        """Its error later."""
        return self.error_s + SLEW * (now - self.at)


@dataclass
class Cluster:
    """The scheduler, and the workers that were checked."""

    client: distributed.Client
    note: Callable[[str], None]
    #: Whether hosts measure: each has one worker, with the resource. Otherwise all workers are used.
    measures: bool = True
    #: By address.
    hosts: dict[str, Host] = field(default_factory=dict)
    #: Workers that are not used, by id, each noted once.
    refused: set[str] = field(default_factory=set)
    #: What was noted of them.
    noted: set[str] = field(default_factory=set)
    #: Of these, workers of a host that has one already: they may take its place.
    twins: dict[str, str] = field(default_factory=dict)
    #: Dynamic resources of a host, by host name: its devices.
    devices: dict[str, set[str]] = field(default_factory=dict)
    #: By id of the worker.
    known_clocks: dict[str, Clock] = field(default_factory=dict)
    #: Since when there is no worker.
    alone_since: float | None = None

    def refresh(self, *, strict: bool = False) -> None:
        """Looks for workers that came and went.

        :param strict: whether a worker that differs is an error, instead of not being used
        """
        workers = self._workers()
        for address, host in list(self.hosts.items()):
            # What was restarted at the same address has no devices among its resources, and may be
            # another raidlab.
            if address not in workers or workers[address]["worker"] != host.worker:
                del self.hosts[address]
        self.refused &= {facts["worker"] for facts in workers.values()}
        for worker, hostname in list(self.twins.items()):
            if self.of_host(hostname) is None:
                self.refused.discard(worker)
                del self.twins[worker]
        new = {
            address: facts
            for address, facts in workers.items()
            if address not in self.hosts
            and facts["worker"] not in self.refused
            and facts["status"] in ("running", "paused")
        }
        if not new:
            return
        problems = self._check(new)
        if problems and strict:
            raise RefusedError("; ".join(problems))
        for problem in problems:
            if problem not in self.noted:
                self.noted.add(problem)
                self.note(f"not used: {problem}")

    def look(self, patience: float) -> None:
        """:meth:`refresh`, while tasks wait.

        :raises ClusterError: there is no worker for so long, seconds
        """
        self.refresh()
        now = time.monotonic()
        if self.hosts:
            self.alone_since = None
        elif self.alone_since is None:
            self.alone_since = now
            self.note("no worker is left; waiting for one")
        elif now - self.alone_since > patience:
            raise ClusterError(f"no worker is left since {patience:g} s")

    def _workers(self) -> dict[str, Any]:
        """What the scheduler has of each worker, and its id."""

        def workers(dask_scheduler: distributed.Scheduler) -> dict[str, Any]:
            found = {}
            for address, worker in dask_scheduler.workers.items():
                found[address] = {
                    "worker": worker.server_id,
                    "status": worker.status.name,
                    "resources": dict(worker.resources),
                    "nthreads": worker.nthreads,
                }
            return found

        try:
            found = self.client.run_on_scheduler(workers)
        except ValueError as error:
            text = f"the scheduler refuses it ({error}); raidlab needs distributed.scheduler.pickle"
            raise ClusterError(text) from error
        except (OSError, TimeoutError) as error:
            raise ClusterError(f"the scheduler does not answer: {error}") from error
        if self.client.status != "running":
            # A scheduler that comes back knows nothing of what was submitted.
            raise ClusterError("the connection to the scheduler is lost")
        return dict(found)

    def _check(self, new: dict[str, Any]) -> list[str]:
        """Checks workers, takes those that may measure; why others may not."""
        problems, able = [], []
        for address, worker in new.items():
            count = worker["resources"].get(HOST, 0)
            if count == 1 or not self.measures:
                able.append(address)
                continue
            self.refused.add(new[address]["worker"])
            if count:
                problems.append(f"{address}: resource host={count:g}: a host is 1")
        expected = _worker.build()
        answers = self._ask(_worker.probe(), able)
        for address in able:
            facts = answers.get(address)
            if not isinstance(facts, dict):
                self.refused.add(new[address]["worker"])
                problems.append(f"{address}: it does not answer")
                continue
            name = f"{address} ({facts['hostname']})"
            twin = self.of_host(facts["hostname"]) if self.measures else None
            problem = None
            if facts["build"] is None:
                problem = f"{name}: raidlab cannot be used there: {facts['problem']}"
            elif facts["build"] != expected:
                problem = f"{name}: raidlab {facts['build']} there, {expected} here"
            elif facts["worker"] != new[address]["worker"]:
                # Restarted since: it is looked at again.
                continue
            elif twin is not None:
                self.twins[facts["worker"]] = twin.hostname
                problem = (
                    f"{name}: {twin.address} is a worker of the same host; one worker for each "
                    "host, and hosts of different names"
                )
            if problem is not None:
                self.refused.add(new[address]["worker"])
                problems.append(problem)
                continue
            worker = new[address]
            host = Host(
                address,
                facts["worker"],
                facts["hostname"],
                facts["boot"],
                dict(worker["resources"]),
                int(worker["nthreads"]),
            )
            refused = self._give_devices(host)
            if refused is not None:
                # It may be one that hangs for a moment: it is not given up.
                problems.append(f"{name}: {refused}")
                continue
            self.hosts[address] = host
        return problems

    def _ask(self, function: Callable[..., Any], workers: list[str]) -> dict[str, Any]:
        """What workers answer, without those that do not."""
        answers = self._run(function, workers, PROBE_S)
        if answers is None:
            # One that hangs must not cost the answers of the others.
            each = [self._run(function, [worker], PROBE_S / 10) for worker in workers]
            answers = {key: value for one in each for key, value in (one or {}).items()}
        return answers

    def _run(
        self, function: Callable[..., Any], workers: list[str], timeout: float
    ) -> dict[str, Any] | None:
        """As ``Client.run``, but not for ever; None: it took too long."""
        if not workers:
            return {}
        try:
            answered = self.client.sync(
                self.client._run,
                function,
                workers=workers,
                on_error="return",
                callback_timeout=timeout,
            )
        except (TimeoutError, OSError):
            return None
        return dict(answered)

    def _give_devices(self, host: Host) -> str | None:
        """Declares the devices of a host as its resources; why a task that needs them would wait
        for ever."""
        devices = self.devices.get(host.hostname)
        if not devices:
            return None
        amounts = {f"device:{device}": 1.0 for device in devices}

        async def give(dask_worker: distributed.Worker) -> str:
            await dask_worker.set_resources(**amounts)
            return str(dask_worker.id)

        answer = (self._run(give, [host.address], PROBE_S) or {}).get(host.address)
        if answer == host.worker:
            return None
        why = str(answer) if isinstance(answer, Exception) else "it does not answer"
        return f"its devices cannot be declared as its resources: {why}"

    def expect(self, patience: float, stopped: Callable[[], bool]) -> None:
        """Waits for the first worker that may measure.

        :raises RefusedError: a worker differs
        :raises ClusterError: there is none
        """
        until = time.monotonic() + patience
        while True:
            self.refresh(strict=True)
            if self.hosts or stopped():
                return
            if time.monotonic() > until:
                break
            time.sleep(0.2)
        address = self.client.scheduler_info()["address"]
        resource, option = "", ""
        if self.measures:
            resource, option = " with the resource host=1", ' --resources "host=1"'
        raise ClusterError(
            f"no worker{resource} in {patience:g} s: start one on each host: "
            f"dask worker {address} --nthreads 1{option}"
        )

    def of_host(self, hostname: str) -> Host | None:
        """The worker of a host."""
        return next((host for host in self.hosts.values() if host.hostname == hostname), None)

    def clocks(
        self, addresses: Iterable[str], age: float = CLOCK_AGE_S
    ) -> dict[str, tuple[float, float]]:
        """Offsets of the workers' clocks from this one, and the errors, seconds.

        Measured again where it is older than `age` seconds. The one with the smallest error counts,
        also of those before, whose error has grown since by what a clock is slewed at most; unless
        the clock has been set since.
        """
        found: dict[str, tuple[float, float]] = {}
        for address in addresses:
            host = self.hosts.get(address)
            if host is None:
                continue
            best = self.known_clocks.get(host.worker)
            if best is None or time.monotonic() - best.at > age:
                best = better(best, self._clock(address))
            if best is not None:
                self.known_clocks[host.worker] = best
                found[address] = (best.offset_s, best.error_at(time.monotonic()))
        return found

    def _clock(self, address: str) -> Clock | None:
        """The fastest of some round trips; None: it does not answer."""
        best: Clock | None = None
        for _ in range(CLOCK_ROUNDS):
            before, since = time.time(), time.monotonic()
            answer = self._run(time.time, [address], PROBE_S / 10)
            now = time.monotonic()
            there = (answer or {}).get(address)
            if not isinstance(there, float):
                break
            error = (now - since) / 2
            if best is None or error < best.error_s:
                best = Clock(there - (before + error), error, now)
        return best


def better(old: Clock | None, new: Clock | None) -> Clock | None:
    """The one with the smaller error now; the new one where the clock has been set between them."""
    if old is None or new is None:
        return new or old
    error = old.error_at(new.at)
    was_set = abs(old.offset_s - new.offset_s) > error + new.error_s
    return new if was_set or new.error_s <= error else old


def connected(
    scheduler: str | distributed.Client | None, security: Any = None
) -> tuple[distributed.Client, bool]:
    """A client of a scheduler, and whether it was made here.

    :param scheduler: address, a client, or None: the current client of this process
    :param security: for ``tls://``; None: Dask's own configuration
    """
    if isinstance(scheduler, distributed.Client):
        return scheduler, False
    if scheduler is None:
        try:
            return distributed.get_client(), False
        except ValueError:
            raise ClusterError("no scheduler is given, and there is no current client") from None
    try:
        client = distributed.Client(
            scheduler, security=security, set_as_default=False, timeout="10s", name="raidlab"
        )
    except (OSError, TimeoutError, ValueError) as error:
        raise ClusterError(f"{scheduler}: {_reason(error)}", path=str(scheduler)) from error
    return client, True


def _reason(error: BaseException) -> str:
    cause = error.__cause__ or error.__context__
    text = str(error) or type(error).__name__
    return f"{text} ({cause})" if cause is not None and str(cause) not in ("", text) else text
