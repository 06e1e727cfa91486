"""Records and the results file as Arrow tables: the program's figures, units, no copies."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
from pathlib import Path
from typing import Any

import pandas
import polars
import pyarrow
import pytest
from conftest import as_json, program

import raidlab


@dataclasses.dataclass
class Measured:
    """A bench of four cells."""

    record: Path
    store: Path


@pytest.fixture(scope="session")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Measured:
    """A record, and a results file with two runs."""
    directory = tmp_path_factory.mktemp("measured")
    record, store = directory / "record.json", directory / "results.db"
    words = "bench --members mem --level raid0,raid5 --disks 3 --size 4M --seconds 0.02 --runs 2"
    for workload in ["seq-read", "seq-read,rand-write"]:
        options = [f"--json={record}", "--db", str(store), "--workload", workload]
        program(*words.split(), *options)
    return Measured(record, store)


def test_cells_are_what_the_program_exports(measured: Measured) -> None:
    table = raidlab.cells(measured.record)
    text = program("report", measured.record, "--csv", "-")
    rows = list(csv.DictReader(io.StringIO(text)))
    assert table.column_names == [*rows[0], "run", "source"]
    assert len(table) == len(rows) == 4
    for ours, theirs in zip(table.to_pylist(), rows, strict=True):
        for name, value in theirs.items():
            if isinstance(ours[name], bool):
                assert value == str(ours[name]).lower()
            elif isinstance(ours[name], float):
                assert float(value) == ours[name], name
            elif ours[name] is None:
                assert value == "", name
            else:
                assert value == str(ours[name]), name
        assert (ours["run"], ours["source"]) == (None, str(measured.record))
        assert ours["mb_per_s"] > 0
        # What members in memory have no bound for, and what was not loaded, has no figure.
        assert ours["rate_iops"] is None


def test_numbers_have_units(measured: Measured) -> None:
    table = raidlab.cells(measured.record)
    arrow = pyarrow.table(table)
    for name, unit in [
        ("mb_per_s", "MB/s"),
        ("iops", "1/s"),
        ("latency_p99_us", "us"),
        ("chunk_kib", "KiB"),
        ("member_bytes", "B"),
        ("disks", "1"),
        ("level", None),
        ("verified", None),
    ]:
        assert table.unit(name) == unit
        metadata = arrow.schema.field(name).metadata or {}
        assert metadata.get(b"unit") == (unit and unit.encode())
    for field in arrow.schema:
        is_number = pyarrow.types.is_integer(field.type) or pyarrow.types.is_floating(field.type)
        assert not is_number or table.unit(field.name), field.name
    with pytest.raises(KeyError):
        table.unit("parsecs")


def test_columns_are_not_copied(measured: Measured) -> None:
    table = raidlab.cells(measured.record)

    def addresses(arrow: Any) -> list[int]:
        columns = [arrow[name].chunk(0) for name in ["mb_per_s", "disks", "level"]]
        return [buffer.address for column in columns for buffer in column.buffers()[1:]]

    here = addresses(pyarrow.table(table))
    assert here == addresses(pyarrow.table(table)), "each export has the same buffers"
    frame = polars.DataFrame(table)
    # Both directions without a copy: polars has these buffers, and gives them away.
    assert addresses(frame.to_arrow())[0] == here[0]
    framed = pandas.DataFrame.from_arrow(table)
    assert framed["mb_per_s"].tolist() == table.column("mb_per_s")
    arrow_backed = pyarrow.table(table).to_pandas(types_mapper=pandas.ArrowDtype)
    assert arrow_backed["mb_per_s"].array._pa_array.chunk(0).buffers()[1].address == here[0]
    del table
    assert all(rate > 0 for rate in frame["mb_per_s"].to_list()), "the buffers live as long as they are used"


def test_a_results_file_is_read(measured: Measured) -> None:
    store = raidlab.Store(measured.store)
    assert store.path == measured.store
    assert store.runs() == as_json("report", "--list", "--db", str(measured.store))
    assert [len(record) for record in store.records()] == [2, 4]
    assert store.record().run == 2
    assert store.record(1).run == 1
    assert store.cells().column("run") == [1, 1, 2, 2, 2, 2]
    assert store.cells(2).column("workload") == ["seq-read", "rand-write"] * 2
    assert raidlab.cells([store, measured.record]).num_rows == 10
    assert store.not_run(1) == []
    record = raidlab.Record.read(measured.record)
    assert record.to_dict() == json.loads(measured.record.read_text())
    assert (record.verified, record.run, len(record)) == (True, None, 4)
    assert record.cells().column("mb_per_s") == store.cells(2).column("mb_per_s")
    with pytest.raises(raidlab.NotFoundError, match="no run 7"):
        store.record(7)
    with pytest.raises(raidlab.NotFoundError, match="no run 7"):
        store.not_run(7)


def test_what_is_no_record_is_an_error(tmp_path: Path, measured: Measured) -> None:
    whole = measured.record.read_bytes()
    for name, contents in [
        ("empty", b""),
        ("truncated", whole[: len(whole) // 2]),
        ("other", b'{"cells": 5}'),
        ("binary", bytes(range(256)) * 100),
    ]:
        path = tmp_path / name
        path.write_bytes(contents)
        with pytest.raises(raidlab.InvalidError, match="not a record") as invalid:
            raidlab.cells(path)
        assert invalid.value.path == str(path)
        with pytest.raises(raidlab.Error) as refused:
            raidlab.Store(path)
        assert refused.value.path == str(path)
        assert isinstance(refused.value, (raidlab.InvalidError, raidlab.NotFoundError))
    with pytest.raises(raidlab.NotFoundError) as not_found:
        raidlab.Store(tmp_path / "none.db")
    assert not (tmp_path / "none.db").exists(), "reading creates nothing"
    assert not_found.value.kind == "not-found"
    with pytest.raises(raidlab.NotFoundError):
        raidlab.Record.read(tmp_path / "none.json")
    for wrong in [None, 5, [5]]:
        with pytest.raises(raidlab.UsageError, match="a Record, a Store"):
            raidlab.cells(wrong)  # type: ignore[arg-type]
    assert raidlab.cells([]).num_rows == 0
