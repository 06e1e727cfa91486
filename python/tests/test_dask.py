"""Sweeps and loads over the hosts of a Dask cluster, each host a namespace of this machine."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cluster as namespaces
import pyarrow.dataset
import pytest
import raidlab
from cluster import NAMES, Hosts
from raidlab import _native
from raidlab.dask._cluster import Clock, Cluster, Host, better

pytestmark = pytest.mark.skipif(
    namespaces.missing() is not None, reason=namespaces.missing() or "there are namespaces"
)

#: The program, as it is installed beside this interpreter.
RAIDLAB = [sys.executable, "-P", "-m", "raidlab"]

SWEEP = """
name = "{name}"
[defaults]
members = "{members}"
size = "4M"
seconds = 0.1
warm-up = 0
runs = 1
[[run]]
level = [{levels}]
disks = [{disks}]
workload = ["rand-read", "seq-write"]
"""


def sweep_file(
    directory: Path,
    name: str,
    levels: str = '"raid0", "raid1"',
    disks: str = "4, 5",
    members: str = "mem",
    more: str = "",
) -> Path:
    """A sweep of two items for each array."""
    file = directory / f"{name}.toml"
    text = SWEEP.format(name=name, levels=levels, disks=disks, members=members)
    file.write_text(text + more)
    return file


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    """Four hosts with a worker each, and the scheduler."""
    directory = tmp_path_factory.mktemp("cluster")
    with namespaces.hosts(directory) as all_hosts:
        all_hosts.start_scheduler()
        for name in NAMES:
            all_hosts.start_worker(name)
        yield all_hosts


def with_all(hosts: Hosts) -> Hosts:
    """The hosts, those that a test has killed started again."""
    for name in NAMES:
        if name not in hosts.processes:
            hosts.start_worker(name)
    return hosts


#: Calls a function of raidlab.dask; items on stderr, the result as JSON on stdout.
CALL = """
import json, sys, threading
import raidlab, raidlab.dask
from raidlab.dask import _worker
request = json.loads({request!r})
stop, wait = threading.Event(), request.pop("wait_for")
if wait:
    import distributed
    with distributed.Client(request["scheduler"], set_as_default=False) as client:
        client.wait_for_workers(wait, timeout=60)
stop_after = request.pop("stop_after")
def progress(one):
    line = json.dumps(["item", one.done, one.host, one.what, one.problem])
    print(line, file=sys.stderr, flush=True)
    if stop_after and one.done >= stop_after:
        stop.set()
if stop_after < 0:
    stop.set()
try:
    result = getattr(raidlab.dask, request.pop("call"))(
        progress=progress, stop=stop, note=lambda text: print(text, file=sys.stderr), **request
    )
    reply = {{key: value if key != "db" else str(value) for key, value in vars(result).items()}}
except (raidlab.Error, TypeError) as error:
    reply = {{"error": type(error).__name__, "text": str(error)}}
