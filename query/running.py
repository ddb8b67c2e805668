"""The frames of an answer, which can be closed at any moment."""

from collections.abc import Iterator
from threading import Lock

from promising.query.answers import Frame
from promising.query.cursor import Cursor


class Running:
    """Iterates over the frames of a cursor, None between two turns of its work, and releases it at the end, unless it
    was suspended with a token.
    """

    def __init__(self, cursor: Cursor, frames: Iterator[Frame | None]) -> None:
        self._cursor = cursor
        self._frames = frames
        self._lock = Lock()  # held during a step
        self._closed = False
        self._suspended = False

    def __iter__(self) -> "Running":
        return self

    def __next__(self) -> Frame | None:
        try:
            with self._lock:
                if self._closed:
                    raise StopIteration
                frame = next(self._frames)
                self._suspended = frame is not None and frame.progress.token is not None
                return frame
        except BaseException:
            self._closed = True
            raise
        finally:
            if self._closed:
                self.close()

    def close(self) -> None:
        """Release the cursor; thread-safe. If a step runs in another thread, that thread does it at its end."""
        self._closed = True
        if self._lock.acquire(blocking=False):
            try:
                if not self._suspended:
                    self._cursor.close()
            finally:
                self._lock.release()
