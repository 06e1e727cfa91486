"""Sweeps, loads, simulations and predictions on the hosts of a Dask cluster.

Dask schedules, moves and repeats; raidlab measures and stores. A worker measures where it says
that it has a host for itself::

    dask scheduler
    dask worker tcp://SCHEDULER:8786 --nthreads 1 --resources "host=1"      # on each host

    >>> import raidlab.dask
    >>> raidlab.dask.sweep("my.toml", "tcp://SCHEDULER:8786")               # doctest: +SKIP

See docs/hosts.md for what is guaranteed. Needs the package ``distributed``.
"""

from __future__ import annotations

from raidlab.dask._cluster import ClusterError
from raidlab.dask._load import load
from raidlab.dask._sweep import Progress, SweepResult, sweep

__all__ = [
    "ClusterError",
    "Progress",
    "SweepResult",
    "load",
    "sweep",
]
