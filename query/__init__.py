"""What is asked: SQL, plans, promising sets, operators, answers."""

from typing import TYPE_CHECKING

from promising.lazy import lazy

if TYPE_CHECKING:
    from promising.query.answers import Answer as Answer
    from promising.query.answers import Done as Done
    from promising.query.answers import Explanation as Explanation
    from promising.query.answers import Frame as Frame
    from promising.query.answers import Progress as Progress
    from promising.query.session import Session as Session

_WHERE = {
    "Answer": "promising.query.answers",
    "Done": "promising.query.answers",
    "Explanation": "promising.query.answers",
    "Frame": "promising.query.answers",
    "Progress": "promising.query.answers",
    "Session": "promising.query.session",
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
