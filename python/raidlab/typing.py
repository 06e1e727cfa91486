"""Types of arguments, for annotations."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol, TypeAlias, TypedDict

__all__ = ["ArrowArray", "ArrowStream", "ContentsOptions", "Path", "Rows", "Value"]

#: A path of a file or device, or of a part of one: ``PATH@OFFSET``.
Path: TypeAlias = str | bytes | os.PathLike[str]


class ArrowStream(Protocol):
    """A table with the Arrow PyCapsule interface: of pandas, polars, pyarrow, or raidlab's."""

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """A capsule with the stream."""


class ArrowArray(Protocol):
    """A record batch with the Arrow PyCapsule interface."""

    def __arrow_c_array__(self, requested_schema: object = None) -> object:
        """Capsules with the schema and the array."""


#: A value of a table of configurations.
Value: TypeAlias = str | float | None

#: A table of configurations: of Arrow, a dict of columns (one value holds for all rows), or rows.
Rows: TypeAlias = (
    ArrowStream
    | ArrowArray
    | Mapping[str, Value | Iterable[Value]]
    | Sequence[Mapping[str, Value]]
)


class ContentsOptions(TypedDict, total=False):
    """How an array is read; see :class:`raidlab.Contents`."""

    array: str | None
    order: Sequence[str] | None
    ignore_events: bool
    ignore_checksums: bool
    force: bool
    partial: bool
    guess: bool
    level: str | None
    layout: str | None
    chunk_bytes: int | None
    data_offset_bytes: int | None
    size_bytes: int | None
    raid_devices: int | None
    check: bool
