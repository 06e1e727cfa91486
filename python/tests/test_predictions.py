"""Predictions and advice for tables: the program's numbers, a reason where there is none."""

from __future__ import annotations

import math
import pickle
from typing import Any

import pandas
import polars
import pyarrow
import pytest
from conftest import as_json

import raidlab

LEVELS = ["raid0", "raid1", "raid5", "raid6", "raid10"]


def test_a_row_is_the_programs_prediction() -> None:
    rows: list[dict[str, Any]] = [
        {"level": level, "disks": disks, "members": "hdd-2016", "workload": work}
        for level in LEVELS
        for disks in [3, 6]
        for work in ["seq-read", "random-write", "resync"]
    ]
    table = raidlab.predict(rows)
    assert len(table) == len(rows)
    for row, found in zip(rows, table.to_pylist(), strict=True):
        words = [word for name, value in row.items() for word in (f"--{name}", str(value))]
        said = as_json("predict", *words)["predictions"]
        assert len(said) == 1
        assert found["unit"] == said[0]["unit"]
        for ours, theirs in [("value", "predicted"), ("lower", "low"), ("upper", "high")]:
            assert found[ours] == said[0][theirs], (row, found, said)
        assert found["naive"] == said[0]["naive"]
        assert (found["value"] is None) == (found["why_not"] is not None)
    assert any(found["why_not"] == "too few members" for found in table.to_pylist())


def test_tables_of_all_libraries_are_the_same() -> None:
    columns: dict[str, Any] = {
        "level": ["raid5", "raid6", "raid10"],
        "layout": [None, None, "f2"],
        "disks": [4, 5, 6],
        "chunk_kib": [64, 128, 512],
        "workload": ["seq-read", "rand-write", "seq-write"],
        "one_seq_read_mb_per_s": [182.0, 182.0, 182.0],
        "one_seq_write_mb_per_s": [175.5, None, 175.5],
        "one_random_write_iops": [None, 110.0, None],
    }
    expected = raidlab.predict(columns).to_pylist()
    assert [row["value"] is not None for row in expected] == [True, True, True]
    tables: list[Any] = [
        pyarrow.table(columns),
        pyarrow.RecordBatch.from_pydict(columns),
        pyarrow.concat_tables([pyarrow.table(columns).slice(0, 1), pyarrow.table(columns).slice(1)]),
        polars.DataFrame(columns),
        polars.DataFrame(columns).with_columns(polars.col("level").cast(polars.Categorical)),
        pandas.DataFrame(columns),
        pandas.DataFrame(columns).to_dict("list"),
        pandas.DataFrame(columns).to_dict("records"),
        {name: pandas.Series(values) for name, values in columns.items()},
        [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)],
        {**columns, "one_seq_read_mb_per_s": 182},
    ]
    for table in tables:
        assert raidlab.predict(table).to_pylist() == expected, type(table)


def test_the_index_of_filtered_rows_is_no_column() -> None:
    grid = {"level": ["raid5", "raid6", "raid0", "raid6"], "disks": [4, 5, 6, 7]}
    frame = pandas.DataFrame(grid).assign(members="hdd-2016", workload="seq-read")
    some = frame[frame["disks"] != 5]
    assert "__index_level_0__" in pyarrow.table(some).column_names
    expected = raidlab.predict(frame).to_pylist()
    assert raidlab.predict(some).to_pylist() == [expected[0], *expected[2:]]
    two = frame.set_index([pandas.Index([7, 8, 9, 5]), pandas.Index([1, 2, 3, 9])])
    assert raidlab.predict(two).to_pylist() == expected
    for name in ["__index_level_x__", "__index_level___", "index"]:
        with pytest.raises(raidlab.UsageError, match="no such column"):
            raidlab.predict(frame.assign(**{name: 1}))


def test_parts_of_a_table_are_the_table() -> None:
    grid: dict[str, Any] = {"level": "raid0", "disks": list(range(2, 12)), "members": "hdd-2016"}
    whole = raidlab.predict(grid | {"workload": "seq-read"})
    parts = [whole.slice(0, 3), whole.slice(3, 0), whole.slice(3, 100), whole.slice(50, 1)]
    assert [len(part) for part in parts] == [3, 0, 7, 0]
    again = raidlab.Table.concat(pickle.loads(pickle.dumps(parts)))
    assert again.to_pylist() == whole.to_pylist() and again.unit("value") == whole.unit("value")
    advice = raidlab.advise({"members": "hdd-2016*6", "mix": "seq-read=1"})
    assert pickle.loads(pickle.dumps(advice)).to_pylist() == advice.to_pylist(), "with lists"
    with pytest.raises(raidlab.UsageError, match="different columns"):
        raidlab.Table.concat([whole, advice])
    with pytest.raises(raidlab.UsageError, match="row 42: "):
        raidlab.predict({"level": "raid77", "workload": "seq-read"}, first_row=42)


