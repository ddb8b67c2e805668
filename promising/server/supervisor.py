"""Notifications to a service manager: systemd's protocol, one datagram per change of state."""

import logging
import os
import socket

from promising.server import logs

CHECKPOINT = 60.0  # seconds granted for the last checkpoint, after the drain
SEND = 1.0  # seconds to wait for a manager that does not read


def ready() -> None:
    """Calls are accepted."""
    _notify("READY=1")


def stopping(drain: float) -> None:
    """The service drains for at most `drain` seconds, then writes a checkpoint: a shorter stop timeout is extended."""
    _notify("STOPPING=1", f"EXTEND_TIMEOUT_USEC={round((drain + CHECKPOINT) * 1e6)}")


def _notify(*state: str) -> None:
    """Send to the socket in NOTIFY_SOCKET, if it is set. A failure is logged: the service does not depend on it."""
    name = os.environ.get("NOTIFY_SOCKET")
    if not name:
        return
    place = f"\0{name[1:]}" if name.startswith("@") else name  # @ is the abstract namespace
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.settimeout(SEND)
            sender.sendto("\n".join(state).encode(), place)
    except OSError as problem:
        logs.event("not_notified", level=logging.WARNING, state=state[0], error=type(problem).__name__)
