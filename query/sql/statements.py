"""The grammar of statements."""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import exp

from query.sql import nodes
from query.sql.cursor import END, STRING, placed
from query.sql.queries import Queries
from query.sql.words import OTHER_STATEMENTS


class Statements(Queries):
    """Reads whole statements."""

    def statements(self) -> list[exp.Expression]:
        """Reads all statements, between semicolons; empty ones are left out."""
        found: list[exp.Expression] = []
        while True:
            while self.take(";"):
                pass
            if self.word == END:
                return found
            found.append(self.statement())

    def statement(self) -> exp.Expression:
        """Reads one statement, up to its semicolon or the end."""
        start = self.start
        readers: dict[str, Callable[[], exp.Expression]] = {
            "SELECT": self.select,
            "CREATE": self.create,
            "DROP": self.drop,
            "SHOW": self.show,
            "DESCRIBE": self.describe,
            "DESC": self.describe,
            "EXPLAIN": self.explain,
        }
        reader = readers.get(self.word)
        if reader is None:
            self.refuse_query_form()
            if self.word in OTHER_STATEMENTS:
                self.refuse(self.word)
            self.unexpected("a statement")
        node = placed(reader(), start)
        if self.word not in (";", END):
            self.unexpected("the end of the statement")
        return node

    def refuse_query_form(self) -> None:
        """Fails at a query that does not begin with SELECT."""
        if self.word == "WITH":
            self.refuse("WITH before a query (a common table expression)")
        if self.word == "(":
            self.refuse("a query in parentheses")

    def create(self) -> exp.Expression:
        start = self.advance().start
        if self.take("STREAM"):
            return self.create_stream()
        if self.take("SUMMARY"):
            return self.create_summary()
        if self.take("CONTINUOUS"):
            self.expect("QUERY")
            exists, name = self.if_not_exists(), self.name("the name of a query")
            self.expect("AS", "and a query")
            return nodes.CreateContinuousQuery(this=name, exists=exists, query=self.query("a continuous query"))
        if self.is_word():
            self.refuse("CREATE OR REPLACE" if self.word == "OR" else f"CREATE {self.word}", start)
        return self.unexpected("STREAM, SUMMARY or CONTINUOUS QUERY")

    def if_not_exists(self) -> bool:
        return self.take_all("IF", "NOT", "EXISTS")

    def create_stream(self) -> exp.Expression:
        """Reads what follows CREATE STREAM."""
        exists, name = self.if_not_exists(), self.name("the name of a stream")
        self.expect("(", "and the columns")
        columns = self.several(self.column_definition)
        if self.word != ")":
            self.unexpected(", or )")
        self.advance()
        given: dict[str, object] = {}
        while (word := self.word) in ("TIMESTAMP", "LATENESS", "OPTIONS"):
            self.once(given, word, "TIMESTAMP BY" if word == "TIMESTAMP" else word)
            self.advance()
            if word == "TIMESTAMP":
                self.expect("BY", "and the column of the event time")
                given[word] = self.name("the column of the event time")
            else:
                given[word] = self.span(word) if word == "LATENESS" else self.options()
        if "TIMESTAMP" not in given:
            self.unexpected("TIMESTAMP BY and the column of the event time")
        return nodes.CreateStream(
            this=name,
            exists=exists,
            columns=columns,
            time=given["TIMESTAMP"],
            lateness=given.get("LATENESS"),
            options=given.get("OPTIONS", []),
        )

    def column_definition(self) -> exp.Expression:
        name = self.name("the name of a column")
        node = exp.ColumnDef(this=name, kind=self.type())
        if self.is_word():
            self.refuse(f"{self.shown()} after the type of a column")
        return placed(node, name.meta["start"])

    def create_summary(self) -> exp.Expression:
        """Reads what follows CREATE SUMMARY."""
        exists, name = self.if_not_exists(), self.name("the name of a summary")
        self.expect("ON", "and a stream")
        stream = self.name("the name of a stream")
        self.expect("(", "and a column")
        key = self.name("the name of a column")
        if self.word == ",":
            self.refuse("a summary on several columns")
        self.expect(")")
        self.expect("WITH", "GRANULARITY")
        self.expect("GRANULARITY")
        granularity = self.span("GRANULARITY")
        self.expect("AND", "COLLAPSE")
        self.expect("COLLAPSE")
        self.expect("(", "and the rate and the depth")
        rate = self.number("the rate of COLLAPSE")
        self.expect(",", "and the depth of COLLAPSE")
        depth = self.number("the depth of COLLAPSE")
        self.expect(")")
        given: dict[str, object] = {}
        while (word := self.word) in ("STRUCTURE", "OPTIONS"):
            self.once(given, word, word)
            self.advance()
            given[word] = self.structure() if word == "STRUCTURE" else self.options()
        return nodes.CreateSummary(
            this=name,
            exists=exists,
            stream=stream,
            key=key,
            granularity=granularity,
            rate=rate,
            depth=depth,
            structure=given.get("STRUCTURE"),
            options=given.get("OPTIONS", []),
        )

    def structure(self) -> exp.Expression:
        if not self.is_word():
            self.unexpected("none, time, grid or adaptive")
        word, start = self.word, self.advance().start
        return placed(exp.Var(this=word.lower() if word.isascii() else word), start)

    def once(self, given: dict[str, object], key: str, clause: str) -> None:
        """Fails if this clause was read before."""
        if key in given:
            self.misplaced(f"{clause} is given twice")

    def options(self) -> list[exp.Expression]:
        self.expect("(", "and options")
        found = self.several(self.option)
        if self.word != ")":
            self.unexpected(", or )")
        self.advance()
        return found

    def option(self) -> exp.Expression:
        """Reads one `name = value`."""
        name = self.name("the name of an option")
        self.expect("=", "and a value")
        value: exp.Expression
        if self.word == STRING:
            value = self.literal()
        elif self.word in ("TRUE", "FALSE"):
            value = self.constant()
        elif self.is_word() and self.at_name():
            token = self.advance()
            value = placed(exp.Var(this=token.text), token.start)
        else:
            value = self.number("a number, a string, a word, TRUE or FALSE")
        return placed(nodes.Option(this=name, value=value), name.meta["start"])

    def drop(self) -> exp.Expression:
        start = self.advance().start
        if self.word == "CONTINUOUS" and self.peek() == "QUERY":
            self.advance()
        kind = self.word
        if kind not in ("STREAM", "SUMMARY", "QUERY"):
            if self.is_word():
                self.refuse(f"DROP {kind}", start)
            self.unexpected("STREAM, SUMMARY or QUERY")
        self.advance()
        exists = self.take_all("IF", "EXISTS")
        name = self.name(f"the name of a {kind.lower()}")
        if self.word == ",":
            self.refuse("DROP of several at once")
        cascade = self.take("CASCADE")
        if self.word == "RESTRICT":
            self.refuse("RESTRICT")
        return nodes.Drop(kind=kind, this=name, exists=exists, cascade=cascade)

    def show(self) -> exp.Expression:
        start = self.advance().start
        kind = self.word
        if kind not in ("STREAMS", "SUMMARIES", "QUERIES"):
            if self.is_word():
                self.refuse(f"SHOW {kind}", start)
            self.unexpected("STREAMS, SUMMARIES or QUERIES")
        self.advance()
        return nodes.Show(kind=kind)

    def describe(self) -> exp.Expression:
        start = self.advance().start
        if self.word == "SELECT":
            self.refuse("DESCRIBE of a query", start)
        return nodes.Describe(this=self.name("the name of a stream, a summary or a query"))

    def explain(self) -> exp.Expression:
        self.advance()
        if self.word == "(" and self.peek() != "SELECT":
            self.refuse("EXPLAIN with options in parentheses")
        analyze = self.take("ANALYZE")
        return nodes.Explain(this=self.query("EXPLAIN"), analyze=analyze)

    def query(self, what: str) -> exp.Expression:
        """Reads the query inside of another statement."""
        start = self.start
        self.refuse_query_form()
        if self.word != "SELECT":
            if self.word in OTHER_STATEMENTS or self.word in ("CREATE", "DROP", "SHOW", "DESCRIBE", "EXPLAIN"):
                self.refuse(f"{what} of {self.word}")
            self.unexpected("SELECT")
        return placed(self.select(), start)
