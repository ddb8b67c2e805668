"""Positions of expressions in their statement, for errors."""

from dataclasses import dataclass
from typing import TypeVar

from sqlglot import exp

from promising.errors import StatementError
from promising.query.sql import offset_of

__all__ = ["Place", "offset_of"]

E = TypeVar("E", bound=StatementError)


@dataclass(frozen=True)
class Place:
    """A position in a statement. Holds no node, so compiled code can retain it cheaply."""

    sql: str
    offset: int | None

    @classmethod
    def of(cls, node: exp.Expression, sql: str) -> "Place":
        return cls(sql, offset_of(node))

    def error(self, kind: type[E], message: str) -> E:
        return kind(message, self.sql, self.offset)
