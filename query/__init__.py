"""Queries: SQL, plans, promising sets, operators, answers."""

from typing import TYPE_CHECKING

from promising.lazy import lazy

if TYPE_CHECKING:
    from promising.query.answers import Answer as Answer
    from promising.query.answers import Done as Done
    from promising.query.answers import Explanation as Explanation
    from promising.query.answers import Frame as Frame
    from promising.query.answers import Progress as Progress
    from promising.query.session import Session as Session

__getattr__, __dir__, __all__ = lazy(
    __name__,
    {
        "answers": ["Answer", "Done", "Explanation", "Frame", "Progress"],
        "session": ["Session"],
    },
)
