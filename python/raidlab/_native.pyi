"""What is written in Rust. Use it by the names of :mod:`raidlab`."""

import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, final

from raidlab.typing import Path, Rows

__all__ = [
    "BUILD",
    "Contents",
    "Finding",
    "Record",
    "Simulation",
    "Stop",
    "Store",
    "SweepRun",
    "Table",
    "__version__",
    "advise",
    "cells",
    "configurations",
    "detail",
    "examine",
    "guess",
    "predict",
    "program",
    "replay",
    "simulate",
    "sweep_measure",
    "sweep_plan",
]

#: Version of the package.
__version__: str
#: Version of this build: with the commit, where it was built from a Git checkout.
BUILD: str

@final
class Table:
    """A table of Arrow: columns of one length, with a unit for those that hold numbers."""

    def __arrow_c_stream__(self, requested_schema: object = None) -> object: ...
    def __arrow_c_schema__(self) -> object: ...
    @property
    def column_names(self) -> list[str]: ...
    @property
    def num_rows(self) -> int: ...
    def unit(self, column: str) -> str | None: ...
    def column(self, name: str) -> list[Any]: ...
    def to_pylist(self) -> list[dict[str, Any]]: ...
    def slice(self, offset: int, length: int) -> Table: ...
    @staticmethod
    def concat(tables: Sequence[Table]) -> Table: ...
    def __len__(self) -> int: ...

@final
class Record:
    """What a run has measured: the machine, and a cell for each measurement."""

    @staticmethod
    def read(path: Path) -> Record: ...
    def cells(self) -> Table: ...
    def to_dict(self) -> dict[str, Any]: ...
    @property
    def started(self) -> str: ...
    @property
    def version(self) -> str: ...
    @property
    def host(self) -> str | None: ...
    @property
    def run(self) -> int | None: ...
    @property
    def source(self) -> str: ...
    @property
    def verified(self) -> bool: ...
    def __len__(self) -> int: ...

@final
class Store:
    """A results file, opened for reading: what `bench --db` and `sweep` have stored."""

    def __new__(cls, path: str | os.PathLike[str] | None = None) -> Store: ...
    @property
    def path(self) -> os.PathLike[str]: ...
    def runs(self) -> list[dict[str, Any]]: ...
    def record(self, run: int | None = None) -> Record: ...
    def records(self) -> list[Record]: ...
    def cells(self, run: int | None = None) -> Table: ...
    def not_run(self, run: int) -> list[tuple[str, str]]: ...

@final
class Contents:
    """The contents of an array, which are read by ranges of bytes from the members that exist."""

    def __new__(
        cls,
        members: Path | Iterable[Path],
        *,
        array: str | None = None,
        order: Sequence[str] | None = None,
        ignore_events: bool = False,
        ignore_checksums: bool = False,
        force: bool = False,
        partial: bool = False,
        guess: bool = False,
        level: str | None = None,
        layout: str | None = None,
        chunk_bytes: int | None = None,
        data_offset_bytes: int | None = None,
        size_bytes: int | None = None,
        raid_devices: int | None = None,
        check: bool = True,
    ) -> Contents: ...
    @property
    def name(self) -> str: ...
    @property
    def size(self) -> int: ...
    @property
    def notes(self) -> list[str]: ...
    @property
    def doubts(self) -> list[str]: ...
    def read(self, offset: int = 0, length: int | None = None) -> bytes: ...

@final
class Finding:
    """A scenario that fails: what the simulator has found."""

    def __new__(cls, place: str, message: str, scenario: str) -> Finding: ...
    @property
    def place(self) -> str: ...
    @property
    def message(self) -> str: ...
    @property
    def scenario(self) -> str: ...

@final
class Simulation:
    """What a run of the simulator has seen."""

    @property
    def totals(self) -> dict[str, Any]: ...
    @property
    def findings(self) -> list[Finding]: ...
    @property
    def first_seed(self) -> int: ...
    @property
    def seeds(self) -> int: ...
    @property
    def cpu_seconds(self) -> float: ...

def program(words: Sequence[str]) -> int: ...
def cells(source: Record | Store | Path | Iterable[Record | Store | Path]) -> Table: ...
def predict(
    table: Rows,
    *,
    constants: str | os.PathLike[str] | None = None,
    others: Literal["refuse", "ignore"] = "refuse",
    first_row: int = 0,
) -> Table: ...
def configurations(table: Rows, *, others: Literal["refuse", "ignore"] = "refuse") -> Table: ...
def advise(
    table: Rows,
    *,
    constants: str | os.PathLike[str] | None = None,
    others: Literal["refuse", "ignore"] = "refuse",
) -> Table: ...
def examine(
    members: Path | Iterable[Path], *, errors: Literal["raise", "keep"] = "raise"
) -> dict[str, Any]: ...
def detail(members: Path | Iterable[Path], *, array: str | None = None) -> dict[str, Any]: ...
def guess(
    members: Path | Iterable[Path],
    *,
    level: str | None = None,
    layout: str | None = None,
    chunk_bytes: int | None = None,
    data_offset_bytes: int | None = None,
    raid_devices: int | None = None,
    thorough: bool = False,
    budget_bytes: int | None = None,
) -> dict[str, Any]: ...
def simulate(
    first_seed: int = 0,
    count: int | None = None,
    *,
    seconds: float | None = None,
    jobs: int = 1,
    only: str | None = None,
    most_findings: int = 5,
    shrink_seconds: float = 0.0,
    planted: str | None = None,
    stop: Stop | None = None,
) -> Simulation: ...
def replay(scenario: str, *, planted: str | None = None) -> Finding | None: ...

@final
class Stop:
    """Stops a measurement from another thread."""

    def __new__(cls) -> Stop: ...
    def set(self) -> None:
        """Stops it."""

    def is_set(self) -> bool:
        """Whether it was stopped."""

def sweep_plan(source: str) -> str:
    """The plan of a sweep, JSON in and out."""

def sweep_measure(
    source: str,
    keys: Sequence[str],
    stop: Stop,
    clock: tuple[float, float] | None = None,
    rendezvous: Callable[[int], tuple[float, list[str]]] | None = None,
) -> bytes:
    """Measures the items of a task; JSON.

    ``clock`` is this host's offset and its error, seconds. ``rendezvous`` gets the number of a
    workload that is ready, and returns the agreed start (seconds since 1970 by the director's
    clock) and the hosts.
    """

@final
class SweepRun:
    """The run of a sweep over several hosts, in a results file."""

    def __new__(
        cls, source: str, db: str | None = None, hosts: str | None = None, again: bool = False
    ) -> SweepRun: ...
    @property
    def number(self) -> int: ...
    @property
    def path(self) -> os.PathLike[str]: ...
    def finished(self) -> list[str]:
        """Keys of the items that were measured."""

    def put(self, measured: bytes) -> list[str]:
        """Stores what a worker measured; returns the keys of the stored items."""

    def put_load(self, measured: Sequence[bytes]) -> list[tuple[str, str | None]]:
        """Stores the parts of a load; returns keys, and why rates could not be added."""

    def put_not_run(self, items: Sequence[tuple[str, str]], why: str) -> None:
        """Records why items, (key, what), could not be run."""

    def parquet(self, key: str) -> bytes:
        """A stored item as a Parquet file."""

    def record(self) -> str:
        """The record of the run, JSON."""

    def end(self, complete: bool) -> None:
        """Ends it; a second call does nothing."""
