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


class BadArrow(BatchError):
    """Bytes that are no Arrow IPC stream, or one that does not hold what it claims to."""

    reason = "bad_arrow"


class BadSequence(BatchError):
    """A batch's number without a producer, or one that is no number."""

    reason = "bad_sequence"


class SequenceTooOld(BatchError):
    """A batch's number so far back that nobody remembers whether it was added."""

    reason = "sequence_too_old"


# --- reference tables --------------------------------------------------------------------------------------------


class TableError(BatchError):
    """A change of a table refused as a whole; the table is as it was. `row` is the one of the change at fault."""

    reason = "bad_table_change"
    row: int | None = None


class DuplicateKey(TableError):
    """A primary key that the table has already, or that a change names twice."""

    reason = "duplicate_key"


class MissingKey(TableError):
    """A primary key that is to be changed or deleted and is not in the table."""

    reason = "missing_key"


class TableFull(TableError):
    """More rows than the table takes."""

    reason = "table_full"


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


# --- what is kept on disk ----------------------------------------------------------------------------------------


class StorageError(PromisingError):
    """What is kept on disk could not be written or read."""


class StorageFull(StorageError):
    """No space is left. Nothing was changed; it goes on when there is space again."""


class StorageUnavailable(StorageError):
    """The system refuses to write or read: an I/O error, a read-only or forbidden place. Nothing was changed."""


class StoreInUse(StorageError):
    """Another process has the directory."""


class NewerFormat(StorageError):
    """Written by a newer release than this one."""


class NotAStore(StorageError):
    """A path that is no directory of a store, and cannot become one."""


class DataDamaged(StorageError):
    """A file fails its checksum, or is gone. The message names it, and what it covers."""


# --- packages ----------------------------------------------------------------------------------------------------


class BadPackage(PromisingError):
    """What is to be attached is no package, not finished, or built for another stream or another state of it."""


class TokenReused(PromisingError):
    """A token under which something else was attached before."""


# --- the service -------------------------------------------------------------------------------------------------


class ServiceError(PromisingError):
    """A service could not do what was asked, for a reason that is not in the request's content."""


class Unavailable(ServiceError):
    """The service is not there, or is shutting down. Try again."""


class Unauthenticated(ServiceError):
    """No token, or none that is known and in force."""


class Forbidden(ServiceError):
    """The token's role does not allow it."""


class LimitReached(ServiceError):
    """More than the service takes: calls, queries, rows, bytes, keys.

    `retry_seconds` is when to try again, if that helps.
    """

    def __init__(self, message: str, retry_seconds: float | None = None) -> None:
        super().__init__(message)
        self.retry_seconds = retry_seconds


class DeadlineExceeded(ServiceError):
    """The call's deadline passed before there was an answer."""


class BadRequest(ServiceError):
    """A field of the request is missing or out of range; `field` names it."""

    def __init__(self, message: str, field: str = "") -> None:
        super().__init__(message)
        self.field = field


class InternalError(ServiceError):
    """A fault of the service. Its log says more."""


class BadSettings(ServiceError):
    """Settings that contradict each other, or are unsafe together."""


# --- loads from elsewhere ----------------------------------------------------------------------------------------


class LoadError(PromisingError):
    """A load that cannot be done as asked; nothing of it is in the stream."""


class BadSource(LoadError):
    """Files to load that are not there, empty, given twice, or of different kinds."""


class MixedZones(LoadError):
    """Times of which some have a time zone and others have none."""


class NothingToLoad(LoadError):
    """Not one row that can be loaded."""


class SourceChanged(LoadError):
    """Files that changed while they were loaded."""
