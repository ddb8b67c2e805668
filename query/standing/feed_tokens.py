"""Subscription tokens: the query and the subscriber's position in it."""

import base64
import binascii
import json

from promising.errors import BadToken
from promising.query.standing.views import Seen


def token_head(epoch: str, number: str) -> str:
    """The prefix of a token. Padded to a multiple of 3 bytes, so base64 parts concatenate; JSON ignores the spaces."""
    made = json.dumps([epoch, number], separators=(",", ":"))[:-1].encode() + b","
    return base64.urlsafe_b64encode(made + b" " * (-len(made) % 3)).decode()


def token_progress(seen: Seen) -> str:
    """The rest of a token: the subscriber's position."""
    made = json.dumps([seen.tick, seen.now, seen.positions], separators=(",", ":"))[1:]
    return base64.urlsafe_b64encode(made.encode()).decode()


def read_token(token: str) -> tuple[str, str, Seen]:
    try:
        epoch, number, tick, now, positions = json.loads(base64.urlsafe_b64decode(token.encode()))
        return epoch, number, Seen(int(tick), int(now), {str(k): int(v) for k, v in positions.items()})
    except (ValueError, TypeError, AttributeError, OverflowError, RecursionError, binascii.Error):
        raise BadToken(f"this is no token of a subscription: {token[:40]!r}") from None
