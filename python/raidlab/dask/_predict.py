"""Predictions for a table of configurations on the workers of a cluster.

Invariant: one row for each row of the table, in its order, as :func:`raidlab.predict` gives it here:
a file that a column names has the same contents on each worker, or is refused.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import distributed

from raidlab import _native
from raidlab.dask import _worker
from raidlab.dask._blocks import Block, BlockProgress, Blocks, even
from raidlab.dask._cluster import Cluster, connected
from raidlab.dask._flight import PATIENCE_S
from raidlab.dask._sweep import note_on_stderr
from raidlab.errors import NotFoundError, UsageError
from raidlab.typing import Rows

#: Rows of a block, at most.
BLOCK_ROWS = 5000

#: Rows of a block at least, where as many are left: below, the scheduler's part counts.
FEWEST_ROWS = 100


def predict(
    table: Rows,
    scheduler: str | distributed.Client | None = None,
    *,
    constants: str | os.PathLike[str] | None = None,
    others: Literal["refuse", "ignore"] = "refuse",
    block_rows: int = BLOCK_ROWS,
    security: Any = None,
    patience: float = PATIENCE_S,
    progress: Callable[[BlockProgress], None] | None = None,
    note: Callable[[str], None] | None = None,
) -> _native.Table:
    """Predicts a table of configurations on all workers of a Dask cluster.

    The table, its result and the errors are those of :func:`raidlab.predict`; rows are in the order
    of the table. A worker needs no resource; no block runs while a sweep or a load measures on its
    host. A worker that dies costs its block, which runs again. Files that columns name
    (``calibration``, ``facts``, profiles in ``members``) are read on the workers, where they must
    have the same contents as here.

    :param table: anything with ``__arrow_c_stream__``, a dict of columns, or a list of dicts
    :param scheduler: address (``tcp://``, ``tls://``), a client, or None: the current client
    :param constants: a file of constants, as ``make law`` writes it; it is read here
    :param others: whether columns that are not known are refused or left out
    :param block_rows: rows of a block, at most
    :param security: ``distributed.Security`` for TLS; None: Dask's own configuration
    :param patience: seconds without any worker
    :param progress: is called for each block that ends
    :param note: is called with remarks; None: a line on stderr
    :raises UsageError: a row that makes no sense; with its number (of several, any)
    :raises RefusedError: workers have another raidlab, or another file of a name
    :raises ClusterError: no worker, no scheduler, rows that have cost three workers
    """
    if block_rows < 1:
        raise UsageError(f"block_rows {block_rows}: 1 or more")
    given = _native.configurations(table, others=others)
    # Of no row: its columns, and what is wrong with the constants.
    nothing = _native.predict(given.slice(0, 0), constants=constants)
    files = _worker.Files(_named(given), None if constants is None else _read(constants))
    client, own = connected(scheduler, security)
    parts: dict[int, _native.Table] = {}

    def call(block: Block) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        rows = given.slice(block.first, block.count)
        return _worker.predict_rows, (rows, block.first, _worker.build(), files)

    def take(block: Block, predicted: _native.Table) -> int:
        parts[block.first] = predicted
        return block.count

    try:
        cluster = Cluster(client, note or note_on_stderr, measures=False)
        cluster.expect(patience, lambda: False)
        began = time.monotonic()

        def show(done: int) -> None:
            if progress is not None:
                left_s = (len(given) - done) * (time.monotonic() - began) / done if done else None
                progress(BlockProgress(done, len(given), left_s, 0, len(cluster.hosts)))

        Blocks(
            cluster,
            "rows",
            patience,
            lambda: False,
            0,
            len(given),
            lambda left, threads: min(block_rows, max(FEWEST_ROWS, even(left, threads))),
            call,
            take,
            show=show,
        ).run()
    finally:
        if own:
            with contextlib.suppress(Exception):
                client.close(timeout=5)
    predicted = _native.Table.concat([nothing, *(parts[first] for first in sorted(parts))])
    assert len(predicted) == len(given), "a row for each row"
    return predicted


def _read(constants: str | os.PathLike[str]) -> bytes:
    try:
        return Path(constants).read_bytes()
    except OSError as error:
        text = f"{os.fspath(constants)}: cannot be read: {error.strerror}"
        raise NotFoundError(text, path=os.fspath(constants)) from error


def _named(given: _native.Table) -> dict[str, str]:
    """Files that columns name, and digests of their contents."""
    values = {
        value
        for column in ("members", "calibration", "facts")
        if column in given.column_names
        for value in set(given.column(column))
        if value is not None
    }
    # Sets of disks are counted and joined: a.toml*3+b.toml.
    names = values | {part.partition("*")[0].strip() for value in values for part in value.split("+")}
    return {name: _worker.digest_of(name) for name in sorted(names) if Path(name).is_file()}
