"""The program ``raidlab``, as ``python -m raidlab`` and as the console script of the package."""

from __future__ import annotations

import os
import signal
import sys

from raidlab import _native


def main() -> int:
    """Runs the program with the arguments of this process; returns its exit code.

    It is to be the last thing that a process does: signals get the dispositions that a program
    without an interpreter has.
    """
    if sys.stdout is None:
        # A descriptor that is free is given to the next file that is opened, and output would be
        # written into that file.
        if sys.stderr is not None:
            sys.stderr.write("raidlab: stdout: it is closed; name /dev/null to print nothing\n")
        return 2
    for stream, descriptor in ((sys.stdin, 0), (sys.stderr, 2)):
        while stream is None and _is_free(descriptor):
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
    # Python's handler would only be called when the program has ended.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    return _native.program(["raidlab", *sys.argv[1:]])


def _is_free(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return True
    return False


if __name__ == "__main__":
    sys.exit(main())
