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
HANDSHAKE = 1.0  # seconds
KEEPALIVE = 30_000  # milliseconds of silence before a keepalive ping
TOKEN, CA = "PROMISING_TOKEN", "PROMISING_CA"  # environment variables for arguments that are not given
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
            if self.credentials is not None and "WRONG_VERSION_NUMBER" in str(found):
                return Unavailable(
                    f"the service at {self.address} speaks plain text, not TLS: leave out ca, certificate and grpcs://"
                    f" (--ca, --certificate, {CA})"
                )
            if self.credentials is None and "Socket closed" in str(found) and speaks_tls(self.address):
                return Unavailable(
                    f"the service at {self.address} speaks TLS: give the CA of its certificate (ca, --ca FILE or {CA}),"
                    f" or the target grpcs://{self.address} if the system trusts it"
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
    certificate must be trusted by the system. `PROMISING_TOKEN` and `PROMISING_CA` stand for a token and a CA that are
    not given; a target that begins with grpc:// ignores the latter.
    """
    scheme, mark, address = target.rpartition("://")
    token = (os.environ.get(TOKEN) or None) if token is None else token
    if ca is None and scheme != "grpc":
        ca = os.environ.get(CA) or None
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


def speaks_tls(address: str) -> bool:
    """Whether a TLS handshake succeeds there, whatever the certificate; waits `HANDSHAKE` seconds at most."""
    host, _, port = address.rpartition(":")
    anyone = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    anyone.check_hostname, anyone.verify_mode = False, ssl.CERT_NONE
    anyone.set_alpn_protocols(["h2"])
    try:
        with (
            socket.create_connection((host.strip("[]"), int(port)), HANDSHAKE) as plain,
            anyone.wrap_socket(plain),
        ):
            return True
    except ssl.SSLError as problem:
        return problem.reason not in ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE")  # it wants a client certificate
    except (OSError, ValueError):
        return False


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
