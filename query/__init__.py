"""What is asked: SQL, plans, promising sets, operators, answers."""

from typing import TYPE_CHECKING

from summaries.lazy import lazy

if TYPE_CHECKING:
    from query.answers import Answer as Answer
    from query.answers import Done as Done
    from query.answers import Explanation as Explanation
    from query.answers import Frame as Frame
    from query.answers import Progress as Progress
    from query.session import Session as Session

_WHERE = {
    "Answer": "query.answers",
    "Done": "query.answers",
    "Explanation": "query.answers",
    "Frame": "query.answers",
    "Progress": "query.answers",
    "Session": "query.session",
}
__getattr__ = lazy(__name__, _WHERE)
__all__ = [
    "Answer",
    "Done",
    "Explanation",
    "Frame",
    "Progress",
    "Session",
]
