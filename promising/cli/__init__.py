"""The command line: `promising serve`, `promising sql`, and the rest."""

import os
import sys
from contextlib import suppress
from typing import NoReturn


def main() -> NoReturn:
    """Run the command that the arguments of the process name, and end the process.

    Without Python's own shutdown: it stops gRPC's threads wherever they are, and can then wait for a lock of theirs.
    """
    from promising.cli.app import app  # noqa: PLC0415  # importing a submodule loads no commands

    try:
        app()
    except SystemExit as ended:
        code = ended.code
    else:
        code = 0
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # nobody reads any more
            stream.flush()
    os._exit(code if isinstance(code, int) else 0 if code is None else 1)
