"""All errors. Each names the offending value and its location."""


class PromisingError(Exception):
    """Base class of all errors raised on purpose. `reason` is the name under which refused tuples are counted."""

    reason = "error"


# --- summaries ---------------------------------------------------------------------------------------------------


class BadSize(PromisingError):
    """A depth, width or other size that the structure does not support."""


class Incompatible(PromisingError):
    """Summaries of different kind, size or seed cannot be added, subtracted or joined."""


class CannotSubtract(PromisingError):
    """This kind of summary does not store what it needs to undo an addition."""


class CorruptSummary(PromisingError):
    """Bytes that are not a valid summary: wrong magic, unknown version, failed checksum, impossible content."""


# --- batches -----------------------------------------------------------------------------------------------------


class BatchError(PromisingError):
    """A batch refused as a whole; the store is unchanged."""

    reason = "bad_batch"


class MissingColumn(BatchError):
    """A column of the schema is not in the batch."""

    reason = "missing_column"


class UnknownColumn(BatchError):
    """A column of the batch is not in the schema."""

    reason = "unknown_column"


class DuplicateColumn(BatchError):
    """A column occurs twice in the batch."""

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
    """A string longer than the store's limit."""

    reason = "value_too_long"


class BatchTooLarge(BatchError):
    """More tuples in one batch than the store's limit."""

    reason = "batch_too_large"


class TooOld(BatchError):
    """A timestamp before the oldest granularity."""

    reason = "too_old"


class TooFarAhead(BatchError):
    """A timestamp beyond the allowed future."""

    reason = "too_far_ahead"


class CeilingReached(BatchError):
    """The tuples would exceed the memory ceiling."""

    reason = "ceiling_reached"


class BadArrow(BatchError):
    """Bytes that are not a valid Arrow IPC stream, or whose content does not match its headers."""

    reason = "bad_arrow"


class BadSequence(BatchError):
    """A sequence number without a producer, or an invalid one."""

    reason = "bad_sequence"


class SequenceTooOld(BatchError):
    """A sequence number so old that it is unknown whether its batch was added."""

    reason = "sequence_too_old"


class ProducerFenced(BatchError):
    """A batch of a producer that another writer has opened with a higher epoch."""

    reason = "producer_fenced"


# --- reference tables --------------------------------------------------------------------------------------------


class TableError(BatchError):
    """A change of a table refused as a whole; the table is unchanged. `row` is the offending row of the change."""

    reason = "bad_table_change"
    row: int | None = None


class DuplicateKey(TableError):
    """A primary key that already exists in the table, or occurs twice in a change."""

    reason = "duplicate_key"


class MissingKey(TableError):
    """A primary key to change or delete that is not in the table."""

    reason = "missing_key"


class TableFull(TableError):
    """More rows than the table's limit."""

    reason = "table_full"


# --- definitions -------------------------------------------------------------------------------------------------


class DefinitionError(PromisingError):
    """An invalid definition of a stream or summary."""


class BadSchema(DefinitionError):
    """Unknown column type, no time column, or a column that cannot be a key."""


class BadGranularity(DefinitionError):
    """GRANULARITY must be a positive duration."""


class BadCollapse(DefinitionError):
    """COLLAPSE needs a rate of at least 2 and a depth of at least 1."""


class BadStructure(DefinitionError):
    """An unknown STRUCTURE."""


class BadOptions(DefinitionError):
    """Options out of range or contradictory."""


class BadMeasure(DefinitionError):
    """A measure that is unknown, given twice, or of a column that it cannot measure."""


class BadCounts(DefinitionError):
    """An unknown USING, or one that the structure cannot have."""


class UnknownMeasure(DefinitionError):
    """A summary has no such measure."""


class CeilingTooLow(DefinitionError):
    """The requested sizes need more memory than the ceiling."""


class BadWatermark(DefinitionError):
    """A watermark beyond the clock."""


class DuplicateName(DefinitionError):
    """A summary of that name already exists."""


class UnknownName(PromisingError):
    """No stream, summary, column or region of that name."""


class BadWindow(PromisingError):
    """A window that ends before it starts."""


# --- input and queries of summaries ------------------------------------------------------------------------------


class BadCount(BatchError):
    """A count that is negative, or more tuples than a summary can hold."""

    reason = "bad_count"


class NotContained(PromisingError):
    """The summary to subtract was never added."""


class BadQuestion(PromisingError):
    """A query that the summary cannot answer: a rank outside [0, 1], a range that ends before it starts."""


