"""The journal of a stream: changes are logged before they are made, so that they can be replayed."""

from typing import Any, Protocol

from promising.index.progress import Progress
from promising.index.regions import Appended
from promising.index.schema import Column


class Journal(Protocol):
    """Logs changes in order. A call that raises has logged nothing."""

    def appended(
        self,
        columns: dict[str, Column],
        tuples: int,
        added: Appended,
        producer: str | None,
        sequence: int | None,
        progress: Progress,
        epoch: int,
        at: int,
    ) -> None:
        """Tuples are appended, all of them accepted; `added` is reported to the sender. progress: after them.

        epoch: of the producer. at: the time of the clock.
        """

    def opened(self, producer: str, epoch: int, at: int) -> None:
        """A producer is opened with a higher epoch, without tuples."""

    def advanced(self, progress: Progress) -> None:
        """The watermark advances without tuples."""

    def created(self, definition: dict[str, Any]) -> None:
        """A summary is created."""

    def dropped(self, summary: str) -> None:
        """A summary is dropped."""

    def altered(self, settings: dict[str, Any]) -> None:
        """Settings of the stream change; see `Stream.alter`."""

    def wait(self) -> None:
        """Return when everything logged so far is durable."""
