"""The grammar of statements that change a table: INSERT, UPSERT, UPDATE, DELETE."""

from __future__ import annotations

from sqlglot import exp

from promising.errors import BadSyntax
from promising.query.sql import nodes
from promising.query.sql.expression_grammar import MATCH
from promising.query.sql.select_grammar import Queries
from promising.query.sql.token_cursor import END, placed


class TableChanges(Queries):
    """Values are constants; rows are identified by primary key."""

    def insert(self) -> exp.Expression:
        kind = self.word
        self.advance()
        if self.word == "OR":
            self.refuse(f"{kind} OR (there is UPSERT)")
        self.expect("INTO", "and a stream or table")
        name = self.name("the name of a stream or table")
        columns: list[exp.Identifier] = []
        if self.word == "(" and self.peek() not in ("SELECT", "WITH", "("):
            self.advance()
            columns = self.several(lambda: self.name("the name of a column"))
            if self.word != ")":
                self.unexpected(", or )")
            self.advance()
        if self.word in ("SELECT", "WITH", "(", "FROM", "TABLE"):
            self.refuse(f"{kind} of a query (run the SELECT, and give its rows to ingest() or load_table())")
        if self.word == "DEFAULT":
            self.refuse("DEFAULT VALUES")
        self.expect("VALUES", "and rows")
        rows = self.several(self.row)
        width = len(columns or rows[0])
        for row in rows:
            if len(row) != width:
                self.misplaced(
                    f"a row of {len(row)} value{'s' if len(row) > 1 else ''}, where {width} are due", row.meta["start"]
                )
        self.refuse_returning()
        return nodes.TableChange(kind=kind, this=name, columns=columns, rows=rows)

    def row(self) -> nodes.Row:
        start = self.start
        self.expect("(", "and the values of a row")
        self.inside()
        if self.word == "DEFAULT" and self.peek() in (",", ")"):
            self.refuse("DEFAULT")
        return placed(nodes.Row(expressions=[self.fixed(one) for one in self.listed("a value")]), start)

    def fixed(self, node: exp.Expression) -> exp.Expression:
        """The expression, which must be constant."""
        for part in node.walk():
            if isinstance(part, exp.Column | exp.AggFunc | exp.Exists | nodes.SummaryEstimate):
                self.fail(BadSyntax, "a constant is wanted here", part.meta.get("start"))
        return node

    def update(self) -> exp.Expression:
        self.advance()
        name = self.name("the name of a table")
        self.expect("SET", "and a column")
        assignments = self.several(self.assignment)
        if self.word == "FROM":
            self.refuse("UPDATE ... FROM")
        key, keys = self.which("UPDATE")
        return nodes.TableChange(kind="UPDATE", this=name, assignments=assignments, key=key, keys=keys)

    def assignment(self) -> exp.Expression:
        name = self.name("the name of a column")
        self.expect("=", "and a value")
        node = nodes.Assignment(this=name, value=self.fixed(self.expression()))
        return placed(node, name.meta["start"])

    def delete(self) -> exp.Expression:
        self.advance()
        self.expect("FROM", "and a table")
        name = self.name("the name of a table")
        if self.word == "USING":
            self.refuse("DELETE ... USING")
        key, keys = self.which("DELETE")
        return nodes.TableChange(kind="DELETE", this=name, key=key, keys=keys)

    def which(self, kind: str) -> tuple[exp.Identifier, list[exp.Expression]]:
        if self.word in (";", END):
            self.refuse(f"{kind} without WHERE")
        self.expect("WHERE", "and the primary key")
        key = self.name("the primary key")
        if kind == "DELETE" and self.take("IN"):
            self.expect("(", "and values")
            self.inside()
            self.refuse_query()
            keys = [self.fixed(one) for one in self.listed("a value")]
        else:
            if self.word not in ("=", "=="):
                self.unexpected("= or IN after the primary key" if kind == "DELETE" else "= after the primary key")
            self.advance()
            keys = [self.fixed(self.expression(MATCH + 1))]
        if self.word in ("AND", "OR"):
            self.refuse(f"{kind} by more than the primary key")
        self.refuse_returning()
        return key, keys

    def refuse_returning(self) -> None:
        """Fails at clauses that other systems allow at the end of a change."""
        if self.word == "RETURNING":
            self.refuse("RETURNING")
        if self.word == "ON":
            self.refuse("ON CONFLICT (there is UPSERT)")
