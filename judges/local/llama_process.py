"""The process that serves a model file: llama.cpp's server, until its parent ends.

The first line of standard input has the settings as JSON: `path`, `api_key`, `window`, `places`,
`threads`, and the `parent`'s process id. The only line of standard output says where it
listens. When standard input closes, which it does when the parent ends in whatever way, the process
ends. What llama.cpp logs goes to standard error. It is run as a script and imports nothing of the
package, so that it starts quickly.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from importlib import import_module
from pathlib import Path
from typing import Any

# Seconds between two looks at whether the parent still lives.
_LOOK = 1.0


def main() -> None:
    """Serve until the parent ends."""
    settings = json.loads(sys.stdin.buffer.readline())
    threading.Thread(target=_end_with_standard_input, daemon=True).start()
    # Whatever llama.cpp prints must not be taken for the address.
    address_out = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    try:
        server = _serve(settings)
    except Exception as error:  # noqa: BLE001 - the log has what llama.cpp says of it
        sys.exit(f"{error}")
    os.write(address_out, f"{server.listening_address}\n".encode())
    # A process that the parent forked keeps the pipe open after the parent has ended.
    while os.getppid() == settings["parent"]:
        time.sleep(_LOOK)
    os._exit(0)


def _end_with_standard_input() -> None:
    while os.read(0, 4096):
        pass
    os._exit(0)


def _serve(settings: dict[str, Any]) -> Any:
    """A server that has loaded the model; keep it, it ends with its object."""
    xllamacpp = import_module("xllamacpp")
    options = xllamacpp.CommonParams()
    options.model.path = settings["path"]
    options.model_alias = {Path(settings["path"]).stem}  # what the server says that it has
    options.hostnames = ["127.0.0.1"]
    options.port = 0  # the system chooses one that is free
    options.api_keys = [settings["api_key"]]
    options.n_parallel = settings["places"]
    options.n_ctx = settings["places"] * settings["window"]
    # More threads than processors would wait for each other most of the time.
    options.cpuparams.n_threads = options.cpuparams_batch.n_threads = settings["threads"]
    options.fit_params = False  # or the window would be smaller than it is said to be
    options.cache_ram_mib = 0  # prompts of the past, up to 8 GB of them
    options.enable_reasoning = 0  # thoughts would use up what is meant for the answer
    options.ui = False
    options.verbosity = 1  # errors only
    return xllamacpp.Server(options)


if __name__ == "__main__":
    main()
