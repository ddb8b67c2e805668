"""What a stream tells a journal before it changes, so that the change can be made again."""

from typing import Any, Protocol

from promising.index.regions import Appended
from promising.index.schema import Column


class Journal(Protocol):
    """Takes changes in the order in which they are made. One that raises has taken nothing."""

    def appended(
        self, columns: dict[str, Column], tuples: int, added: Appended, producer: str | None, sequence: int | None
    ) -> None:
        """Tuples come in, all of them to be kept; `added` is what the sender is told."""

    def advanced(self, watermark: int) -> None:
        """The watermark moves, without tuples."""

    def created(self, definition: dict[str, Any]) -> None:
        """A summary is made."""

    def dropped(self, summary: str) -> None:
        """A summary goes."""

    def wait(self) -> None:
        """Return when all that was told so far will not be lost."""
