"""The examples of the documents run, in their order: what is shown works."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from conftest import program

import raidlab

DOCUMENTS = Path(__file__).parents[2] / "docs"

#: Of a document, each with the line before it.
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def examples(document: Path) -> list[str]:
    """The examples of a document, each at its own lines."""
    text = document.read_text(encoding="utf-8")
    found = []
    for block in BLOCK.finditer(text):
        lines = text.count("\n", 0, block.start(1))
        found.append("\n" * lines + block[1])
    return found


def run(document: Path, *replaced: tuple[str, str]) -> int:
    """Runs the examples of a document as one program, by its own names; how many there are."""
    names: dict[str, object] = {"__name__": "__main__"}
    blocks = examples(document)
    for block in blocks:
        for old, new in replaced:
            block = block.replace(old, new)
        exec(compile(block, str(document), "exec"), names)
    return len(blocks)


def test_examples_of_the_package_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    words = "bench --level raid0 --disks 2 --members mem --size 4M --workload seq-read".split()
    words += "--seconds 0.05 --runs 1 --warm-up 0 --db results.db --json=record.json".split()
    program(*words)
    program(*"create --level 5 --raid-devices 3 --file-size 4M a.img b.img c.img".split())
    # Fewer seeds: the tests have a build that is slow.
    assert run(DOCUMENTS / "python" / "README.md", ("count=1000", "count=50")) >= 1
    assert Path("boot.bin").stat().st_size == 512


def test_an_example_that_fails_is_named_by_its_line(tmp_path: Path) -> None:
    document = tmp_path / "a.md"
    document.write_text("# Title\n\n```python\nimport raidlab\n```\n\n```python\nraidlab.nothing\n```\n")
    with pytest.raises(AttributeError) as raised:
        run(document)
    assert (str(raised.traceback[-1].path), raised.traceback[-1].lineno) == (str(document), 7)
    assert raidlab.__version__
