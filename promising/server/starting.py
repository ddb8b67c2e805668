"""SIGTERM and Ctrl-C during a start: it ends at the next safe point, with exit code 0 and nothing half written.

Imports nothing that takes time, so that it is ready first.
"""

import multiprocessing
import signal
import sys

SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Ended(BaseException):
    """The start was ended. Not an Exception, which a store could take for a failing disk."""


def end_at_once() -> None:
    """Before the data is opened, a signal ends the process and those that compile its kernels.

    The first process of a container ignores signals without a handler.
    """
    for number in SIGNALS:
        signal.signal(number, _exit)


def _exit(*_: object) -> None:
    for child in multiprocessing.active_children():
        child.kill()
    sys.exit(0)
