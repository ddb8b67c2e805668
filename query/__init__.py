"""What is asked: SQL, plans, promising sets, operators, answers."""

from query.answers import Answer, Frame, Progress
from query.explain import Explanation
from query.session import Session
from query.statements import Done

__all__ = ["Answer", "Done", "Explanation", "Frame", "Progress", "Session"]
