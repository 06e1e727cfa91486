"""Linux software RAID in user space: what raidlab finds, as functions and Arrow tables."""

from __future__ import annotations

from raidlab._native import BUILD, __version__
from raidlab.errors import (
    Error,
    InvalidError,
    LostError,
    NotFoundError,
    RefusedError,
    UnreadableError,
    UsageError,
)

__all__ = [
    "BUILD",
    "Error",
    "InvalidError",
    "LostError",
    "NotFoundError",
    "RefusedError",
    "UnreadableError",
    "UsageError",
    "__version__",
]
