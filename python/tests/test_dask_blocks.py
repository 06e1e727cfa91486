"""Seeds and predictions on the workers of a Dask cluster, each host a namespace of this machine."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cluster as namespaces
import pytest
import raidlab
import raidlab.dask
from cluster import Hosts
from raidlab.dask import _simulate, _worker
from raidlab.dask._blocks import Block, Blocks, even
from raidlab.dask._cluster import Cluster

pytestmark = pytest.mark.skipif(
    namespaces.missing() is not None, reason=namespaces.missing() or "there are namespaces"
)

HERE = Path(__file__).parent

PAIR = ("alpha", "beta")

#: Calls a function of raidlab.dask; progress on stderr, what `reply` makes of the result on stdout.
CALL = """
import dataclasses, json, sys
import distributed, raidlab, raidlab.dask
with distributed.Client({scheduler!r}, set_as_default=False) as client:
    client.wait_for_workers({workers}, timeout=60)
def progress(one):
    print(json.dumps(["done", one.done, one.findings]), file=sys.stderr, flush=True)
def call():
    return {call}
def reply(result):
    if isinstance(result, raidlab.Table):
        return result.to_pylist()
    found = dataclasses.asdict(result)
    found["findings"] = [[it.place, it.message, it.scenario] for it in result.findings]
    return found
try:
    print(json.dumps(reply(call())))
except raidlab.Error as error:
    print(json.dumps({{"error": type(error).__name__, "text": str(error)}}))
"""


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    """Two hosts with a worker each, which measures too, and the scheduler."""
    with namespaces.hosts(tmp_path_factory.mktemp("cluster"), PAIR) as both:
        both.start_scheduler()
        for name in PAIR:
            both.start_worker(name)
        yield both


def start(at: Hosts, call: str, workers: int = 2) -> subprocess.Popen[str]:
    """Starts a call where the scheduler is; SCHEDULER in it is the address."""
    call = call.replace("SCHEDULER", repr(at.scheduler))
    return at.direct(CALL.format(scheduler=at.scheduler, workers=workers, call=call))


def end(process: subprocess.Popen[str]) -> Any:
    """Its result."""
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    return json.loads(out.splitlines()[-1])


def ranges(blocks: list[dict[str, Any]]) -> list[tuple[int, int]]:
    """The seeds of blocks: from, to."""
    return [(it["first_seed"], it["first_seed"] + it["seeds"]) for it in blocks]


def without_speed(totals: dict[str, Any]) -> dict[str, Any]:
    """Totals that do not depend on the machine."""
    return {key: totals[key] for key in totals if key != "member_operations_per_second_and_core"}


def test_each_seed_runs_once_though_a_worker_is_killed(hosts: Hosts) -> None:
    call = "raidlab.dask.simulate(100, 300, SCHEDULER, block_seconds=0.3, progress=progress)"
    process = start(hosts, call)
    assert process.stderr is not None
    while not process.stderr.readline().startswith('["done"'):
        assert process.poll() is None
    # In the middle of a block: it has a second one, too.
    time.sleep(0.1)
    hosts.kill("beta")
    hosts.start_worker("beta")
    found = end(process)
    assert (found["seeds"], found["left"], found["stopped"]) == (300, [], False)
    spans = ranges(found["blocks"])
    assert spans[0][0] == 100 and spans[-1][1] == 400
    assert [end for _, end in spans[:-1]] == [begin for begin, _ in spans[1:]], "each once"
    assert {block["host"] for block in found["blocks"]} == set(PAIR)
    for block in found["blocks"]:
        assert 0 < block["cpu_s"] < block["wall_s"] * 1.05 + 0.05, block
    # What one process finds in the same seeds.
    alone = raidlab.simulate(100, 300, jobs=2)
    assert without_speed(found["totals"]) == without_speed(alone.totals)


def test_a_planted_bug_is_found_and_its_scenario_fails_here(hosts: Hosts) -> None:
    bug = "flush not sent to one member"
    call = f"raidlab.dask.simulate(0, 20000, SCHEDULER, planted={bug!r}, most_findings=2)"
    found = end(start(hosts, call))
    assert len(found["findings"]) >= 2 and found["seeds"] < 20000
    assert found["left"] and sum(count for _, count in found["left"]) == 20000 - found["seeds"]
    place, message, scenario = found["findings"][0]
    again = raidlab.replay(scenario, planted=bug)
    assert again == raidlab.Finding(place, message, scenario)
    assert raidlab.replay(scenario) is None, "without the bug"


#: Seeds until a sweep has ended and some blocks more; the blocks.
BESIDE = """
import dataclasses, json, threading
import distributed, raidlab.dask
with distributed.Client({scheduler!r}, set_as_default=False) as client:
    client.wait_for_workers(2, timeout=60)
