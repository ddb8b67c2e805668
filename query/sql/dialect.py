"""The dialect, under the name `promising`, for whoever comes with sqlglot's own functions."""

from __future__ import annotations

from typing import Any

from sqlglot import exp
from sqlglot.dialects.dialect import Dialect
from sqlglot.parser import Parser
from sqlglot.tokenizer_core import Token

from promising.errors import BadSyntax, Unsupported
from promising.query.sql.check import check
from promising.query.sql.generator import PromisingGenerator
from promising.query.sql.statement_grammar import Statements
from promising.query.sql.tokenizer import PromisingTokenizer


def read(tokens: list[Token], sql: str) -> list[exp.Expression]:
    """The statements that the tokens of a text make, all checked."""
    reader = Statements(tokens, sql)
    try:
        found = reader.statements()
    except RecursionError:
        # Our own limits are below Python's, unless the caller is deep down already.
        raise BadSyntax("nested too deeply", sql, reader.start) from None
    for node in found:
        check(node, sql)
    return found


class PromisingParser(Parser):
    """Our own grammar behind sqlglot's parser; nothing of the inherited one is used."""

    def parse(self, raw_tokens: list[Token], sql: str) -> list[exp.Expr | None]:
        return list(read(raw_tokens, sql))

    def parse_into(
        self, expression_types: Any, raw_tokens: list[Token], sql: str | None = None
    ) -> list[exp.Expr | None]:
        raise Unsupported("only whole statements are read")


class Promising(Dialect):
    """SQL over streams with summaries and preferences."""

    Tokenizer = PromisingTokenizer
    Parser = PromisingParser
    Generator = PromisingGenerator
