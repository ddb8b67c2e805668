"""Exit codes and error messages of commands."""

import os
import traceback
from enum import IntEnum

from promising.cli.console import clean, complain
from promising.errors import (
    BadSettings,
    DataDamaged,
    DeadlineExceeded,
    Forbidden,
    InternalError,
    LimitReached,
    NewerFormat,
    NotAStore,
    PromisingError,
    StorageFull,
    StorageUnavailable,
    StoreInUse,
    Unauthenticated,
    Unavailable,
)


class Code(IntEnum):
    """Exit code of a command."""

    OK = 0
    REQUEST = 1
    USAGE = 2
    UNAVAILABLE = 3
    DENIED = 4
    CUT = 5
    FAULT = 70
    INTERRUPTED = 130


MEANING = {
    Code.OK: "success",
    Code.REQUEST: "the request was refused: invalid SQL, unknown name, refused batch; or data is damaged",
    Code.USAGE: "wrong usage of the command line, invalid settings, or an unusable data directory",
    Code.UNAVAILABLE: "service unavailable, timeout, overload, or a full or failing disk: try again later",
    Code.DENIED: "access denied: no valid token, or the role is missing",
    Code.CUT: "`query --require-complete`, and the answer was cut",
    Code.FAULT: "internal error of the program or the service",
    Code.INTERRUPTED: "interrupted with Ctrl-C",
}


def code_of(problem: BaseException) -> Code:
    """The exit code for an error."""
    if isinstance(problem, Unavailable | DeadlineExceeded | StorageFull | StorageUnavailable):
        return Code.UNAVAILABLE
    if isinstance(problem, LimitReached) and problem.retry_seconds is not None:
        return Code.UNAVAILABLE
    if isinstance(problem, Unauthenticated | Forbidden):
        return Code.DENIED
    if isinstance(problem, BadSettings | StoreInUse | NewerFormat | NotAStore):
        return Code.USAGE
    if isinstance(problem, InternalError) or not isinstance(problem, PromisingError | OSError):
        return Code.FAULT
    return Code.REQUEST


def advice(problem: BaseException, target: str) -> str:
    """What to do next, if known."""
    if isinstance(problem, Unavailable):
        if " speaks " in str(problem):  # the sentence itself says what to give
            return ""
        if "SSL" in str(problem).upper() or "handshake" in str(problem):
            return "Does the service speak TLS, and with a certificate that --ca trusts?"
        return "Start one with `promising serve`, or name the one you mean with --target HOST:PORT."
    if isinstance(problem, DeadlineExceeded):
        return "Give it more time: --timeout 60s."
    if isinstance(problem, Unauthenticated):
        return "Give a token: --token-file FILE, or PROMISING_TOKEN. `promising token create` makes one."
    if isinstance(problem, Forbidden):
        return "Use a token with that role; `promising token create` makes one."
    if isinstance(problem, LimitReached) and problem.retry_seconds is not None:
        return f"Try again in {problem.retry_seconds:g} s."
    if isinstance(problem, DataDamaged):
        return "`promising verify DATA` lists all damage, `promising repair DATA` retains what can be read."
    return ""


def _unreachable(told: str) -> tuple[str, str]:
    """The reason of a failed connection without gRPC's wording, and what followed it; empty for other errors.

    >>> _unreachable("cannot reach the service at a:1: failed to connect to all addresses; last error: UNKNOWN: "
    ... "ipv4:127.0.0.1:1: Failed to connect to remote host: Connection refused")
    ('Connection refused', '')
    >>> _unreachable("cannot reach the service at a:1: last error: UNKNOWN: timeout. Nothing was done")
    ('timeout', '. Nothing was done')
    """
    if not told.startswith("cannot reach the service"):
        return "", ""
    last = told.rpartition("last error: ")[2].partition("\n")[0]
    reason = last.removesuffix(".").rpartition("remote host: ")[2].removeprefix("UNKNOWN: ")
    why = reason.partition(". ")[0]
    return why, reason[len(why) :]


def tell(problem: BaseException, target: str) -> Code:
    """Print an error to stderr; returns the exit code. PROMISING_DEBUG=1 adds the traceback."""
    code = code_of(problem)
    if os.environ.get("PROMISING_DEBUG") == "1":
        complain("".join(traceback.format_exception(problem)))
    if isinstance(problem, Unavailable) and (reason := _unreachable(str(problem)))[0]:
        said = f"no service at {target} ({reason[0]}){reason[1]}"
    elif isinstance(problem, PromisingError):
        said = str(problem)
    elif isinstance(problem, OSError):
        said = f"{problem.filename}: {problem.strerror}" if problem.filename else str(problem)
    else:
        said = f"a fault in promising, {type(problem).__name__}: {problem}\nPROMISING_DEBUG=1 shows where."
    complain(f"error: {clean(said)}")
    if more := advice(problem, target):
        complain(more)
    return code
