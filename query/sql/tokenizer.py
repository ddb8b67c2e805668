"""Splits text into tokens.

Keywords are not classified here: nearly all may also be names, which only the grammar can decide. Invalid characters
and unterminated strings and comments raise BadSyntax with their position.
"""

from __future__ import annotations

import re

from sqlglot.tokenizer_core import Token, TokenType
from sqlglot.tokens import Tokenizer

from promising.errors import BadSyntax

LONGEST_TEXT = 100_000
LONGEST_NUMBER = 400  # in characters: the largest double has 309 digits, and Python refuses to parse thousands

_TOKEN = re.compile(
    r"""
      (?P<space>   \s++ | --[^\n\r]*+ )
    | (?P<comment> /\* )
    | (?P<word>    [^\W\d]\w*+ )
    | (?P<number>  (?: [0-9]++ (?:\.[0-9]*+)?+ | \.[0-9]++ ) (?: [eE][+-]?[0-9]++ )?+ )
    | (?P<string>  '[^']*+(?:''[^']*+)*+' )
    | (?P<quoted>  "[^"]*+(?:""[^"]*+)*+" )
    | (?P<sign>    <=> | ->> | <> | <= | >= | != | == | \|\| | :: | := | => | -> | \*\* | // | << | >> | !~
                 | [-+*/%×=<>(),.;?@:$\#&|^~\[\]{}!\\] )
    """,
    re.VERBOSE,
)
_SURROGATE = re.compile("[\ud800-\udfff]")

_KINDS = {
    "word": TokenType.VAR,
    "number": TokenType.NUMBER,
    "string": TokenType.STRING,
    "quoted": TokenType.IDENTIFIER,
    # The grammar reads signs by their text, so they share one type.
    "sign": TokenType.UNKNOWN,
}


def scan(sql: str) -> list[Token]:
    """The tokens of a text, in O(length). Comments are skipped, except that `/*+` gives a HINT."""
    if len(sql) > LONGEST_TEXT:
        raise BadSyntax(f"a text of {len(sql)} characters; at most {LONGEST_TEXT} are read")
    if not sql.isascii() and (bad := _SURROGATE.search(sql)):
        raise BadSyntax("half a character (a lone surrogate)", sql, bad.start())
    tokens: list[Token] = []
    match, size, at, line, line_start = _TOKEN.match, len(sql), 0, 1, 0
    while at < size:
        found = match(sql, at)
        if found is None:
            raise _stray(sql, at)
        kind, start, at = found.lastgroup, at, found.end()
        if kind == "comment":
            at = _comment_end(sql, start)
            if sql.startswith("/*+", start):
                tokens.append(Token(TokenType.HINT, "/*+", line, start - line_start + 1, start, at - 1))
        elif kind != "space":
            assert kind is not None
            text = found.group()
            if kind == "string":
                text = text[1:-1].replace("''", "'")
            elif kind == "quoted":
                text = text[1:-1].replace('""', '"')
                if not text:
                    raise BadSyntax("an empty name", sql, start)
            elif kind == "number":
                if sql[at : at + 1].isidentifier():
                    raise BadSyntax(f"a number that runs into a word: '{_run(sql, start)}'", sql, start)
                if len(text) > LONGEST_NUMBER:
                    raise BadSyntax(f"a number of more than {LONGEST_NUMBER} characters", sql, start)
            tokens.append(Token(_KINDS[kind], text, line, start - line_start + 1, start, at - 1))
        if (breaks := sql.count("\n", start, at)) > 0:
            line += breaks
            line_start = sql.rindex("\n", start, at) + 1
    return tokens


def _comment_end(sql: str, start: int) -> int:
    """Where the comment that starts here ends; comments nest."""
    depth, at = 1, start + 2
    while depth:
        stop = sql.find("*/", at)
        if stop < 0:
            raise BadSyntax("a comment without an end", sql, start)
        opened = sql.find("/*", at, stop)
        depth, at = (depth + 1, opened + 2) if opened >= 0 else (depth - 1, stop + 2)
    return at


def _run(sql: str, start: int) -> str:
    end = start
    while end < len(sql) and end < start + 40 and (sql[end].isalnum() or sql[end] in "._"):
        end += 1
    return sql[start:end]


def _stray(sql: str, at: int) -> BadSyntax:
    char = sql[at]
    if char == "'":
        return BadSyntax("a string without an end", sql, at)
    if char == '"':
        return BadSyntax("a quoted name without an end", sql, at)
    shown = f"'{char}'" if char.isprintable() else f"U+{ord(char):04X}"
    return BadSyntax(f"a character that has no meaning here: {shown}", sql, at)


class PromisingTokenizer(Tokenizer):
    def tokenize(self, sql: str) -> list[Token]:
        return scan(sql)