print(json.dumps(reply))
"""


def start(at: Hosts, call: str, file: Path, **arguments: Any) -> subprocess.Popen[str]:
    """Starts a call where the scheduler is."""
    request = {
        "call": call,
        "file": str(file),
        "scheduler": at.scheduler,
        "stop_after": 0,
        "wait_for": 4,
        **arguments,
    }
    return at.direct(CALL.format(request=json.dumps(request)))


def end(process: subprocess.Popen[str]) -> tuple[dict[str, Any], str]:
    """Its result, and what it wrote to stderr."""
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    reply: dict[str, Any] = json.loads(out.splitlines()[-1])
    return reply, err


def record(db: Path, run: str = "last") -> dict[str, Any]:
    """The record of a run, as the program reports it."""
    words = [*RAIDLAB, "report", "--db", str(db), "--run", run, "--json=-"]
    done = subprocess.run(words, check=True, capture_output=True, text=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_forty_items_survive_a_killed_worker_and_no_two_overlap_on_a_host(
    hosts: Hosts, tmp_path: Path
) -> None:
    with_all(hosts)
    levels = '"raid0", "raid1", "raid5", "raid6"'
    # In files of the hosts' own directories.
    file = sweep_file(tmp_path, "forty", levels, "4, 5, 6, 7, 8", members="file")
    db, dataset = tmp_path / "results.db", tmp_path / "dataset"
    process = start(hosts, "sweep", file, db=str(db), dataset=str(dataset))
    # Beta has measured something, and is at its next array when it is killed.
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith('["item"') and json.loads(line)[2] == "beta":
            break
    time.sleep(0.2)
    hosts.kill("beta")
    reply, _ = end(process)
    assert (reply["items"], reply["measured"], reply["failed"]) == (40, 40, [])
    cells = record(db)["cells"]
    works = [(cell["level"], cell["disks"], cell["workload"]) for cell in cells]
    assert len(works) == 40 and len(set(works)) == 40, "each item once"
    found = record(db)
    assert {host["hostname"] for host in found["hosts"]} == {cell["host"] for cell in cells}
    assert {cell["host"] for cell in cells} == set(NAMES), "all hosts took part"
    assert all(cell["verified"] for cell in cells)
    for name in NAMES:
        own = [cell["times"] for cell in cells if cell["host"] == name]
        spans = sorted({(times["began_unix_s"], times["ended_unix_s"]) for times in own})
        assert all(one[1] <= other[0] for one, other in itertools.pairwise(spans)), spans
    # The data set has the same, and the program reads both.
    table = pyarrow.dataset.dataset(dataset, format="parquet").to_table()
    assert table.num_rows == 40 and set(table.column("host").to_pylist()) == set(NAMES)
    rates = {round(rate, 6) for rate in table.column("mb_per_s").to_pylist()}
    assert rates == {round(cell["mb_per_s"], 6) for cell in cells}
    done = subprocess.run(
        [*RAIDLAB, "compare", str(dataset), "last", "--db", str(db), "--json=-"],
        check=True,
        capture_output=True,
        text=True,
    )
    assert len(json.loads(done.stdout)["pairs"]) == 40
    text = subprocess.run([*RAIDLAB, "report", str(dataset)], check=True, capture_output=True)
    assert b" on gamma" in text.stdout


def test_what_was_stopped_goes_on_and_is_measured_once(hosts: Hosts, tmp_path: Path) -> None:
    with_all(hosts)
    file, db, dataset = sweep_file(tmp_path, "resumed"), tmp_path / "results.db", tmp_path / "data"
    first, _ = end(start(hosts, "sweep", file, db=str(db), stop_after=2))
    assert first["stopped"] and 2 <= first["measured"] < 8
    second, err = end(start(hosts, "sweep", file, db=str(db), dataset=str(dataset)))
    assert (second["run"], second["stopped"]) == (first["run"], False)
    assert first["measured"] + second["measured"] == 8, err
    cells = record(db)["cells"]
    assert len({(cell["level"], cell["disks"], cell["workload"]) for cell in cells}) == 8
    assert len(cells) == 8
    # What was measured before there was a data set is in it, too.
    assert pyarrow.dataset.dataset(dataset, format="parquet").count_rows() == 8
    third, _ = end(start(hosts, "sweep", file, db=str(db)))
    assert (third["items"], third["measured"], third["run"]) == (0, 0, first["run"])


def test_the_program_starts_it_and_a_signal_ends_it_in_order(hosts: Hosts, tmp_path: Path) -> None:
    with_all(hosts)
    file, db = sweep_file(tmp_path, "program", disks="4, 5, 6"), tmp_path / "results.db"
    words = [*RAIDLAB, "sweep", str(file), "--scheduler", hosts.scheduler, "--db", str(db)]
    environment = os.environ | {"PYTHON": sys.executable, "PYTHONUNBUFFERED": "1"}

    def started() -> subprocess.Popen[str]:
        return subprocess.Popen(
            hosts.base.words([*words, "--json=-"]),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )

    process = started()
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith("[1/12"):
            break
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130 and "run the same command to resume" in err, err
    process = started()
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert len(json.loads(out)["cells"]) == 12
    environment["PYTHON"] = "/usr/bin/false"
    _, err = (process := started()).communicate(timeout=60)
    assert process.returncode == 2 and "cannot import raidlab.dask" in err, err


def test_workers_with_another_raidlab_are_refused_by_name(hosts: Hosts, tmp_path: Path) -> None:
    with_all(hosts)
    # The same version, built otherwise.
    package = Path(raidlab.__file__).parent
    other = tmp_path / "other" / "raidlab"
    shutil.copytree(package, other)
    (native,) = other.glob("_native*.so")
    with native.open("ab") as file:
        file.write(b"\0")
    hosts.start_worker("delta", PYTHONPATH=str(other.parent))
    sweep = sweep_file(tmp_path, "versions")
    reply, _ = end(start(hosts, "sweep", sweep, db=str(tmp_path / "results.db")))
    assert reply["error"] == "RefusedError", reply
    assert "(delta): raidlab 0." in reply["text"] and raidlab.BUILD in reply["text"]
    assert not (tmp_path / "results.db").exists(), "before anything was done"
    hosts.kill("delta")


def test_items_bound_to_a_host_run_there_or_nowhere(hosts: Hosts, tmp_path: Path) -> None:
    with_all(hosts)
    matrix = '[[run]]\nlevel = "raid0"\ndisks = 2\nworkload = "seq-read"\nhost = {}\n'
    more = matrix.format('["alpha", "gamma"]') + matrix.format('"elsewhere"')
    file = sweep_file(tmp_path, "bound", '"raid0"', "3", more=more)
    db = tmp_path / "results.db"
    reply, _ = end(start(hosts, "sweep", file, db=str(db), patience=1.5))
    assert (reply["items"], reply["measured"]) == (5, 4)
    ((what, why),) = reply["failed"]
    assert what.startswith("elsewhere: raid0(2)") and "bound to host elsewhere" in why
    cells = [cell for cell in record(db)["cells"] if cell["disks"] == 2]
    assert sorted(cell["host"] for cell in cells) == ["alpha", "gamma"]
    disks = 'target = "device:/dev/null"\n'
    file.write_text(f'name = "x"\n[[run]]\n{disks}workload = "seq-read"\n')
    reply, _ = end(start(hosts, "sweep", file, db=str(db)))
    assert reply["error"] == "UsageError" and 'host = "NAME"' in reply["text"], reply


def test_two_hosts_load_one_export_and_their_rates_are_added_over_the_common_window(
    hosts: Hosts, tmp_path: Path
) -> None:
    with_all(hosts)
    address = f"{namespaces.SCHEDULER}:10809"
    serve = [*RAIDLAB, "serve", "--level", "raid0", "--members", "mem*4", "--size", "32M"]
    # It is killed at the end, and would leave its control socket.
    serve += ["--name", f"load{os.getpid()}", "--control", "none"]
    serve += ["--nbd", f"tcp:{address}", "--insecure"]
    hosts.start("serve", hosts.base, serve)
    until = time.monotonic() + 20
    while "is served" not in hosts.log("serve"):
        assert time.monotonic() < until, hosts.log("serve")
        time.sleep(0.05)
    file, db = tmp_path / "load.toml", tmp_path / "results.db"
    target = f"device:nbd://{address}/load{os.getpid()}"
    # Long enough for a common window, however late one of them begins.
    text = f'target = "{target}"\nsize = "32M"\nseconds = 0.3\nwarm-up = 0.2\nruns = 12\n'
    program = f'[[run]]\ntarget = "{target}"\nworkload = "dd"\n'
    file.write_text(f'[[run]]\n{text}workload = "rand-read"\n{program}')
    # A program on an export is refused when it is planned, and the rest runs.
    reply, err = end(start(hosts, "load", file, hosts=["alpha", "beta"], db=str(db)))
    assert (reply["measured"], len(reply["failed"])) == (1, 1), (reply, err)
    assert "programs need a device of the kernel" in reply["failed"][0][1]
    together, *parts = record(db)["cells"]
    assert [part["host"] for part in parts] == ["alpha", "beta"]
    assert together["host"] == "alpha+beta"
    load = together["load"]
    done = [part["load"]["done_s"] for part in parts]
    assert (load["first_done_s"], load["last_done_s"]) == (min(done), max(done))
    began = [part["load"]["began_s"] for part in parts]
    errors = [part["load"]["clock_error_s"] for part in parts]
    assert all(error > 0 for error in errors) and reply["clock_error_s"] >= max(errors)
    for part, error in zip(parts, errors, strict=True):
        own = part["load"]
        # One clock: both are processes of this machine.
        assert abs(own["clock_offset_s"]) <= error
        assert own["began_s"] >= -error, "not before the agreed time"
        zero = {"at_s": own["began_s"], "bytes": 0, "ops": 0}
        assert own["series"][0] == zero, "it begins with its first request"
    window = load["window"]
    assert window["from_s"] == pytest.approx(max(began) + 0.2)
    assert window["to_s"] <= min(done)
    # Counted again from the series of each host.
    moved = 0.0
    for part in parts:
        times = [at["at_s"] for at in part["load"]["series"]]
        counts = [at["bytes"] for at in part["load"]["series"]]
        moved += at(times, counts, window["to_s"]) - at(times, counts, window["from_s"])
    seconds = window["to_s"] - window["from_s"]
    assert together["mb_per_s"] == pytest.approx(moved / 1e6 / seconds, rel=1e-3)
    hosts.stop("serve")


def at(times: list[float], counts: list[int], time_s: float) -> float:
    """What was done by an instant, between the points around it."""
    for (t0, t1), (c0, c1) in zip(
        itertools.pairwise(times), itertools.pairwise(counts), strict=True
    ):
        if t0 <= time_s <= t1:
            return c0 + (c1 - c0) * (time_s - t0) / (t1 - t0)
    raise AssertionError(f"{time_s} is not between {times[0]} and {times[-1]}")


def test_a_load_that_is_stopped_before_its_hosts_are_there_has_a_result(
    hosts: Hosts, tmp_path: Path
) -> None:
    with_all(hosts)
    file = tmp_path / "waits.toml"
    file.write_text('[[run]]\ntarget = "path:/tmp"\nsize = "4M"\nworkload = "rand-read"\n')
    arguments = {"hosts": ["alpha", "elsewhere"], "db": str(tmp_path / "results.db")}
    for _ in range(2):
        reply, _ = end(start(hosts, "load", file, stop_after=-1, **arguments))
        assert (reply.get("stopped"), reply.get("measured")) == (True, 0), reply
        assert reply["clock_error_s"] is None
    reply, _ = end(start(hosts, "load", file, patience=0.5, **arguments))
    assert reply["error"] == "ClusterError" and "elsewhere is not there" in reply["text"]
    reply, _ = end(start(hosts, "load", file, no_such=1, wait_for=0, **arguments))
    assert reply["error"] == "TypeError" and "no_such" in reply["text"]


def test_a_data_set_has_one_run_of_a_sweep(hosts: Hosts, tmp_path: Path) -> None:
    with_all(hosts)
    file, dataset = sweep_file(tmp_path, "set", '"raid0"', "2, 3"), tmp_path / "dataset"
    both = {"db": str(tmp_path / "one.db"), "dataset": str(dataset)}
    first, _ = end(start(hosts, "sweep", file, **both))
    assert first["measured"] == 4
    names = sorted(path.name for path in dataset.iterdir())
    assert len(names) == 4 and all(name.startswith("set-1-") for name in names)
    # The run 1 of another results file has the same items.
    other, _ = end(start(hosts, "sweep", file, **both | {"db": str(tmp_path / "other.db")}))
    assert other["error"] == "RefusedError" and "it is of run 1 of set" in other["text"], other
    again, _ = end(start(hosts, "sweep", file, again=True, **both))
    assert again["error"] == "RefusedError", again
    assert len(raidlab.Store(both["db"]).runs()) == 1, "before there was a run"
    assert sorted(path.name for path in dataset.iterdir()) == names
    # Another sweep may be in the same directory, and what is missing is written.
    (dataset / names[0]).unlink()
    more, _ = end(start(hosts, "sweep", sweep_file(tmp_path, "set-1", '"raid0"', "2"), **both))
    assert more["measured"] == 2
    rest, _ = end(start(hosts, "sweep", file, **both))
    assert (rest["run"], rest["measured"]) == (first["run"], 0)
    assert pyarrow.dataset.dataset(dataset, format="parquet").count_rows() == 6


def test_a_run_that_cannot_be_ended_is_not_locked(tmp_path: Path) -> None:
    source = json.dumps({"file": "a.toml", "text": sweep_file(tmp_path, "a").read_text()})
    db = tmp_path / "results.db"
    run = _native.SweepRun(source, str(db))
    with pytest.raises(raidlab.Error, match="is at run"):
        _native.SweepRun(source, str(db))
    with sqlite3.connect(db) as other:
        other.execute("ALTER TABLE claims RENAME TO hidden")
    with pytest.raises(raidlab.Error):
        run.end(False)
    with sqlite3.connect(db) as other:
        other.execute("ALTER TABLE hidden RENAME TO claims")
        assert other.execute("SELECT count(*) FROM claims").fetchone() == (1,)
    assert _native.SweepRun(source, str(db)).number == run.number


#: Prints the worker of gamma when its devices are among its resources; again after a restart.
WATCH = """
import distributed, pathlib, sys, time
from raidlab.dask._cluster import Cluster
client = distributed.Client({scheduler!r}, set_as_default=False)
cluster = Cluster(client, lambda text: print(text, file=sys.stderr))
cluster.devices["gamma"] = {{"sdx"}}
def usable():
    cluster.refresh()
    host = cluster.of_host("gamma")
    if host is None:
        return None
    workers = client.scheduler_info(n_workers=-1)["workers"]
    assert workers[host.address]["resources"] == {{"host": 1, "device:sdx": 1}}, workers
    return host
