"""Subscription tokens: the query and the subscriber's position in it.

Checksums detect damage, which would otherwise be another position; who makes up a token misleads only itself.
"""

import base64
import json
from typing import Any
from zlib import crc32

from promising.errors import BadToken
from promising.query.standing.views import Seen

MOST = (1 << 63) - 1  # of every number


def token_head(epoch: str, number: str) -> str:
    """The prefix of a token. Padded to a multiple of 3 bytes, so base64 parts concatenate; JSON ignores the spaces."""
    made = _summed([epoch, number])[:-1] + b","
    return base64.urlsafe_b64encode(made + b" " * (-len(made) % 3)).decode()


def token_progress(seen: Seen) -> str:
    """The rest of a token: the subscriber's position."""
    return base64.urlsafe_b64encode(_summed([seen.tick, seen.now, seen.positions])[1:]).decode()


def read_token(token: str) -> tuple[str, str, Seen]:
    try:
        epoch, number, _, tick, now, positions, _ = json.loads(base64.urlsafe_b64decode(token.encode()))
        seen = Seen(tick, now, dict(positions))
        whole = token == token_head(epoch, number) + token_progress(seen)
    except (ValueError, TypeError, RecursionError):
        whole = False
    if not whole or not all(_is_number(value) for value in (tick, now, *positions.values())):
        raise BadToken(f"this is no token of a subscription: {token[:40]!r}")
    return epoch, number, seen


def _summed(fields: list[Any]) -> bytes:
    """The fields and their checksum, as JSON."""
    made = json.dumps(fields, separators=(",", ":")).encode()
    return made[:-1] + b",%d]" % crc32(made)


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and -MOST <= value <= MOST
