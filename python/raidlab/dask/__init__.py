"""Sweeps, loads, simulations and predictions on the hosts of a Dask cluster.

Dask schedules, moves and repeats; raidlab measures and stores. A worker measures where it says
that it has a host for itself; seeds and predictions run on any::

    dask scheduler
    dask worker tcp://SCHEDULER:8786 --nthreads 1 --resources "host=1"      # on each host

    >>> import raidlab.dask
    >>> raidlab.dask.sweep("my.toml", "tcp://SCHEDULER:8786")               # doctest: +SKIP
    >>> raidlab.dask.simulate(0, 1_000_000, "tcp://SCHEDULER:8786")         # doctest: +SKIP

See docs/hosts.md for what is guaranteed. Needs the package ``distributed``.
"""

from __future__ import annotations

from raidlab.dask._blocks import BlockProgress
from raidlab.dask._cluster import ClusterError
from raidlab.dask._load import load
from raidlab.dask._predict import predict
from raidlab.dask._simulate import SeedBlock, SimulationResult, simulate
from raidlab.dask._sweep import Progress, SweepOptions, SweepResult, sweep

__all__ = [
    "BlockProgress",
    "ClusterError",
    "Progress",
    "SeedBlock",
    "SimulationResult",
    "SweepOptions",
    "SweepResult",
    "load",
    "predict",
    "simulate",
    "sweep",
]
