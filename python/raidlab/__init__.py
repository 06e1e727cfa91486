"""Linux software RAID in user space: what raidlab finds, as functions and Arrow tables.

Measured: :class:`Record`, :class:`Store`, :func:`cells`. Expected: :func:`predict`,
:func:`advise`. On disks: :func:`examine`, :func:`detail`, :func:`guess`, :class:`Contents`,
:func:`dump`; they open members read-only. Simulated: :func:`simulate`, :func:`replay`.

Tables are :class:`Table`: anything with the Arrow PyCapsule interface reads them, such as
``polars.DataFrame(table)`` or ``pyarrow.table(table)``. Every exception is an :class:`Error`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Unpack

from raidlab._native import (
    BUILD,
    Contents,
    Finding,
    Record,
    Simulation,
    Store,
    Table,
    __version__,
    advise,
    cells,
    detail,
    examine,
    guess,
    predict,
    replay,
    simulate,
)
from raidlab.errors import (
    DiffersError,
    Error,
    InvalidError,
    LostError,
    NotFoundError,
    RefusedError,
    UnreadableError,
    UsageError,
)
from raidlab.typing import ContentsOptions, Path

__all__ = [
    "BUILD",
    "Contents",
    "DiffersError",
    "Error",
    "Finding",
    "InvalidError",
    "LostError",
    "NotFoundError",
    "Record",
    "RefusedError",
    "Simulation",
    "Store",
    "Table",
    "UnreadableError",
    "UsageError",
    "__version__",
    "advise",
    "cells",
    "detail",
    "dump",
    "examine",
    "guess",
    "predict",
    "replay",
    "simulate",
]


def dump(
    members: Path | Iterable[Path],
    offset: int = 0,
    length: int | None = None,
    **options: Unpack[ContentsOptions],
) -> bytes:
    """Reads `length` bytes of an array from byte `offset` on, from the members that exist.

    The options are those of :class:`Contents`, which is better for many ranges: here the members
    are opened each time. All of it or none: :class:`LostError` and :class:`DiffersError` name the
    ranges that are not certain.
    """
    return Contents(members, **options).read(offset, length)
