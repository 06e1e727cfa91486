"""``raidlab sweep --scheduler``: a request on standard input, a line of JSON; the result on stdout.

The end of standard input stops the sweep: its starter has ended, or stops it.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from typing import Any

from raidlab.dask import load, sweep
from raidlab.errors import Error


def main() -> int:
    """Runs a request."""
    line = sys.stdin.readline()
    if not line.strip():
        sys.stderr.write(
            "raidlab: this is started by `raidlab sweep FILE --scheduler ADDRESS`; in Python: "
            "raidlab.dask.sweep\n"
        )
        return 2
    request, stop = json.loads(line), threading.Event()

    def watch() -> None:
        sys.stdin.read()
        stop.set()

    threading.Thread(target=watch, name="raidlab-stdin", daemon=True).start()
    reply: dict[str, Any] = {"error": None, "run": None}
    try:
        hosts = request.pop("hosts")
        arguments = {
            "options": {key: values or True for key, values in request.pop("given")},
            "stop": stop,
            **request,
        }
        file, scheduler = arguments.pop("file"), arguments.pop("scheduler")
        if hosts is None:
            result = sweep(file, scheduler, **arguments)
        else:
            result = load(file, scheduler, hosts=hosts, **arguments)
        reply |= {
            "run": result.run,
            "items": result.items,
            "measured": result.measured,
            "failed": result.failed,
            "stopped": result.stopped,
        }
    except Error as error:
        reply["error"] = str(error)
    except KeyboardInterrupt:
        reply["error"] = "interrupted; run the same command to resume"
    except Exception as error:
        # A full disk at the data set, a scheduler that has gone: the program waits for a reply.
        reply["error"] = str(error) or repr(error)
    sys.stdout.write(json.dumps(reply) + "\n")
    sys.stdout.flush()
    # Dask's threads may wait for a scheduler that has gone.
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main())