def test_what_makes_no_sense_is_refused_with_its_row() -> None:
    good: dict[str, Any] = {
        "level": "raid5",
        "disks": 4,
        "members": "hdd-2016",
        "workload": "seq-read",
    }
    assert raidlab.predict(good).column("why_not") == [None]
    changes: list[tuple[dict[str, Any], str]] = [
        ({"level": "raid7"}, "row 1: level 'raid7'"),
        ({"level": None}, "row 1: level is required"),
        ({"workload": "juggling"}, "row 1: 'juggling': no such workload"),
        ({"disks": 0}, "row 1: disks 0"),
        ({"disks": 2.5}, "row 1: disks 2.5: a whole number"),
        ({"disks": "4"}, "row 1: .*disks.*: a number is required"),
        ({"disks": True}, "row 1: .*disks.*: a number is required"),
        ({"disks": math.inf}, "row 1: disks inf"),
        ({"chunk_kib": -1}, "row 1: chunk_kib -1"),
        ({"chunk_kib": 1e300}, "row 1: chunk_kib 1e300|row 1: chunk_kib 1000"),
        ({"members": "hdd-1850"}, "row 1: --members hdd-1850"),
        ({"depth": 0}, "row 1: .*--depth"),
        ({"depth": 1e9}, "row 1: .*--depth"),
        ({"kernel": 5.15}, "row 1: .*kernel.*: a str is required"),
        ({"one_seq_read_mb_per_s": -5}, "row 1: .*--measured"),
        ({"chunk_kb": 64}, "column .chunk_kb.: no such column"),
    ]
    for change, said in changes:
        with pytest.raises(raidlab.UsageError, match=said) as refused:
            raidlab.predict([good, {**good, **change}])
        assert isinstance(refused.value, ValueError)
    with pytest.raises(raidlab.UsageError, match="numbers are required"):
        raidlab.predict(pyarrow.table({"disks": ["4"]}))
    with pytest.raises(raidlab.UsageError, match="2 values, not 1"):
        raidlab.predict({"disks": [4], "level": ["raid5", "raid6"]})
    for wrong in [None, 5, "raid5", [5], [None]]:
        with pytest.raises(raidlab.UsageError, match="a table is required"):
            raidlab.predict(wrong)  # type: ignore[arg-type]
    assert len(raidlab.predict({**good, "note": "x"}, others="ignore")) == 1
    assert len(raidlab.predict([])) == 0
    with pytest.raises(raidlab.NotFoundError, match="none.json"):
        raidlab.predict(good, constants="none.json")


def test_advice_is_the_programs() -> None:
    questions: list[dict[str, Any]] = [
        {"members": "hdd-2016*6", "mix": "seq-read=30,random-write=70", "price": 210},
        {"members": "hdd-2009", "disks": 4},
        {"one_seq_read_mb_per_s": 540, "disks": 4, "size_bytes": 10**12, "mix": "seq-read=1"},
        {"disk": "ST8000VN004", "usable_bytes": 20 * 10**12, "survive": 2, "workload": "nas"},
    ]
    words = [
        ["--members", "hdd-2016*6", "--mix", "seq-read=30,random-write=70", "--price", "210"],
        ["--members", "hdd-2009*4"],
        ["--measured", "seq-read=540", "--size", ",".join(["1000000000000B"] * 4), "--mix",
         "seq-read=1"],
        ["--disk", "ST8000VN004", "--usable", "20TB", "--survive", "2", "--workload", "nas"],
    ]
    table = raidlab.advise(questions)
    rows = table.to_pylist()
    for number, options in enumerate(words):
        said = as_json("advise", *options)
        ours = [row for row in rows if row["row"] == number]
        ranked = [row for row in ours if row["place"] is not None]
        assert [row["place"] for row in ranked] == list(range(1, len(ranked) + 1))
        assert len(ranked) == len(said["candidates"])
        for row, candidate in zip(ranked, said["candidates"], strict=True):
            for name in ["array", "level", "chunk_kib", "capacity_bytes", "stacked_bytes", "score",
                         "confidence", "tolerates", "rebuild_hours", "loss_in_rebuild",
                         "unreadable_in_rebuild", "second_failure_loses", "no_rebuild",
                         "loss_in_year", "anything_in_year", "members", "cost_per_tb"]:
                assert row[name] == candidate[name], (name, row, candidate)
            for ours_speed, speed in zip(row["speeds"], candidate["speeds"], strict=True):
                speed["workload"] = speed["workload"].replace(" ", "-")
                assert ours_speed == speed
        chosen = [row["array"] for row in ours if row["recommended"]]
        assert chosen == [said["recommendation"]["array"]]
        left_out = [(row["array"], row["why_not"]) for row in ours if row["place"] is None]
        assert left_out == [(it["array"], it["why"]) for it in said["left_out"]]
    assert table.unit("rebuild_hours") == "h"
    assert table.unit("capacity_bytes") == "B"


def test_questions_that_make_no_sense_are_refused() -> None:
    questions: list[tuple[dict[str, Any], str]] = [
        ({"disks": 4}, "row 0: disks: with members, or with size_bytes"),
        ({"members": "hdd-2016*4", "disks": 4}, "row 0: disks: members counts"),
        ({"members": "hdd-2016"}, "row 0: the disks are not counted"),
        ({"members": "hdd-2016*4", "mix": "seq-read"}, "row 0: .*--mix"),
        ({"members": "hdd-2016*4", "price": -1}, "row 0: .*--price"),
        ({"size_bytes": 1e12}, "row 0: size_bytes: with disks"),
    ]
    for question, said in questions:
        with pytest.raises(raidlab.UsageError, match=said):
            raidlab.advise([question])
