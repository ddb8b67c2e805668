"""How to reach a service: address, TLS, token, message sizes."""

import os
import socket
import ssl
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

import grpc

from promising import wire_errors
from promising.errors import BadSettings, PromisingError, Unavailable

DEFAULT_TARGET = "127.0.0.1:50151"
SENT = 16 << 20  # default limit of the service for a message, in bytes
MESSAGE = 1 << 26  # maximum bytes of a received message
PROBE = 1.0  # seconds for a TLS handshake that finds out what a port speaks
KEEPALIVE = 30_000  # milliseconds of silence before a keepalive ping
FilePath = str | PathLike[str]

Metadata = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Place:
    """The endpoint of a service.

    `credentials` are for TLS, None for plain text; `metadata` is sent with every call; `sent` is the maximum size of a
    sent message in bytes.
    """

    address: str
    credentials: grpc.ChannelCredentials | None
    metadata: Metadata
    sent: int

    @property
    def options(self) -> list[tuple[str, int]]:
        return [
            ("grpc.max_send_message_length", -1),  # the service refuses messages that are too large, with a reason
            ("grpc.max_receive_message_length", max(MESSAGE, self.sent)),
            ("grpc.initial_reconnect_backoff_ms", 100),
            ("grpc.min_reconnect_backoff_ms", 5000),  # in effect the timeout of one attempt to connect
            ("grpc.max_reconnect_backoff_ms", 1000),  # less than the pause between tries of a call
            # A client that only reads would not notice a dead peer.
            ("grpc.keepalive_time_ms", KEEPALIVE),
            ("grpc.keepalive_timeout_ms", KEEPALIVE // 3),
            ("grpc.http2.max_pings_without_data", 0),
        ]

    def problem(self, error: grpc.RpcError) -> PromisingError:
        """The error of a call. One that gRPC raised itself names the target."""
        found = wire_errors.from_rpc_error(error)
        if type(found) is Unavailable and not wire_errors.was_told(error):
            if self.credentials is None and "refused" not in str(found) and _speaks_tls(self.address):
                return Unavailable(
                    f"the port {self.address} speaks TLS, and was addressed without it; give the CA of its certificate"
                    f" (ca, --ca FILE or PROMISING_CA), or grpcs://{self.address} as the target"
                )
            if self.credentials is not None and "WRONG_VERSION_NUMBER" in str(found):
                return Unavailable(
                    f"the port {self.address} does not speak TLS, and was addressed with it; leave out ca, certificate,"
                    " PROMISING_CA and grpcs://, or enable TLS in the service"
                )
            return Unavailable(f"cannot reach the service at {self.address}: {found}")
        return found


def place(
    target: str,
    *,
    token: str | None,
    ca: FilePath | None,
    certificate: FilePath | None,
    key: FilePath | None,
    max_message_bytes: int,
) -> Place:
    """The endpoint for the arguments of `connect`.

    TLS is used if the target begins with grpcs:// or if `ca` or `certificate` is given. Without `ca` the service's
    certificate must be trusted by the system. PROMISING_TOKEN and PROMISING_CA are used where the argument is None;
    a target that begins with grpc:// has no CA.
    """
    scheme, mark, address = target.rpartition("://")
    token = os.environ.get("PROMISING_TOKEN") or None if token is None else token
    ca = os.environ.get("PROMISING_CA") or None if ca is None and scheme != "grpc" else ca
    if mark and scheme not in ("grpc", "grpcs"):
        raise BadSettings(f"target {target!r}: host:port, grpc://host:port or grpcs://host:port is wanted")
    if not address:
        raise BadSettings("the target is empty; host:port is wanted")
    if (certificate is None) != (key is None):
        raise BadSettings("certificate and key go together; one of them is missing")
    secure = scheme == "grpcs" or ca is not None or certificate is not None
    if secure and scheme == "grpc":
        raise BadSettings(f"target {target!r} asks for plain text, but ca or certificate is given")
    if max_message_bytes < 1 << 16:
        raise BadSettings(f"max_message_bytes must be at least {1 << 16:,}, not {max_message_bytes:,}")
    credentials = None
    if secure:
        credentials = grpc.ssl_channel_credentials(
            _read("ca", ca), _read("key", key) or None, _read("certificate", certificate) or None
        )
    metadata = () if token is None else (("authorization", f"Bearer {_checked(token)}"),)
    return Place(address, credentials, metadata, max_message_bytes)


def _speaks_tls(address: str) -> bool:
    """Whether a TLS handshake succeeds; no certificate is checked, and nothing is sent."""
    host, _, port = address.rpartition(":")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    try:
        with socket.create_connection((host.strip("[]"), int(port)), PROBE) as plain, context.wrap_socket(plain):
            return True
    except (OSError, ValueError):
        return False


def check_wait(wait: float) -> float:
    """Seconds to wait for a service."""
    if isinstance(wait, bool) or not isinstance(wait, int | float) or not 0 <= wait < float("inf"):
        raise BadSettings(f"wait is a number of seconds from 0 on, not {wait!r}")
    return wait


def _checked(token: str) -> str:
    if not token or not token.isascii() or not token.isprintable():
        raise BadSettings("the token is empty or has characters that no token has")
    return token


def _read(what: str, path: FilePath | None) -> bytes | None:
    if path is None:
        return None
    try:
        return Path(path).read_bytes()
    except OSError as problem:
        raise BadSettings(f"{what}: cannot read {str(path)!r}: {problem.strerror}") from None
