"""Every error the house raises, each with what was wrong and where."""


class PromisingError(Exception):
    """Base of all errors raised on purpose. `reason` is the name under which refused tuples are counted."""

    reason = "error"


# --- summaries ---------------------------------------------------------------------------------------------------


class BadSize(PromisingError):
    """A depth, width or other size that the structure cannot have."""


class Incompatible(PromisingError):
    """Two summaries of different kind, size or seed cannot be added, subtracted or joined."""


class CannotSubtract(PromisingError):
    """This kind of summary forgets what it would need to undo an addition."""


class CorruptSummary(PromisingError):
    """Bytes that are no summary: wrong magic, unknown version, failed checksum, impossible content."""


# --- batches -----------------------------------------------------------------------------------------------------


class BatchError(PromisingError):
    """A batch refused as a whole; the store is as it was."""

    reason = "bad_batch"


class MissingColumn(BatchError):
    """A column of the schema is not in the batch."""

    reason = "missing_column"


class UnknownColumn(BatchError):
    """A column of the batch is not in the schema."""

    reason = "unknown_column"


class DuplicateColumn(BatchError):
    """A column that the batch has twice."""

    reason = "duplicate_column"


class WrongType(BatchError):
    """A column's values do not fit its declared type."""

    reason = "wrong_type"


class UnequalLengths(BatchError):
    """Columns of one batch have different lengths."""

    reason = "unequal_lengths"


class EmptyBatch(BatchError):
    """A batch without tuples."""

    reason = "empty_batch"


class NullKey(BatchError):
    """A tuple without a value in a key column."""

    reason = "null_key"


class NullTime(BatchError):
    """A tuple without an event time."""

    reason = "null_time"


class NaNKey(BatchError):
    """A key that is not a number (pandas turns missing integers into NaN)."""

    reason = "nan_key"


class MixedKeys(BatchError):
    """Strings and integers in one key column."""

    reason = "mixed_keys"


class ValueTooLong(BatchError):
    """A string longer than the store takes."""

    reason = "value_too_long"


class BatchTooLarge(BatchError):
    """More tuples in one batch than the store takes at once."""

    reason = "batch_too_large"


class TooOld(BatchError):
    """A timestamp before the oldest granularity."""

    reason = "too_old"


class TooFarAhead(BatchError):
    """A timestamp beyond the allowed future."""

    reason = "too_far_ahead"


class CeilingReached(BatchError):
    """The tuples would not fit under the stated memory ceiling."""

    reason = "ceiling_reached"


# --- definitions -------------------------------------------------------------------------------------------------


class DefinitionError(PromisingError):
    """A stream or summary that cannot be created as asked."""


class BadSchema(DefinitionError):
    """Unknown column type, no time column, or a key column that cannot be a key."""


class BadGranularity(DefinitionError):
    """GRANULARITY must be a positive span of time."""


class BadCollapse(DefinitionError):
    """COLLAPSE needs a rate of at least 2 and a depth of at least 1."""


class BadStructure(DefinitionError):
    """An unknown STRUCTURE."""


class BadOptions(DefinitionError):
    """Options out of range or in contradiction."""


class CeilingTooLow(DefinitionError):
    """The sizes asked for need more memory than the ceiling allows."""


class DuplicateName(DefinitionError):
    """A summary of that name exists already."""


class UnknownName(PromisingError):
    """No stream, summary, column or region of that name."""


class BadWindow(PromisingError):
    """A window that ends before it starts."""


# --- what a summary is given and asked ---------------------------------------------------------------------------


class BadCount(BatchError):
    """A count that is negative, or more tuples than a summary can hold."""

    reason = "bad_count"


class NotContained(PromisingError):
    """What is to be subtracted was never added."""


class BadQuestion(PromisingError):
    """A question the summary cannot answer: a rank outside [0, 1], a range that ends before it starts."""


# --- statements --------------------------------------------------------------------------------------------------


SHOWN = 160  # characters of a line that an error shows


class StatementError(PromisingError):
    """A statement that cannot be carried out as written.

    `line` and `column` count from 1 and point at the place; the message then shows it under a caret.
    """

    def __init__(self, message: str, sql: str | None = None, offset: int | None = None) -> None:
        self.problem = message
        self.line: int | None = None
        self.column: int | None = None
        if sql is not None and offset is not None:
            offset = min(max(offset, 0), len(sql))
            start = sql.rfind("\n", 0, offset) + 1
            stop = sql.find("\n", offset)
            shown = sql[start : len(sql) if stop < 0 else stop]
            self.line = sql.count("\n", 0, offset) + 1
            self.column = offset - start + 1
            at = offset - start
            if len(shown) > SHOWN:  # of a long line what is around the place
                first = max(at - SHOWN // 2, 0)
                before, after = "..." if first else "", "..." if first + SHOWN < len(shown) else ""
                shown, at = before + shown[first : first + SHOWN] + after, at - first + len(before)
            lead = "".join(c if c == "\t" else " " for c in shown[:at])
            message = f"{message}\nline {self.line}, column {self.column}:\n  {shown}\n  {lead}^"
        super().__init__(message)


class BadSyntax(StatementError):
    """Text that is no statement of the language."""


class Unsupported(StatementError):
    """Understood, and not offered: named, so that nothing is half understood."""


class NoSuchName(StatementError):
    """No stream, summary, query, column or function of that name; the message suggests the nearest."""


class Ambiguous(StatementError):
    """A column name that more than one stream of the query has."""


class TypeMismatch(StatementError):
    """Operands or arguments of types that do not go together."""


class BadClause(StatementError):
    """A clause with a value out of range, given twice, in contradiction with another, or out of place."""


class NoSummary(StatementError):
    """A preference on an attribute that no summary knows."""


class InUse(StatementError):
    """What is to be dropped is needed by something else."""


# --- running queries ---------------------------------------------------------------------------------------------


class QueryError(StatementError):
    """A query that failed while it ran; the streams are as they were."""


class DivisionByZero(QueryError):
    """A divisor that is zero in some row."""


class Overflow(QueryError):
    """A result too large for its type."""


class BadCast(QueryError):
    """A value that cannot become the type it is cast to."""


class BadToken(PromisingError):
    """No resume token of this session: forged, damaged, or of another session."""


class TokenExpired(PromisingError):
    """The answer cannot go on: it was put away, or tuples it needs have aged out since."""
