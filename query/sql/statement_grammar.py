"""The grammar of statements."""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import exp

from promising.query.sql import nodes
from promising.query.sql.change_grammar import TableChanges
from promising.query.sql.token_cursor import END, QUOTED, STRING, placed
from promising.query.sql.words import OTHER_STATEMENTS, RESERVED

_OTHERS = ("CREATE", "DROP", "SHOW", "DESCRIBE", "EXPLAIN", "ALTER", "INSERT", "UPSERT", "UPDATE", "DELETE")
_CONSTRAINTS = ("UNIQUE", "FOREIGN", "CHECK", "CONSTRAINT", "EXCLUDE", "INDEX", "KEY")


class Statements(TableChanges):
    def statements(self) -> list[exp.Expression]:
        """All statements, separated by semicolons; empty ones are skipped."""
        found: list[exp.Expression] = []
        while True:
            while self.take(";"):
                pass
            if self.word == END:
                return found
            found.append(self.statement())

    def statement(self) -> exp.Expression:
        start = self.start
        readers: dict[str, Callable[[], exp.Expression]] = {
            "SELECT": self.combined,
            "(": self.combined,
            "CREATE": self.create,
            "ALTER": self.alter,
            "INSERT": self.insert,
            "UPSERT": self.insert,
            "UPDATE": self.update,
            "DELETE": self.delete,
            "DROP": self.drop,
            "SHOW": self.show,
            "DESCRIBE": self.describe,
            "DESC": self.describe,
            "EXPLAIN": self.explain,
        }
        reader = readers.get(self.word)
        if reader is None:
            self.refuse_with()
            if self.word in OTHER_STATEMENTS:
                self.refuse(self.word)
            self.unexpected("a statement")
        node = placed(reader(), start)
        if self.word not in (";", END):
            self.unexpected("the end of the statement")
        return node

    def refuse_with(self) -> None:
        if self.word == "WITH":
            self.refuse("WITH before a query (a common table expression)")

    def create(self) -> exp.Expression:
        start = self.advance().start
        if self.take("STREAM"):
            return self.create_stream()
        if self.take("SUMMARY"):
            return self.create_summary()
        if self.take("TABLE"):
            return self.create_table()
        if self.take("CONTINUOUS"):
            self.expect("QUERY")
            exists, name = self.if_not_exists(), self.name("the name of a query")
            self.expect("AS", "and a query")
            return nodes.CreateContinuousQuery(this=name, exists=exists, query=self.query("a continuous query"))
        if self.is_word():
            self.refuse("CREATE OR REPLACE" if self.word == "OR" else f"CREATE {self.word}", start)
        return self.unexpected("STREAM, SUMMARY, TABLE or CONTINUOUS QUERY")

    def if_not_exists(self) -> bool:
        return self.take_all("IF", "NOT", "EXISTS")

    def create_stream(self) -> exp.Expression:
        exists, name = self.if_not_exists(), self.name("the name of a stream")
        self.expect("(", "and the columns")
        columns = self.several(self.column_definition)
        if self.word != ")":
            self.unexpected(", or )")
        self.advance()
        given: dict[str, object] = {}
        while (word := self.word) in ("TIMESTAMP", "LATENESS", "KEEP", "MAX", "OPTIONS"):
            self.once(given, word, {"TIMESTAMP": "TIMESTAMP BY", "MAX": "MAX JUMP"}.get(word, word))
            self.advance()
            if word == "TIMESTAMP":
                self.expect("BY", "and the column of the event time")
                given[word] = self.name("the column of the event time")
            elif word == "MAX":
                given[word] = self.jump()
            elif word == "KEEP":
                given[word] = self.keep()
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
            keep=given.get("KEEP"),
            max_jump=given.get("MAX"),
            options=given.get("OPTIONS", []),
        )

    def keep(self) -> exp.Expression:
        """What follows KEEP: ALL, or how long tuples are retained."""
        start = self.start
        return placed(exp.Var(this="ALL"), start) if self.take("ALL") else self.span("KEEP", calendar=True)

    def jump(self) -> exp.Expression:
        """What follows MAX: JUMP and a length of time, or OFF."""
        self.expect("JUMP", "and a length of time")
        start = self.start
        return placed(exp.Var(this="OFF"), start) if self.take("OFF") else self.span("MAX JUMP")

    def column_definition(self) -> exp.Expression:
        name = self.name("the name of a column")
        node = exp.ColumnDef(this=name, kind=self.type())
        if self.is_word():
            self.refuse(f"{self.shown()} after the type of a column")
        return placed(node, name.meta["start"])

    def create_table(self) -> exp.Expression:
        exists, name = self.if_not_exists(), self.name("the name of a table")
        if self.word in ("AS", "LIKE"):
            self.refuse(f"CREATE TABLE ... {self.word}")
        self.expect("(", "and the columns")
        columns: list[exp.Expression] = []
        keys: list[exp.Identifier] = []
        while True:
            self.table_part(columns, keys)
            if not self.take(","):
                break
        if self.word != ")":
            self.unexpected(", or )")
        if not keys:
            self.unexpected("PRIMARY KEY (column), which a table must have")
        if not columns:
            self.unexpected("a column")
        self.advance()
        if self.word == "NON" and self.peek() != "RETROACTIVE":
            self.advance()
            self.unexpected("RETROACTIVE after NON")
        retroactive = not self.take("NON")
        self.take("RETROACTIVE")
        return nodes.CreateTable(this=name, exists=exists, columns=columns, key=keys[0], retroactive=retroactive)

    def table_part(self, columns: list[exp.Expression], keys: list[exp.Identifier]) -> None:
        place, primary = self.start, self.take_all("PRIMARY", "KEY")
        if primary:
            self.expect("(", "and a column")
            key = self.name("the name of a column")
            if self.word == ",":
                self.refuse("a primary key of several columns")
            self.expect(")")
        else:
            if self.word in _CONSTRAINTS and self.peek() in ("(", "KEY"):
                self.refuse(f"{self.word} in CREATE TABLE")
            key = self.name("the name of a column")
            columns.append(placed(exp.ColumnDef(this=key, kind=self.type()), place))
            if primary := self.word == "PRIMARY" and self.peek() == "KEY":
                place = self.start
                self.take_all("PRIMARY", "KEY")
                key = key.copy()
            if self.is_word():
                self.refuse(f"{self.shown()} after the type of a column")
        if primary:
            if keys:
                self.misplaced("PRIMARY KEY is given twice", place)
            keys.append(key)

    def create_summary(self) -> exp.Expression:
        exists, name = self.if_not_exists(), self.name("the name of a summary")
        self.expect("ON", "and a stream")
        stream = self.name("the name of a stream")
        self.expect("(", "and a column")
        key = self.name("the name of a column")
        if self.word == ",":
            self.refuse("a summary on several columns")
        self.expect(")")
        using = self.using() if self.take("USING") else None
        measures = self.measures() if self.word == "MEASURES" else None
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
            using=using,
            measures=measures,
            granularity=granularity,
            rate=rate,
            depth=depth,
            structure=given.get("STRUCTURE"),
            options=given.get("OPTIONS", []),
        )

    def using(self) -> exp.Expression:
        """What follows USING: a kind of counts."""
        if not self.is_word():
            self.unexpected("COUNT_SKETCH, COUNT_MIN or EXACT")
        word, start = self.word, self.advance().start
        return placed(exp.Var(this=word), start)

    def measures(self) -> exp.Expression | list[exp.Expression]:
        """MEASURES NONE, or a list in parentheses."""
        self.advance()
        start = self.start
        return placed(exp.Var(this="NONE"), start) if self.take("NONE") else self.measure_list("NONE or ")

    def measure_list(self, other: str = "") -> list[exp.Expression]:
        if self.word != "(":
            self.unexpected(f"{other}( and measures, such as MOMENTS(column)")
        self.advance()
        found = self.several(self.measure)
        if self.word != ")":
            self.unexpected(", or )")
        self.advance()
        return found

    def measure(self) -> exp.Expression:
        """A kind, and in parentheses the column and numbers it takes. No name is reserved here."""
        if not self.is_word():
            self.unexpected("a measure, such as MOMENTS(column)")
        start = self.start
        kind = placed(exp.Var(this=self.word), start)
        self.advance()
        self.expect("(", "and what to measure")
        column, numbers = None, []
        if self.word == QUOTED or self.is_word():
            reserved = self.word in RESERVED
            column = self.identifier()
            if reserved:
                column.set("quoted", True)
        elif self.word != ")":
            numbers.append(self.number("a column or a number"))
        while (column or numbers) and self.take(","):
            numbers.append(self.number("a number"))
        if self.word != ")":
            self.unexpected(", or )")
        self.advance()
        return placed(nodes.Measure(this=kind, column=column, expressions=numbers), start)

    def structure(self) -> exp.Expression:
        if not self.is_word():
            self.unexpected("none, time, grid, adaptive or auto")
        word, start = self.word, self.advance().start
        return placed(exp.Var(this=word.lower() if word.isascii() else word), start)

    def once(self, given: dict[str, object], key: str, clause: str) -> None:
        """Fails if this clause was given before."""
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
        name = self.name("the name of an option")
        self.expect("=", "and a value")
        value: exp.Expression
        if self.word == STRING:
            value = self.literal()
        elif self.word in ("TRUE", "FALSE"):
            value = self.constant()
        elif self.is_word() and (self.at_name() or self.word == "ON"):
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
        if kind not in ("STREAM", "SUMMARY", "TABLE", "QUERY"):
            if self.is_word():
                self.refuse(f"DROP {kind}", start)
            self.unexpected("STREAM, SUMMARY, TABLE or QUERY")
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
        if kind not in ("STREAMS", "SUMMARIES", "TABLES", "QUERIES"):
            if self.is_word():
                self.refuse(f"SHOW {kind}", start)
            self.unexpected("STREAMS, SUMMARIES, TABLES or QUERIES")
        self.advance()
        return nodes.Show(kind=kind)

    def describe(self) -> exp.Expression:
        start = self.advance().start
        if self.word == "SELECT":
            self.refuse("DESCRIBE of a query", start)
        return nodes.Describe(this=self.name("the name of a stream, a summary, a table or a query"))

    def explain(self) -> exp.Expression:
        self.advance()
        if self.word == "(" and self.peek() not in ("SELECT", "("):
            self.refuse("EXPLAIN with options in parentheses")
        analyze = self.take("ANALYZE")
        if self.word in ("DROP", "ALTER") and not analyze:
            start = self.start
            change = placed(self.drop() if self.word == "DROP" else self.alter(), start)
            if isinstance(change, nodes.AlterQuery | nodes.AlterSummary):
                self.refuse(f"EXPLAIN of ALTER {'QUERY' if isinstance(change, nodes.AlterQuery) else 'SUMMARY'}", start)
            return nodes.Explain(this=change, analyze=False)
        if self.word == "CREATE" and self.peek() == "CONTINUOUS":
            if analyze:
                self.refuse("EXPLAIN ANALYZE of a continuous query")
            start = self.start
            return nodes.Explain(this=placed(self.create(), start), analyze=False)
        return nodes.Explain(this=self.query("EXPLAIN"), analyze=analyze)

    def query(self, what: str) -> exp.Expression:
        start = self.start
        self.refuse_with()
        if self.word in OTHER_STATEMENTS or self.word in _OTHERS:
            self.refuse(f"{what} of {self.word}")
        return placed(self.combined(), start)

    def alter(self) -> exp.Expression:
        start = self.advance().start
        if self.take("STREAM"):
            return self.alter_stream()
        if self.take("SUMMARY"):
            return self.alter_summary()
        self.take("CONTINUOUS")
        if self.word != "QUERY":
            if self.is_word():
                self.refuse(f"ALTER {self.word}", start)
            self.unexpected("STREAM, SUMMARY or QUERY")
        self.advance()
        name = self.name("the name of a query")
        if self.take("DROP"):
            self.expect("BUDGET")
            return nodes.AlterQuery(this=name)
        if not self.take("SET"):
            if self.is_word():
                self.refuse(f"ALTER QUERY ... {self.word}")
            self.unexpected("SET BUDGET or DROP BUDGET")
        self.expect("BUDGET")
        return nodes.AlterQuery(this=name, budget=self.span("BUDGET"))

    def alter_stream(self) -> exp.Expression:
        name = self.name("the name of a stream")
        self.take("SET")
        if self.take("KEEP"):
            return nodes.AlterStream(this=name, keep=self.keep())
        if self.take("MAX"):
            return nodes.AlterStream(this=name, max_jump=self.jump())
        if self.take("WATERMARK"):
            self.take("TIMESTAMP")
            if self.word != STRING:
                self.unexpected("an instant after WATERMARK, such as '2024-05-01 12:00:00'")
            return nodes.AlterStream(this=name, watermark=self.literal())
        if self.is_word():
            self.refuse(f"ALTER STREAM ... {self.word}")
        return self.unexpected("KEEP, WATERMARK or MAX JUMP")

    def alter_summary(self) -> exp.Expression:
        name = self.name("the name of a summary")
        kind = self.word
        if kind not in ("ADD", "DROP"):
            if self.is_word():
                self.refuse(f"ALTER SUMMARY ... {kind}")
            self.unexpected("ADD MEASURES or DROP MEASURES")
        self.advance()
        self.expect("MEASURES", "and a list of measures")
        return nodes.AlterSummary(this=name, kind=kind, measures=self.measure_list())
