"""Places: where in its statement an expression stands, so that an error can point at it."""

from dataclasses import dataclass
from typing import TypeVar

from sqlglot import exp

from promising.errors import StatementError
from promising.query.sql import offset_of

__all__ = ["Place", "offset_of"]

E = TypeVar("E", bound=StatementError)


@dataclass(frozen=True)
class Place:
    """A place in a statement. Cheap to keep in compiled code: it holds no node."""

    sql: str
    offset: int | None

    @classmethod
    def of(cls, node: exp.Expression, sql: str) -> "Place":
        return cls(sql, offset_of(node))

    def error(self, kind: type[E], message: str) -> E:
        return kind(message, self.sql, self.offset)
