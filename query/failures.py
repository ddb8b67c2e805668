"""Which values made a kernel fail: Arrow says that something failed, a message should say what."""

from collections.abc import Callable

import pyarrow as pa

from query.compiled import Value


def first_failure(kernel: Callable[..., Value], *values: Value) -> list[str]:
    """The values, as text, of the first row on which the kernel fails; it is known to fail on some row.

    The kernel is run again on halves, about two times over all rows: failing is rare and ends the query.
    """
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
    """A value as a message shows it."""
    if pa.types.is_duration(scalar.type):
        return f"{scalar.value} microseconds"
    return str(scalar.cast(pa.string()).as_py())
