"""A sum over a join with shrinking bounds, and then its exact value."""

from dataclasses import dataclass

from promising.client import RemoteSession

SQL = "SELECT sum(a.Price) AS prices FROM even a, odd b WHERE a.ItemID = b.ItemID"
ERROR = "WITH ERROR 0.02"


@dataclass(frozen=True)
class Step:
    """The bounds after this much CPU time."""

    cpu: float
    value: float
    lower: float
    upper: float


@dataclass(frozen=True)
class Sums:
    """An aggregate up to its error target, and the exact value over the same tuples."""

    sql: str
    steps: list[Step]
    exact: float
    exact_cpu: float
    pairs: int

    @property
    def held(self) -> bool:
        """Whether the exact value is within the last bounds."""
        return not self.steps or self.steps[-1].lower <= self.exact <= self.steps[-1].upper


def sums(session: RemoteSession) -> Sums:
    """Query with the error target, then without. No tuples may arrive in between."""
    sql = f"{SQL}\n{ERROR}"
    steps = []
    for frame in session.query(sql, seed=1):
        if frame.rows.num_rows and frame.lower is not None and frame.upper is not None:
            found = [table["prices"][0].as_py() for table in (frame.rows, frame.lower, frame.upper)]
            if all(value is not None for value in found):
                steps.append(Step(frame.progress.cpu_seconds, *found))
    answer = session.query(SQL).run()
    exact = answer.to_arrow()["prices"][0].as_py() or 0.0
    return Sums(sql, steps, exact, answer.progress.cpu_seconds, round(answer.progress.total.value))