def wait(ready):
    until = time.monotonic() + 60
    while (found := ready()) is None or not found:
        assert time.monotonic() < until
        time.sleep(0.05)
    return found
first = wait(usable)
print("first", flush=True)
# Nothing is looked at before the worker has been restarted.
wait(pathlib.Path({restarted!r}).exists)
second = wait(usable)
assert first.address == second.address and first.worker != second.worker, (first, second)
print("second", flush=True)
"""


def test_a_worker_restarted_at_its_address_gets_its_devices_again(
    hosts: Hosts, tmp_path: Path
) -> None:
    with_all(hosts)
    port = ("--worker-port", "9001")
    hosts.start_worker("gamma", *port)
    restarted = tmp_path / "restarted"
    code = WATCH.format(scheduler=hosts.scheduler, restarted=str(restarted))
    process = hosts.direct(code)
    assert process.stdout is not None
    assert process.stdout.readline() == "first\n", process.communicate()
    hosts.kill("gamma")
    registered = hosts.log("gamma").count("Registered to")
    hosts.start_worker("gamma", *port)
    until = time.monotonic() + 30
    while hosts.log("gamma").count("Registered to") == registered:
        assert time.monotonic() < until, hosts.log("gamma")
        time.sleep(0.05)
    restarted.touch()
    out, err = process.communicate(timeout=90)
    assert (process.returncode, out) == (0, "second\n"), err
    hosts.kill("gamma")


def test_a_host_whose_devices_cannot_be_declared_is_not_used() -> None:
    unused: Any = None
    host = Host("tcp://1.2.3.4:5", "worker-1", "gamma", "", {"host": 1.0}, 1)
    for answer, said in [
        ({host.address: "worker-1"}, None),
        ({host.address: "worker-2"}, "does not answer"),
        ({host.address: OSError("no")}, "no"),
        ({}, "does not answer"),
        (None, "does not answer"),
    ]:
        cluster = Cluster(unused, print, devices={"gamma": {"sdx"}})
        cluster._run = lambda *_, answer=answer: answer  # type: ignore[method-assign]
        why = cluster._give_devices(host)
        assert (why is None) == (said is None) and (said or "") in (why or ""), (answer, why)


def test_the_clock_with_the_smallest_error_counts_unless_it_was_set() -> None:
    old = Clock(1.0, 0.001, at=100.0)
    assert old.error_at(100.0) == 0.001 and old.error_at(110.0) == pytest.approx(0.006)
    near, far = Clock(1.001, 0.004, at=102.0), Clock(1.001, 0.001, at=110.0)
    assert better(old, near) is old, "its error has grown to 2 ms"
    assert better(old, far) is far, "its error has grown to 6 ms"
    was_set = Clock(1.5, 0.01, at=100.1)
    assert better(old, was_set) is was_set
    assert better(None, near) is near and better(old, None) is old
