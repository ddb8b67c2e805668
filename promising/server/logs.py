"""Logs: one JSON object per line.

User data is never logged: no SQL, keys, values, error messages or tokens. An event has a fixed name and selected
fields; of library messages only the logger and the location are logged, since their text may quote user data.
"""

import json
import logging
import math
import traceback
from datetime import UTC, datetime
from pathlib import Path
from typing import TextIO

LOGGER = logging.getLogger("promising.events")
LONGEST = 200  # maximum characters of a text field
FRAMES = 20  # innermost frames of a traceback

Value = str | int | float | bool | list[str] | None


class _Handler(logging.StreamHandler[TextIO]):
    """Our handler, distinguishable from others."""


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
    """Log at this level and above to the stream, all as JSON; a second call replaces the first."""
    root = logging.getLogger()
    for handler in root.handlers[:]:
        if isinstance(handler, _Handler):
            root.removeHandler(handler)
    ours = _Handler(stream)
    ours.setFormatter(_Lines())
    root.addHandler(ours)
    LOGGER.setLevel(level.upper())
    # Below this, libraries log little of use, several times per call.
    root.setLevel(max(logging.WARNING, LOGGER.level))


def event(name: str, *, level: int = logging.INFO, **fields: Value) -> None:
    """Log an event. Fields hold names and figures of the service, never user data."""
    LOGGER.log(level, name, extra={"fields": fields})


def frames(problem: BaseException) -> list[str]:
    """The origin of an error as file:line, innermost last, without source and message."""
    found = traceback.extract_tb(problem.__traceback__)[-FRAMES:]
    return [f"{'/'.join(Path(frame.filename).parts[-2:])}:{frame.lineno}" for frame in found]


def _short(value: Value) -> Value:
    if isinstance(value, float):
        return round(value, 6) if math.isfinite(value) else None  # JSON has no other numbers
    return value[:LONGEST] if isinstance(value, str) else value
