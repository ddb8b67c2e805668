"""Logs: one JSON object a line, for machines first.

What users bring never gets in: no SQL, no keys, no values, no messages of errors, no tokens. An event has a name that
the code gives it and fields that it picks; of what libraries log, only who said it and where is kept, as their messages
quote what they were given.
"""

import json
import logging
import math
import traceback
from datetime import UTC, datetime
from pathlib import Path
from typing import TextIO

LOGGER = logging.getLogger("promising.events")
LONGEST = 200  # characters of a text in a field
FRAMES = 20  # of a traceback, the innermost

Value = str | int | float | bool | list[str] | None


class _Handler(logging.StreamHandler[TextIO]):
    """Ours, to be told from those of others."""


class _Lines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line: dict[str, Value] = {"time": time.replace("+00:00", "Z"), "level": record.levelname.lower()}
        fields: dict[str, Value] | None = getattr(record, "fields", None)
        if record.name == LOGGER.name and fields is not None:
            line["event"] = record.getMessage()
            line.update((name, _short(value)) for name, value in fields.items() if name not in line)
        else:
            line.update(event="library", logger=record.name, at=f"{Path(record.pathname).name}:{record.lineno}")
            if record.exc_info is not None and record.exc_info[1] is not None:
                line.update(error=type(record.exc_info[1]).__name__, frames=frames(record.exc_info[1]))
        return json.dumps(line)


def setup(level: str, stream: TextIO) -> None:
    """Write what is at least of this level to the stream, everything as JSON; a second call replaces the first."""
    root = logging.getLogger()
    for handler in root.handlers[:]:
        if isinstance(handler, _Handler):
            root.removeHandler(handler)
    ours = _Handler(stream)
    ours.setFormatter(_Lines())
    root.addHandler(ours)
    LOGGER.setLevel(level.upper())
    # Libraries say little of use below this, and more than once a call.
    root.setLevel(max(logging.WARNING, LOGGER.level))


def event(name: str, *, level: int = logging.INFO, **fields: Value) -> None:
    """Log that something happened. Fields hold names and figures of the service, never what a user brought."""
    LOGGER.log(level, name, extra={"fields": fields})


def frames(problem: BaseException) -> list[str]:
    """Where an error came from, as file:line, the innermost last. Without the source and without its message."""
    found = traceback.extract_tb(problem.__traceback__)[-FRAMES:]
    return [f"{'/'.join(Path(frame.filename).parts[-2:])}:{frame.lineno}" for frame in found]


def _short(value: Value) -> Value:
    if isinstance(value, float):
        return round(value, 6) if math.isfinite(value) else None  # JSON has no other numbers
    return value[:LONGEST] if isinstance(value, str) else value
