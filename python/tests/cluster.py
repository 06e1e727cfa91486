"""A Dask cluster in network namespaces of this machine: each worker is a host of its own.

::

    namespace of a test: bridge 10.77.0.1, the scheduler, the director
        |-- alpha 10.77.0.2: host name of its own, a worker
        '-- beta  10.77.0.3: ...
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

NAMES = ("alpha", "beta", "gamma", "delta")
SCHEDULER = "10.77.0.1"
PORT = 8786


def missing() -> str | None:
    """Why there can be no namespaces here."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    for program in ("ip", "nsenter", "unshare"):
        if shutil.which(program) is None:
            return f"{program} is not installed"
    tried = subprocess.run(["unshare", "--net", "--uts", "true"], capture_output=True, check=False)
    return None if tried.returncode == 0 else "network namespaces cannot be made here"


@dataclass
class Namespace:
    """A process that keeps a namespace, and what runs in it."""

    hostname: str
    keeper: subprocess.Popen[bytes]

    @classmethod
    def make(cls, hostname: str) -> Namespace:
        """A host without any link yet."""
        named = f"echo {hostname} > /proc/sys/kernel/hostname"
        script = f"{named} && ip link set lo up && echo ready && exec sleep 600"
        keeper = subprocess.Popen(
            ["unshare", "--net", "--uts", "sh", "-c", script], stdout=subprocess.PIPE
        )
        assert keeper.stdout is not None
        assert keeper.stdout.readline() == b"ready\n"
        return cls(hostname, keeper)

    def words(self, command: Sequence[str]) -> list[str]:
        """A command inside it."""
        return ["nsenter", f"--target={self.keeper.pid}", "--net", "--uts", "--", *command]

    def run(self, *command: str) -> str:
        """Runs a command inside it."""
        done = subprocess.run(self.words(command), check=True, capture_output=True, text=True)
        return done.stdout


@dataclass
class Hosts:
    """The namespaces, and the processes of a cluster."""

    directory: Path
    base: Namespace
    of: dict[str, Namespace] = field(default_factory=dict)
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    protocol: str = "tcp"

    @property
    def scheduler(self) -> str:
        """Address of the scheduler."""
        return f"{self.protocol}://{SCHEDULER}:{PORT}"

    def start(self, name: str, where: Namespace, command: Sequence[str], **more: str) -> None:
        """Starts a process in a namespace; its output goes to a file."""
        self.stop(name)
        environment = os.environ | self.environment | more
        with (self.directory / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                where.words(command),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                start_new_session=True,
            )

    def start_scheduler(self) -> None:
        """Starts the scheduler."""
        command = [sys.executable, "-m", "distributed.cli.dask_scheduler", "--host", SCHEDULER]
        more = ["--port", str(PORT), "--no-dashboard", "--no-jupyter", "--protocol", self.protocol]
        self.start("scheduler", self.base, command + more)
        until = time.monotonic() + 30
        while "Scheduler at" not in self.log("scheduler"):
            assert self.processes["scheduler"].poll() is None, self.log("scheduler")
            assert time.monotonic() < until, self.log("scheduler")
            time.sleep(0.05)

    def start_worker(self, name: str, *options: str, **more: str) -> None:
        """Starts the worker of a host."""
        scratch = self.directory / f"{name}.files"
        scratch.mkdir(exist_ok=True)
        command = [sys.executable, "-m", "distributed.cli.dask_worker", self.scheduler]
        command += ["--nthreads", "1", "--no-nanny", "--no-dashboard", "--memory-limit", "0"]
        command += ["--resources", "host=1", "--local-directory", str(scratch), *options]
        self.start(name, self.of[name], command, TMPDIR=str(scratch), **more)

    def log(self, name: str) -> str:
        """What a process wrote."""
        return (self.directory / f"{name}.log").read_text(errors="replace")

    def kill(self, name: str) -> None:
        """Kills a process with -9."""
        process = self.processes.pop(name)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def stop(self, name: str) -> None:
        """Kills a process, if it is there."""
        if name in self.processes:
            self.kill(name)

    def direct(self, code: str, **more: str) -> subprocess.Popen[str]:
        """Runs Python where the scheduler is."""
        return subprocess.Popen(
            self.base.words([sys.executable, "-P", "-c", code]),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | self.environment | more,
        )


@contextlib.contextmanager
def hosts(directory: Path, names: Sequence[str] = NAMES) -> Iterator[Hosts]:
    """Namespaces on one bridge; everything ends with the context."""
    base = Namespace.make("director")
    all_hosts = Hosts(directory, base)
    try:
        base.run("ip", "link", "add", "bridge", "type", "bridge")
        base.run("ip", "address", "add", f"{SCHEDULER}/24", "dev", "bridge")
        base.run("ip", "link", "set", "bridge", "up")
        for at, name in enumerate(names):
            host = all_hosts.of[name] = Namespace.make(name)
            pid = str(host.keeper.pid)
            base.run("ip", "link", "add", name, "type", "veth", "peer", "eth0", "netns", pid)
            base.run("ip", "link", "set", name, "master", "bridge", "up")
            host.run("ip", "address", "add", f"10.77.0.{at + 2}/24", "dev", "eth0")
            host.run("ip", "link", "set", "eth0", "up")
        yield all_hosts
    finally:
        for name in list(all_hosts.processes):
            all_hosts.stop(name)
        for namespace in [*all_hosts.of.values(), base]:
            namespace.keeper.kill()
            namespace.keeper.wait()
            assert namespace.keeper.stdout is not None
            namespace.keeper.stdout.close()
