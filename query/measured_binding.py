"""Binds the estimates of a preference that measures of summaries give: `SUMMARY.Estimate.Sum(column)` and the like."""

from typing import TYPE_CHECKING

from sqlglot import exp

from promising.errors import BadClause, BadMeasure, NoSummary, TypeMismatch
from promising.index.schema import KEY_TYPES
from promising.index.summary_index import SummaryIndex
from promising.query.preference import ESTIMATE, EstimatedMeasure
from promising.query.scalar.scope import Input
from promising.query.sql import generate, nodes
from promising.query.summary_advice import suggested_summary
from promising.summaries.cells import Measure, kind_of

if TYPE_CHECKING:
    from promising.query.binder import Binder

KINDS = {
    **dict.fromkeys(("SUM", "AVG", "MIN", "MAX"), "moments"),
    **{"QUANTILE": "quantiles", "DISTINCT": "distinct", "FREQUENCY": "frequent"},
}
"""The kind of measure that answers; a confidence is that of any."""


class Asked:
    """An estimate as written: bound to a column, not yet to a summary."""

    def __init__(self, node: nodes.SummaryEstimate, binder: "Binder") -> None:
        self.node, self.binder = node, binder
        if not isinstance(node.this, exp.Column):
            raise binder.error(TypeMismatch, "SUMMARY.Estimate takes a column", node)
        found = binder.scope.resolve(node.this)
        self.side, self.column = found.source, found.name
        self.stream = binder.sources[self.side].stream
        self.what: str = node.args["what"]
        self.rank = self._rank()
        self.wanted = Measure(KINDS.get(self.what, "moments"), self.column)
        if self.what in KINDS:
            self._check()

    def _rank(self) -> float | None:
        node = self.node.args.get("rank")
        if node is None:
            return None
        sign, number = (-1.0, node.this) if isinstance(node, exp.Neg) else (1.0, node)
        rank = sign * float(number.this)
        if not 0 <= rank <= 1:
            raise self.binder.error(BadClause, "a quantile is from 0 to 1, as in Quantile(column, 0.9)", node)
        return rank

    def _check(self) -> None:
        """Whether the kind measures columns of this type."""
        try:
            kind_of(self.wanted, self.stream.schema.types, 0)
        except BadMeasure as problem:
            raise self.binder.error(TypeMismatch, str(problem), self.node) from None

    @property
    def input(self) -> Input:
        name = f"{self.side}.{self.what}.{self.node.args.get('bound')}.{self.rank}.{self.column}"
        return Input(ESTIMATE, name, "float")

    def _measures(self, summary: SummaryIndex) -> tuple[Measure, ...]:
        """The measures of a summary that answer."""
        known = [kind.measure for kind in summary.kinds if kind.measure.column == self.column]
        if self.what != "CONFIDENCE":
            known = [measure for measure in known if measure.kind == self.wanted.kind]
        return tuple(known)

    def key(self) -> str:
        """The key of the best summary that answers; error if none does."""
        if self.what == "CONFIDENCE" and any(s.key == self.column for s in self.stream.summaries.values()):
            return self.column
        return self._best(None).key

    def _best(self, key: str | None) -> SummaryIndex:
        known = [s for s in self.stream.summaries.values() if key is None or s.key == key]
        able = [s for s in known if self._measures(s)]
        if not able:
            raise self._missing(key, known)
        return max(able, key=lambda s: (s.structure != "none", s.reach, s.name))

    def _missing(self, key: str | None, known: list[SummaryIndex]) -> NoSummary:
        best = max(known, key=lambda s: (s.reach, s.name), default=None)
        on = "" if key is None else f" on {key}, by which this preference ranks,"
        if best is not None:
            name = generate(exp.to_identifier(best.name))
            advice = f"ALTER SUMMARY {name} ADD MEASURES ({self.wanted.sql})"
        else:
            types = self.stream.schema.types
            keys = [key] if key is not None else [name for name, kind in types.items() if kind in KEY_TYPES]
            advice = suggested_summary(self.binder.catalog, self.stream, keys[0]) if keys else ""
            advice = advice.replace(" WITH GRANULARITY", f" MEASURES ({self.wanted.sql}) WITH GRANULARITY")
        problem = f"no summary of stream {self.stream.name}{on} measures {self.wanted.sql}; {advice}"
        error = self.binder.error(NoSummary, problem, self.node)
        assert isinstance(error, NoSummary)
        return error

    def provided(self, key: str | None) -> EstimatedMeasure:
        """By the best summary on the key of the entries. The confidence in a count of the key itself is 1."""
        if self.what == "CONFIDENCE" and self.column == key:
            summary = max((s for s in self.stream.summaries.values() if s.key == key), key=lambda s: (s.reach, s.name))
            return EstimatedMeasure(self.side, self.column, self.what, None, None, summary, ())
        summary = self._best(key)
        bound = self.node.args.get("bound")
        return EstimatedMeasure(self.side, self.column, self.what, bound, self.rank, summary, self._measures(summary))