# --- statements --------------------------------------------------------------------------------------------------


SHOWN = 160  # characters of a line in an error


class StatementError(PromisingError):
    """A statement that cannot be run as written.

    `line` and `column` count from 1; the message shows the position with a caret.
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
            if len(shown) > SHOWN:  # of a long line only the part around the position
                first = max(at - SHOWN // 2, 0)
                before, after = "..." if first else "", "..." if first + SHOWN < len(shown) else ""
                shown, at = before + shown[first : first + SHOWN] + after, at - first + len(before)
            lead = "".join(c if c == "\t" else " " for c in shown[:at])
            message = f"{message}\nline {self.line}, column {self.column}:\n  {shown}\n  {lead}^"
        super().__init__(message)


class BadSyntax(StatementError):
    """Not a statement of the language."""


class Unsupported(StatementError):
    """Recognised but not supported; the message names the feature."""


class NoSuchName(StatementError):
    """No stream, summary, query, column or function of that name; the message suggests the nearest."""


class Ambiguous(StatementError):
    """A column name that more than one stream of the query has."""


class TypeMismatch(StatementError):
    """Operands or arguments of incompatible types."""


class BadClause(StatementError):
    """A clause with a value out of range, given twice, contradicting another, or misplaced."""


class NoSummary(StatementError):
    """A preference on a column without a summary."""


class InUse(StatementError):
    """The object to drop is needed by another."""


# --- running queries ---------------------------------------------------------------------------------------------


class QueryError(StatementError):
    """A query that failed at run time; the streams are unchanged."""


class DivisionByZero(QueryError):
    """A divisor that is zero in some row."""


class Overflow(QueryError):
    """A result too large for its type."""


class BadCast(QueryError):
    """A value that cannot be cast to the type."""


class BadToken(PromisingError):
    """Not a resume token of this session: forged, damaged, or of another session."""


class TokenExpired(PromisingError):
    """The answer cannot be resumed: it was evicted, or tuples it needs have aged out."""


# --- storage -----------------------------------------------------------------------------------------------------


class StorageError(PromisingError):
    """A failed read or write of stored data."""


class StorageFull(StorageError):
    """No space is left on the disk. Nothing was changed; it resumes when there is space."""


class StorageUnavailable(StorageError):
    """The system refuses a read or write: an I/O error, a read-only or forbidden location. Nothing was changed."""


class StoreInUse(StorageError):
    """Another process uses the directory."""


class NewerFormat(StorageError):
    """Written by a newer release than this one."""


class NotAStore(StorageError):
    """A path that is not a data directory, and cannot become one."""


class DataDamaged(StorageError):
    """A file is missing or fails its checksum. The message names it, and what it covers."""


# --- packages ----------------------------------------------------------------------------------------------------


class BadPackage(PromisingError):
    """Not a package, not finished, or built for another stream or another state of it."""


class TokenReused(PromisingError):
    """A token that was used for another package."""


# --- the service -------------------------------------------------------------------------------------------------


class ServiceError(PromisingError):
    """A failure of the service that is not due to the content of the request."""


class Unavailable(ServiceError):
    """The service is unreachable or shutting down. Retry."""


class Unauthenticated(ServiceError):
    """No token, or an unknown or expired one."""


class Forbidden(ServiceError):
    """The token's role does not allow it."""


class LimitReached(ServiceError):
    """A limit of the service: calls, queries, rows, bytes, keys. `retry_seconds`: when to retry, if that helps."""

    def __init__(self, message: str, retry_seconds: float | None = None) -> None:
        super().__init__(message)
        self.retry_seconds = retry_seconds


class DeadlineExceeded(ServiceError):
    """The call's deadline passed before the response."""


class BadRequest(ServiceError):
    """A field of the request is missing or out of range; `field` names it."""

    def __init__(self, message: str, field: str = "") -> None:
        super().__init__(message)
        self.field = field


class InternalError(ServiceError):
    """An internal error of the service. Its log has details."""


class BadSettings(ServiceError):
    """Settings that contradict each other, or are unsafe in combination."""


# --- loads -------------------------------------------------------------------------------------------------------


class LoadError(PromisingError):
    """A load that cannot be run as requested; nothing was added to the stream."""


class BadSource(LoadError):
    """Files to load that are missing, empty, given twice, or of different formats."""


class MixedZones(LoadError):
    """Times with and without a time zone in one column."""


class NothingToLoad(LoadError):
    """No row can be loaded."""


class SourceChanged(LoadError):
    """Files that changed during the load."""
