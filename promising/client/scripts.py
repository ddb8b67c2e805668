"""A text of several statements, sent one by one, with errors told at their place in the whole."""

import re
from dataclasses import dataclass
from typing import Literal

from sqlglot import exp

from promising.errors import PromisingError, StatementError
from promising.query.sql import nodes, offset_of, parse, parse_many

Kind = Literal["select", "read", "define"]

_PLACED = re.compile(r"\A(.*)\nline (\d+), column (\d+):\n  [^\n]*\n[ \t]*\^\Z", re.DOTALL)


@dataclass(frozen=True)
class Statement:
    """A statement, the text it is part of, and where it begins there."""

    sql: str
    kind: Kind
    whole: str
    start: int = 0

    def placed(self, problem: PromisingError) -> PromisingError:
        """An error of this statement as one of the whole text."""
        found = _PLACED.match(str(problem))
        if self.sql == self.whole or found is None:
            return problem
        told, line, column = found.group(1), int(found.group(2)), int(found.group(3))
        before = 0
        for _ in range(line - 1):
            before = self.sql.find("\n", before) + 1
        whole = StatementError(told, self.whole, self.start + before + column - 1)
        made = type(problem).__new__(type(problem))
        Exception.__init__(made, str(whole))
        made.__dict__.update(vars(problem))
        if isinstance(made, StatementError):
            made.line, made.column = whole.line, whole.column
        return made


def one(sql: str) -> Statement:
    """The one statement of a text."""
    return Statement(sql, _kind(parse(sql)), sql)


def many(sql: str) -> list[Statement]:
    """The statements between semicolons; all are read before the first one is sent."""
    found = parse_many(sql)
    starts = [offset_of(node) or 0 for node in found]
    ends = [*starts[1:], len(sql)][: len(starts)]
    return [Statement(sql[a:b], _kind(node), sql, a) for node, a, b in zip(found, starts, ends, strict=True)]


def _kind(node: exp.Expression) -> Kind:
    if isinstance(node, exp.Query):
        return "select"
    return "read" if isinstance(node, nodes.Show | nodes.Describe | nodes.Explain) else "define"
