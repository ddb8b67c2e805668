"""Adds the position in the statement to errors of the index."""

from collections.abc import Mapping

from sqlglot import exp

from promising.errors import DefinitionError, StatementError
from promising.query.scalar.positions import offset_of


class placed:  # lower case because it reads as a keyword: `with placed(sql, node):`
    """Adds a position to errors: the one in `places` for the error's class, else that of `node`."""

    def __init__(
        self,
        sql: str,
        node: exp.Expression,
        places: Mapping[type[DefinitionError], exp.Expression] | None = None,
    ) -> None:
        self._sql = sql
        self._node = node
        self._places = places or {}

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, problem: BaseException | None, _: object) -> None:
        if isinstance(problem, StatementError) and problem.line is None:
            raise type(problem)(problem.problem, self._sql, offset_of(self._node)) from None
        if isinstance(problem, DefinitionError):
            node = self._places.get(type(problem), self._node)
            raise type(problem)(str(StatementError(str(problem), self._sql, offset_of(node)))) from None
