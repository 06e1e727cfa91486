"""The package: names, documents, types."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import raidlab
import raidlab.dask

HERE = Path(__file__).parent
PACKAGE = Path(raidlab.__file__).parent


def test_what_is_tested_is_what_was_installed() -> None:
    assert PACKAGE.is_relative_to(sys.prefix), "not the sources"
    assert (PACKAGE / "py.typed").is_file()


@pytest.mark.parametrize("module", [raidlab, raidlab.dask], ids=lambda module: module.__name__)
def test_every_public_name_is_documented(module: ModuleType) -> None:
    for name in module.__all__:
        thing = getattr(module, name)
        if isinstance(thing, str):
            continue
        assert inspect.getdoc(thing), name
        if not inspect.isclass(thing) or issubclass(thing, BaseException):
            continue
        for member, value in inspect.getmembers(thing):
            if not member.startswith("_") and not isinstance(value, staticmethod):
                assert inspect.getdoc(value), f"{name}.{member}"


def test_exceptions_have_kinds() -> None:
    classes = [it for it in vars(raidlab).values() if inspect.isclass(it)]
    errors: list[type[raidlab.Error]] = [it for it in classes if issubclass(it, raidlab.Error)]
    assert len({error.kind for error in errors}) == len(errors) == 8


def test_stubs_are_those_of_the_package(tmp_path: Path) -> None:
    words = [sys.executable, "-P", "-m", "mypy.stubtest", "raidlab"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_tests_have_types(tmp_path: Path) -> None:
    code = []
    for notebook in sorted(HERE.parent.parent.glob("docs/python/*.ipynb")):
        cells = json.loads(notebook.read_text())["cells"]
        source = "\n".join("".join(it["source"]) for it in cells if it["cell_type"] == "code")
        code.append(tmp_path / notebook.with_suffix(".py").name.replace("-", "_"))
        code[-1].write_text(source)
    files = [*sorted(HERE.glob("*.py")), *code]
    words = [sys.executable, "-P", "-m", "mypy", "--strict", "--no-error-summary"]
    words += ["--cache-dir", str(tmp_path / "cache"), "--ignore-missing-imports"]
    done = subprocess.run(
        [*words, *map(str, files)], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", ["predict", "Contents"])
def test_signatures_are_there(name: str) -> None:
    assert "self" not in str(inspect.signature(getattr(raidlab, name)))
