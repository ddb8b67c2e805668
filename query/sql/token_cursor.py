"""A place in the tokens of a text: what the whole grammar stands on."""

from __future__ import annotations

from typing import NoReturn, TypeVar

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from promising.errors import BadClause, BadSyntax, StatementError, Unsupported
from promising.query.sql.words import RESERVED, keyword

E = TypeVar("E", bound=exp.Expression)

DEEPEST = 64
"""Levels that a tree may have, and parentheses and calls inside one another."""

NUMBER, STRING, QUOTED, HINT, END = "0", "'", '"', "/*+", ""
"""What `word` says where the token is no word and no sign."""

_PLACES = {TokenType.NUMBER: NUMBER, TokenType.STRING: STRING, TokenType.IDENTIFIER: QUOTED}


def placed(node: E, start: int) -> E:
    """The node, with the place where its text begins."""
    node.meta["start"] = start
    return node


class TokenCursor:
    """Reads tokens one by one. `word` is the next one: a word in upper case, a sign, or what kind of literal it is."""

    def __init__(self, tokens: list[Token], sql: str) -> None:
        self.sql = sql
        end = tokens[-1].end + 1 if tokens else len(sql)
        self.tokens = [*tokens, Token(TokenType.SENTINEL, "", start=end, end=end)]
        self.words = [_PLACES.get(token.token_type) or keyword(token.text) for token in tokens]
        self.words.append(END)
        self.at = 0
        self.word = self.words[0]

    @property
    def start(self) -> int:
        """Where the next token begins."""
        return self.tokens[self.at].start

    def peek(self, ahead: int = 1) -> str:
        """The word after the next one."""
        at = self.at + ahead
        return self.words[at] if at < len(self.words) else END

    def advance(self) -> Token:
        """Reads the next token; the end is never passed."""
        token = self.tokens[self.at]
        if self.word != END:
            self.at += 1
            self.word = self.words[self.at]
        return token

    def take(self, word: str) -> bool:
        """Whether the next word is this one; then it is read."""
        if self.word != word:
            return False
        self.advance()
        return True

    def take_all(self, *words: str) -> bool:
        """Whether these words come next; then they are read."""
        if any(self.peek(i) != word for i, word in enumerate(words)):
            return False
        for _ in words:
            self.advance()
        return True

    def expect(self, word: str, more: str = "") -> Token:
        """Reads this word, or fails for want of it and of what comes after it."""
        if self.word != word:
            self.unexpected(f"{word} {more}".rstrip())
        return self.advance()

    def is_word(self) -> bool:
        return self.tokens[self.at].token_type is TokenType.VAR

    def at_name(self) -> bool:
        """Whether the next token can be a name: a quoted one, or a word that is not reserved."""
        return self.word == QUOTED or (self.word not in RESERVED and self.is_word())

    def name(self, what: str) -> exp.Identifier:
        """Reads a name."""
        if not self.at_name():
            if self.is_word():
                self.fail(BadSyntax, f'{self.word} is a reserved word; as {what} write it in quotes: "{self.shown()}"')
            self.unexpected(what)
        return self.identifier()

    def identifier(self) -> exp.Identifier:
        """Takes the next token as a name, whatever word it is."""
        token = self.advance()
        node = exp.Identifier(this=token.text, quoted=token.token_type is TokenType.IDENTIFIER)
        node.meta.update(line=token.line, col=token.col, start=token.start, end=token.end)
        return node

    def shown(self) -> str:
        """The next token as it was written, shortened."""
        token = self.tokens[self.at]
        text = self.sql[token.start : token.end + 1]
        return text if len(text) <= 30 else text[:27] + "..."

    def unexpected(self, wanted: str) -> NoReturn:
        """Fails at the next token, for want of something else."""
        if self.word == HINT:
            self.refuse("a hint")
        found = "the end" if self.word == END else self.shown()
        self.fail(BadSyntax, f"expected {wanted}, found {found}")

    def refuse(self, construct: str, start: int | None = None) -> NoReturn:
        """Fails because this is understood but not offered."""
        self.fail(Unsupported, f"{construct} is not supported", start)

    def misplaced(self, message: str, start: int | None = None) -> NoReturn:
        """Fails because a clause is wrong as it stands."""
        self.fail(BadClause, message, start)

    def fail(self, kind: type[StatementError], message: str, start: int | None = None) -> NoReturn:
        raise kind(message, self.sql, self.start if start is None else start)
