"""The language: text to tree and back.

`parse(generate(tree)) == tree` for every tree that `parse` gives. Whatever the text, only BadSyntax, Unsupported and
BadClause come out of `parse`, each with its place.
"""

from __future__ import annotations

from functools import lru_cache

from sqlglot import exp

from promising.errors import BadSyntax
from promising.query.sql.check import offset_of
from promising.query.sql.dialect import Promising, read
from promising.query.sql.tokenizer import scan

__all__ = ["generate", "offset_of", "parse", "parse_known", "parse_many"]

KNOWN = 256
"""Statements that are not read again when they come again."""
LONGEST_KNOWN = 2048
"""Characters of such a statement."""

_dialect = Promising()


def parse(sql: str) -> exp.Expression:
    """The one statement of a text; it may end with a semicolon."""
    found = parse_many(sql)
    if not found:
        raise BadSyntax("no statement", sql, 0)
    if len(found) > 1:
        raise BadSyntax("a second statement; one is read at a time", sql, offset_of(found[1]))
    return found[0]


def parse_known(sql: str) -> exp.Expression:
    """`parse` for those who change nothing in the tree: the one of a text that was read lately is given again."""
    return _known(sql) if len(sql) <= LONGEST_KNOWN else parse(sql)


@lru_cache(KNOWN)
def _known(sql: str) -> exp.Expression:
    return parse(sql)


def parse_many(sql: str) -> list[exp.Expression]:
    """The statements of a text, between semicolons. Places are places in the whole text."""
    return read(scan(sql), sql)


def generate(node: exp.Expr, pretty: bool = False) -> str:
    """The text of a tree. When pretty, each clause has a line of its own."""
    return _dialect.generator(pretty=pretty).generate(node)
