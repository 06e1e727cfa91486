"""What goes wrong, by kind: every exception of this package is an :class:`Error`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

__all__ = [
    "DiffersError",
    "Error",
    "InvalidError",
    "LostError",
    "NotFoundError",
    "RefusedError",
    "UnreadableError",
    "UsageError",
]


class Error(Exception):
    """Any error of raidlab. Its text is complete: it says what a person needs to know.

    :ivar context: the texts of its causes, the nearest first; empty where there is none
    :ivar path: the file, device or member that it is about, or None

    It can be pickled, so that it comes whole from another process.
    """

    #: The kind of error, one word, the same for all of a class.
    kind: ClassVar[str] = "other"

    context: list[str]
    path: str | None

    def __init__(
        self, message: str, context: Sequence[str] = (), path: str | None = None
    ) -> None:
        super().__init__(message)
        self.context = list(context)
        self.path = path

    def __reduce__(self) -> tuple[type[Error], tuple[object, ...]]:
        return type(self), (str(self), self.context, self.path)


class UsageError(Error, ValueError):
    """Arguments that make no sense: an unknown level, a column with values of another type."""

    kind = "usage"


class NotFoundError(Error, LookupError):
    """What was named is not there: a file, an array among members, a run of a results file."""

    kind = "not-found"


class UnreadableError(Error):
    """The system does not let it be read: no permission, an I/O error, no memory."""

    kind = "unreadable"


class _OfRanges(Error):
    """An error of ranges of bytes."""

    ranges: list[tuple[int, int]]

    def __init__(
        self,
        message: str,
        context: Sequence[str] = (),
        path: str | None = None,
        ranges: Sequence[tuple[int, int]] = (),
    ) -> None:
        super().__init__(message, context, path)
        self.ranges = [(int(start), int(end)) for start, end in ranges]

    def __reduce__(self) -> tuple[type[Error], tuple[object, ...]]:
        return type(self), (str(self), self.context, self.path, self.ranges)


class LostError(_OfRanges, UnreadableError):
    """Bytes of an array that no member has, and no redundancy brings back.

    :ivar ranges: the lost ranges of what was requested, as (first byte, byte behind the last)
    """

    kind = "lost"


class InvalidError(Error):
    """It was read and is not what it must be: no record, a results file of a newer version."""

    kind = "invalid"


class RefusedError(Error):
    """It would be possible and is not done, for the reason that the text gives.

    An array that can only be read with old data, members that contradict each other, two members
    that share bytes.
    """

    kind = "refused"


class DiffersError(_OfRanges, RefusedError):
    """Bytes of an array that contradict their redundancy: one of the members is wrong.

    :ivar ranges: those ranges of what was requested, as (first byte, byte behind the last)
    """

    kind = "differs"
