"""The hosts of a cluster: which workers may measure, and what their clocks say.

Invariant: a worker whose raidlab differs is never given a task; two workers of one host are
refused. Workers that come later are checked before they get their first task.
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

#: Seconds within which all workers answer what they are; then each has a part of it.
PROBE_S = 20.0


class ClusterError(Error):
    """The cluster cannot do it: no workers, no scheduler, the connection is lost."""

    kind = "cluster"


@dataclass(frozen=True)
class Host:
    """A worker that may measure."""

    address: str
    hostname: str
    boot: str
    resources: dict[str, float]
    threads: int


@dataclass
class Cluster:
    """The scheduler, and the workers that were checked."""

    client: distributed.Client
    note: Callable[[str], None]
    #: By address.
    hosts: dict[str, Host] = field(default_factory=dict)
    #: Workers that are not used, each noted once.
    refused: set[str] = field(default_factory=set)
    #: Of these, workers of a host that has one already: they may take its place.
    twins: dict[str, str] = field(default_factory=dict)
    #: Dynamic resources of a host, by host name: its devices.
    devices: dict[str, set[str]] = field(default_factory=dict)

    def refresh(self, *, strict: bool = False) -> None:
        """Looks for workers that came and went.

        :param strict: whether a worker that differs is an error, instead of not being used
        """
        workers = self._workers()
        for address in [address for address in self.hosts if address not in workers]:
            del self.hosts[address]
        self.refused &= set(workers)
        for address, hostname in list(self.twins.items()):
            if self.of_host(hostname) is None:
                self.refused.discard(address)
                del self.twins[address]
        new = {
            address: facts
            for address, facts in workers.items()
            if address not in self.hosts
            and address not in self.refused
            and facts.get("status", "running") in ("running", "paused")
        }
        if not new:
            return
        problems = self._check(new)
        if problems and strict:
            raise RefusedError("; ".join(problems))
        for problem in problems:
            self.note(f"not used: {problem}")

    def _workers(self) -> dict[str, Any]:
        try:
            # All of them: without the number, Dask may answer with a few.
            info = self.client.scheduler_info(n_workers=-1)
        except (OSError, TimeoutError) as error:
            raise ClusterError(f"the scheduler does not answer: {error}") from error
        if "workers" not in info or self.client.status != "running":
            # A scheduler that comes back knows nothing of what was submitted.
            raise ClusterError("the connection to the scheduler is lost")
        return dict(info["workers"])

    def _check(self, new: dict[str, Any]) -> list[str]:
        """Checks workers, takes those that may measure; why others may not."""
        problems, able = [], []
        for address, worker in new.items():
            count = worker.get("resources", {}).get(HOST, 0)
            if count == 1:
                able.append(address)
                continue
            self.refused.add(address)
            if count:
                problems.append(f"{address}: resource host={count:g}: a host is 1")
        expected = _worker.build()
        answers = self._ask(_worker.probe(), able)
        for address in able:
            facts = answers.get(address)
            if not isinstance(facts, dict):
                self.refused.add(address)
                problems.append(f"{address}: it does not answer")
                continue
            name = f"{address} ({facts['hostname']})"
            twin = next(
                (it for it in self.hosts.values() if it.hostname == facts["hostname"]), None
            )
            problem = None
            if facts["build"] is None:
                problem = f"{name}: raidlab cannot be used there: {facts['problem']}"
            elif facts["build"] != expected:
                problem = f"{name}: raidlab {facts['build']} there, {expected} here"
            elif twin is not None:
                self.twins[address] = twin.hostname
                problem = (
                    f"{name}: {twin.address} is a worker of the same host; one worker for each "
                    "host, and hosts of different names"
                )
            if problem is not None:
                self.refused.add(address)
                problems.append(problem)
                continue
            worker = new[address]
            host = Host(
                address,
                facts["hostname"],
                facts["boot"],
                dict(worker["resources"]),
                int(worker.get("nthreads", 1)),
            )
            self._give_devices(host)
            self.hosts[address] = host
        return problems

    def _ask(self, function: Callable[[], Any], workers: list[str]) -> dict[str, Any]:
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

    def _give_devices(self, host: Host) -> None:
        """Declares the devices of a host as its resources."""
        devices = self.devices.get(host.hostname)
        if not devices:
            return
        amounts = {f"device:{device}": 1.0 for device in devices}

        async def give(dask_worker: distributed.Worker) -> None:
            await dask_worker.set_resources(**amounts)

        self._run(give, [host.address], PROBE_S)

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
        raise ClusterError(
            f"no worker with the resource host=1 in {patience:g} s: start one on each host: "
            f"dask worker {self.client.scheduler_info()['address']} --nthreads 1 "
            '--resources "host=1"'
        )

    def of_host(self, hostname: str) -> Host | None:
        """The worker of a host."""
        return next((host for host in self.hosts.values() if host.hostname == hostname), None)

    def clocks(self, addresses: Iterable[str]) -> dict[str, tuple[float, float]]:
        """Offsets of the workers' clocks from this one, and the errors, seconds."""
        best: dict[str, tuple[float, float]] = {}
        for address in addresses:
            for _ in range(CLOCK_ROUNDS):
                before, since = time.time(), time.perf_counter()
                answer = self._run(time.time, [address], PROBE_S / 10)
                took = time.perf_counter() - since
                there = (answer or {}).get(address)
                if not isinstance(there, float):
                    break
                error = took / 2
                if address not in best or error < best[address][1]:
                    best[address] = (there - (before + error), error)
        return best


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
