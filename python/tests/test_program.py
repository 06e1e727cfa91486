"""The console script is the program: its words, its codes, its streams, its signals."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import raidlab

#: Both ways to start it: the script that pip made, and the module.
PROGRAMS = [[str(Path(sys.executable).with_name("raidlab"))], [sys.executable, "-m", "raidlab"]]


@pytest.fixture(params=PROGRAMS, ids=["script", "module"])
def program(request: pytest.FixtureRequest) -> list[str]:
    """The words that start it."""
    words: list[str] = request.param
    return words


def test_it_has_the_version_of_the_package(program: list[str]) -> None:
    done = subprocess.run([*program, "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"raidlab {raidlab.BUILD}\n"
    assert raidlab.BUILD.split()[0] == raidlab.__version__
    assert done.stderr == ""


def test_its_codes_are_those_of_the_program(program: list[str], tmp_path: Path) -> None:
    image = tmp_path / "nothing.img"
    image.write_bytes(bytes(1 << 20))
    for words, code, said in [
        (["programs"], 0, ""),
        (["frobnicate"], 2, "raidlab: unrecognized verb 'frobnicate'"),
        (["create", "--frobnicate"], 2, "raidlab: "),
        (["examine", str(image)], 1, ""),
        (["detail", str(tmp_path / "none.img")], 2, "none.img"),
    ]:
        done = subprocess.run([*program, *words], capture_output=True, text=True, check=False)
        assert done.returncode == code, (words, done)
        assert said in done.stderr, (words, done)
        assert "Traceback" not in done.stderr


def test_a_reader_that_goes_away_is_no_error(program: list[str]) -> None:
    words = [*program, "generate", "completions", "bash"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as started:
        assert started.stdout is not None and started.stderr is not None
        started.stdout.close()
        said = started.stderr.read()
    assert (started.returncode, said) == (0, b"")


def test_a_closed_stdout_is_an_error(program: list[str]) -> None:
    words = ["sh", "-c", '"$@" >&-', "sh", *program, "programs"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == "raidlab: stdout: it is closed; name /dev/null to print nothing\n"


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_long_run_in_order(
    program: list[str], sent: signal.Signals, tmp_path: Path
) -> None:
    words = "bench --members mem --level raid0 --disks 2 --size 8M --workload seq-read".split()
    record = tmp_path / "record.json"
    words = [*program, *words, "--warm-up", "600", f"--json={record}"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as started:
        assert started.stderr is not None
        first = started.stderr.readline()
        while b", about " not in first:
            line = started.stderr.readline()
            assert line, first
            first += line
        started.send_signal(sent)
        out, rest = started.communicate(timeout=60)
    said = (first + rest).decode()
    assert (started.returncode, out) == (130, b"nothing was measured\n"), said
    assert json.loads(record.read_text())["cells"] == []
    assert "Traceback" not in said
