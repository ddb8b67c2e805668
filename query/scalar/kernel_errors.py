"""Kernel errors that name the failing values, which Arrow's do not."""

from collections.abc import Callable

import pyarrow as pa

from promising.errors import QueryError
from promising.query.scalar.compiled import Failure, Value


def checked(kernel: Callable[..., Value], tell: Callable[..., QueryError]) -> Callable[..., Value]:
    """`kernel`, raising Failure where undefined. `tell` makes the error from Arrow's message and the values."""

    def run(*values: Value) -> Value:
        try:
            return kernel(*values)
        except pa.ArrowInvalid as error:
            reason = str(error)
            raise Failure(lambda: tell(reason, *first_failure(kernel, *values))) from None

    return run


def first_failure(kernel: Callable[..., Value], *values: Value) -> list[str]:
    """The values, as text, of the first failing row. Bisects in about two passes: failures are rare."""
    arrays = [value for value in values if not isinstance(value, pa.Scalar)]
    low, high = 0, len(arrays[0]) if arrays else 1

    def cut(start: int, stop: int) -> list[Value]:
        return [value if isinstance(value, pa.Scalar) else value.slice(start, stop - start) for value in values]

    while high - low > 1:
        middle = (low + high) // 2
        try:
            kernel(*cut(low, middle))
        except pa.ArrowInvalid:
            high = middle
        else:
            low = middle
    return [show(value if isinstance(value, pa.Scalar) else value[0]) for value in cut(low, high)]


def show(scalar: pa.Scalar) -> str:
    if pa.types.is_duration(scalar.type):
        return f"{scalar.value} microseconds"
    return str(scalar.cast(pa.string()).as_py())
