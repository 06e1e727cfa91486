"""Seeds of the simulator."""

from __future__ import annotations

import pickle
import signal
import subprocess
import sys

import pytest

import raidlab

SCENARIO = (
    "raid5 left-symmetric x5 chunk=8 used=128 v=1.2 begins=in-sync shards=1 depth=1 "
    "seed=90567359867601 : replace3"
)


def test_the_same_seeds_do_the_same() -> None:
    first = raidlab.simulate(1000, 40)
    assert (first.first_seed, first.seeds, first.findings) == (1000, 40, [])
    assert first.totals["scenarios"] == 40
    assert first.totals["power_cuts"] > 0
    again = raidlab.simulate(1000, 40, jobs=2)

    def of_seeds(run: raidlab.Simulation) -> dict[str, object]:
        speed = "member_operations_per_second_and_core"
        return {name: value for name, value in run.totals.items() if name != speed}

    assert of_seeds(first) == of_seeds(again)
    raid6 = raidlab.simulate(1000, 40, only="raid6")
    assert 0 < raid6.totals["requests"] < first.totals["requests"]


def test_time_ends_it() -> None:
    run = raidlab.simulate(5, seconds=0.2)
    assert run.seeds > 0
    assert raidlab.simulate(5, 10**9, seconds=0.1).seeds < 10**9


def test_a_scenario_can_be_run_again() -> None:
    assert raidlab.replay(SCENARIO) is None
    with pytest.raises(raidlab.UsageError, match="the scenario"):
        raidlab.replay("a tale")
    with pytest.raises(raidlab.UsageError, match="the scenario"):
        raidlab.replay(SCENARIO.replace("x5", "x1"))


def test_a_planted_bug_is_found_made_smaller_and_replayed() -> None:
    bug = "flush not sent to one member"
    large = raidlab.simulate(0, 20000, planted=bug, most_findings=1)
    small = raidlab.simulate(0, 20000, planted=bug, most_findings=1, shrink_seconds=1)
    (one,), (smaller,) = large.findings, small.findings
    assert one.place == smaller.place and len(smaller.scenario) < len(one.scenario)
    assert raidlab.replay(smaller.scenario, planted=bug) == smaller
    assert raidlab.replay(smaller.scenario) is None, "without the bug"
    assert pickle.loads(pickle.dumps(smaller)) == smaller != one
    assert 0 < large.cpu_seconds < 600
    with pytest.raises(raidlab.UsageError, match="no such bug"):
        raidlab.simulate(0, 1, planted="a bug")


def test_ctrl_c_ends_it_at_once() -> None:
    script = (
        "import raidlab\n"
        "print('begun', flush=True)\n"
        "raidlab.simulate(0, seconds=120)\n"
        "print('ended', flush=True)\n"
    )
    words = [sys.executable, "-c", script]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as started:
        assert started.stdout is not None
        assert started.stdout.readline() == b"begun\n"
        started.send_signal(signal.SIGINT)
        out, said = started.communicate(timeout=60)
    assert b"KeyboardInterrupt" in said and out == b"", (out, said)


def test_what_makes_no_sense_is_refused() -> None:
    for arguments, said in [
        ({}, "count or seconds"),
        ({"count": 1, "jobs": 0}, "jobs 0"),
        ({"count": 1, "jobs": 10**6}, "jobs 1000000"),
        ({"seconds": -1.0}, "seconds -1"),
        ({"seconds": float("nan")}, "seconds NaN"),
        ({"seconds": float("inf")}, "seconds inf"),
        ({"first_seed": 2**64 - 1, "count": 5}, "below 2\\^64"),
        ({"count": 1, "most_findings": 0}, "most_findings"),
    ]:
        with pytest.raises(raidlab.UsageError, match=said):
            raidlab.simulate(**arguments)  # type: ignore[arg-type]
    with pytest.raises(OverflowError):
        raidlab.simulate(-1, 1)