stop, ended = threading.Event(), threading.Semaphore(0)
def measure():
    try:
        raidlab.dask.sweep({file!r}, {scheduler!r}, db={db!r})
        while ended.acquire(blocking=False):
            pass
        assert all(ended.acquire(timeout=60) for _ in range(3))
    finally:
        stop.set()
threading.Thread(target=measure).start()
result = raidlab.dask.simulate(
    0, 10**6, {scheduler!r}, block_seconds=0.2, stop=stop, progress=lambda _: ended.release()
)
print(json.dumps([dataclasses.asdict(it) for it in result.blocks]))
"""


def test_no_block_runs_beside_a_measurement_of_its_host(hosts: Hosts, tmp_path: Path) -> None:
    # A second worker of the same host, which measures nothing: Dask would run both at one time.
    file, db = tmp_path / "beside.toml", tmp_path / "results.db"
    file.write_text(
        'name = "beside"\n[[run]]\nlevel = "raid0"\ndisks = [2, 3, 4]\nmembers = "mem"\n'
        'size = "4M"\nseconds = 0.4\nwarm-up = 0\nruns = 1\nworkload = "rand-read"\n'
        'host = "alpha"\n'
    )
    scratch = tmp_path / "second"
    scratch.mkdir()
    command = [sys.executable, "-m", "distributed.cli.dask_worker", hosts.scheduler]
    command += ["--nthreads", "2", "--no-nanny", "--no-dashboard", "--memory-limit", "0"]
    command += ["--local-directory", str(scratch)]
    hosts.start("second", hosts.of["alpha"], command)
    hosts.kill("beta")
    names = {"scheduler": hosts.scheduler, "file": str(file), "db": str(db)}
    found = end(hosts.direct(BESIDE.format(**names)))
    hosts.stop("second")
    hosts.start_worker("beta")
    cells = raidlab.Store(db).record().to_dict()["cells"]
    measured = [cell["times"] for cell in cells]
    assert len(measured) == 3 and len(found) >= 3
    for block in found:
        # One clock: both are processes of this machine.
        begin, ended = block["began_unix_s"], block["began_unix_s"] + block["wall_s"]
        for times in measured:
            beside = begin < times["ended_unix_s"] and times["began_unix_s"] < ended
            assert not beside, (block, times)


def test_a_grid_is_predicted_in_its_order(hosts: Hosts, tmp_path: Path) -> None:
    disks = [2 + row % 30 for row in range(500)]
    grid = {"level": "raid0", "disks": disks, "members": "hdd-2016", "workload": "seq-read"}
    call = f"raidlab.dask.predict({grid!r}, SCHEDULER, block_rows=40, progress=progress)"
    found = end(start(hosts, call))
    assert found == raidlab.predict(grid).to_pylist()  # type: ignore[arg-type]
    # Errors have the number of the row in the whole table.
    wrong = grid | {"level": ["raid0"] * 490 + ["raid77"] * 10}
    found = end(start(hosts, f"raidlab.dask.predict({wrong!r}, SCHEDULER, block_rows=40)"))
    assert found["error"] == "UsageError" and "row 490: " in found["text"], found
    # A file that is not the same for the workers.
    profile = tmp_path / "disk.toml"
    shutil.copy(Path(__file__).parents[2] / "crates/drive/profiles/hdd-2007.toml", profile)
    named = grid | {"members": str(profile)}
    found = end(start(hosts, f"raidlab.dask.predict({named!r}, SCHEDULER)"))
    assert found == raidlab.predict(named).to_pylist()  # type: ignore[arg-type]
    assert end(start(hosts, "raidlab.dask.predict([], SCHEDULER)")) == []


def test_examples_of_the_document_run(hosts: Hosts, tmp_path: Path) -> None:
    (tmp_path / "my.toml").write_text(
        'name = "my"\n[[run]]\nlevel = "raid0"\ndisks = 2\nmembers = "mem"\nsize = "4M"\n'
        'seconds = 0.1\nwarm-up = 0\nruns = 1\nworkload = "rand-read"\n'
    )
    document = Path(__file__).parents[2] / "docs" / "hosts.md"
    replaced = [("tcp://SCHEDULER:8786", hosts.scheduler), ("1_000_000", "50")]
    code = (
        f"import os, sys; os.chdir({str(tmp_path)!r}); sys.path.insert(0, {str(HERE)!r})\n"
        f"import pathlib, test_documents\n"
        f"print(test_documents.run(pathlib.Path({str(document)!r}), *{replaced!r}))\n"
    )
    process = hosts.direct(code, XDG_DATA_HOME=str(tmp_path))
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    printed = out.splitlines()
    assert printed[-1] == "2" and printed[0] == "50 []", out
    assert (tmp_path / "results").is_dir() and list((tmp_path / "results").glob("*.parquet"))


def test_a_worker_with_another_raidlab_gets_no_block(hosts: Hosts, tmp_path: Path) -> None:
    # The same binary, another module.
    other = tmp_path / "other" / "raidlab"
    shutil.copytree(Path(raidlab.__file__).parent, other)
    with (other / "typing.py").open("a") as file:
        file.write("# another one\n")
    hosts.start_worker("beta", PYTHONPATH=str(other.parent))
    found = end(start(hosts, "raidlab.dask.simulate(0, 10, SCHEDULER)"))
    hosts.start_worker("beta")
    assert found["error"] == "RefusedError" and "(beta): raidlab 0." in found["text"], found


def test_without_its_scheduler_it_ends(tmp_path: Path) -> None:
    with namespaces.hosts(tmp_path, ["alpha"]) as alone:
        alone.start_scheduler()
        alone.start_worker("alpha")
        call = "raidlab.dask.simulate(0, 10**6, SCHEDULER, block_seconds=0.1, progress=progress)"
        process = start(alone, call, workers=1)
        assert process.stderr is not None
        while not process.stderr.readline().startswith('["done"'):
            assert process.poll() is None
        alone.kill("scheduler")
        found = end(process)
    assert found["error"] == "ClusterError" and "scheduler" in found["text"], found


def test_files_that_differ_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "a.toml"
    file.write_text("here")
    files = _worker.Files({str(file): _worker.digest_of(str(file))}, None)
    files.check()
    file.write_text("there")
    with pytest.raises(raidlab.RefusedError, match="other contents on"):
        files.check()
    file.unlink()
    with pytest.raises(raidlab.RefusedError, match="read where it is predicted"):
        files.check()


def test_what_makes_no_sense_is_refused_before_a_scheduler_is_looked_for() -> None:
    for arguments, said in [
        ({"first_seed": 2**64 - 5, "count": 5}, "below 2\\^64"),
        ({"first_seed": 0, "count": -1}, "below 2\\^64"),
        ({"first_seed": 0, "count": 1, "block_seconds": 0.0}, "block_seconds 0"),
        ({"first_seed": 0, "count": 1, "most_findings": 0}, "most_findings 0"),
        ({"first_seed": 0, "count": 1, "planted": "a bug"}, "no such bug"),
    ]:
        with pytest.raises(raidlab.UsageError, match=said):
            raidlab.dask.simulate(scheduler="tcp://127.0.0.1:1", **arguments)  # type: ignore[arg-type]
    with pytest.raises(raidlab.UsageError, match="no such column"):
        raidlab.dask.predict({"levle": "raid0"}, "tcp://127.0.0.1:1")


def test_blocks_are_as_long_as_their_time_and_even_at_the_end() -> None:
    seeds = _simulate.Seeds(5, 10.0, {})
    assert seeds.size(10**6, 2) == _simulate.FIRST
    assert seeds.size(8, 2) == 2
    seeds.seeds, seeds.busy_s = 1000, 10.0
    assert seeds.size(10**6, 2) == 800, "100 a second, for eight of ten seconds"
    assert seeds.size(2000, 2) == 500, "two for each thread"
    assert seeds.size(40, 2) == 25, "not so short that the scheduler counts"


def test_what_is_left_is_joined() -> None:
    unused: Any = None
    cluster = Cluster(unused, print, measures=False)
    blocks = Blocks(cluster, "seeds", 1.0, bool, 50, 100, even, unused, unused)
    blocks.again.extend([Block(40, 10), Block(10, 5), Block(15, 5)])
    assert blocks.left() == [(10, 10), (40, 60)]
    assert Block(5, 5).words("seeds") == "seeds 5 to 9"


def test_places_of_a_host_are_taken_and_given_back() -> None:
    # In a namespace of its own, so that no other process holds the gate.
    code = (
        "import threading, time\n"
        "from raidlab import _native\n"
        "from raidlab.dask import _worker\n"
        "stop, order = _native.Stop(), []\n"
        "def measure():\n"
        "    with _worker._alone(stop):\n"
        "        order.append('measures')\n"
        "with _worker._beside_others(stop), _worker._beside_others(stop):\n"
        "    thread = threading.Thread(target=measure)\n"
        "    thread.start()\n"
        "    time.sleep(0.6)\n"
        "    order.append('computes')\n"
        "thread.join()\n"
        "with _worker._alone(stop):\n"
        "    stop.set()\n"
        "    try:\n"
        "        with _worker._beside_others(stop):\n"
        "            order.append('beside')\n"
        "    except _worker.CancelledTaskError:\n"
        "        order.append('refused')\n"
        "print(order)\n"
    )
    words = ["unshare", "--net", sys.executable, "-P", "-c", code]
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=os.environ)
    assert done.stdout == "['computes', 'measures', 'refused']\n", done.stderr
