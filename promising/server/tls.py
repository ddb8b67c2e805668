"""TLS credentials of the server, checked at the start."""

import ssl
from pathlib import Path

import grpc

from promising.errors import BadSettings
from promising.settings import Settings, is_loopback

__all__ = ["is_loopback", "server_credentials"]

NOT_YET_VALID, EXPIRED = 9, 10  # OpenSSL's X509_V_ERR_CERT_NOT_YET_VALID and X509_V_ERR_CERT_HAS_EXPIRED
ROUNDS = 8  # of a handshake with oneself; three are enough


def server_credentials(settings: Settings) -> grpc.ServerCredentials | None:
    """The credentials of the server; None without TLS.

    With `tls.client_ca`, a client without a certificate of one of these CAs is refused in the handshake. Files that are
    missing, not PEM, do not match, or hold a certificate outside its validity raise BadSettings.
    """
    tls = settings.tls
    if tls.certificate is None or tls.key is None:
        return None
    certificate, key = _read("tls.certificate", tls.certificate), _read("tls.key", tls.key)
    _check_pair(tls.certificate, tls.key)
    authorities = None
    if tls.client_ca is not None:
        authorities = _read("tls.client_ca", tls.client_ca)
        _check_authorities(tls.client_ca)
    return grpc.ssl_server_credentials([(key, certificate)], authorities, require_client_auth=authorities is not None)


def _read(setting: str, path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as problem:
        raise BadSettings(f"{setting}: {path} cannot be read: {problem.strerror}") from None


def _check_pair(certificate: Path, key: Path) -> None:
    """Load both, then do a local handshake: the standard library checks a certificate's dates in no other way."""
    trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    trusting.check_hostname = False
    trusting.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # the certificate itself may be the trust anchor
    try:
        trusting.load_verify_locations(certificate)
    except ssl.SSLError:
        raise BadSettings(f"tls.certificate: {certificate} holds no certificate in PEM form") from None
    own = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        own.load_cert_chain(certificate, key, password=_no_password)
    except _Encrypted:
        raise BadSettings(f"tls.key: {key} is encrypted; give one that is not, readable by the service alone") from None
    except ssl.SSLError as problem:
        wrong = "is not the key of tls.certificate" if problem.reason == "KEY_VALUES_MISMATCH" else "holds no PEM key"
        raise BadSettings(f"tls.key: {key} {wrong}") from None
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = trusting.wrap_bio(back, there), own.wrap_bio(there, back, server_side=True)
    for side in sides * ROUNDS:
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            continue
        except ssl.SSLCertVerificationError as problem:
            if problem.verify_code in (NOT_YET_VALID, EXPIRED):
                raise BadSettings(f"tls.certificate: {certificate}: {problem.verify_message}") from None
            return


def _check_authorities(path: Path) -> None:
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_verify_locations(path)
    except ssl.SSLError:
        raise BadSettings(f"tls.client_ca: {path} holds no certificate in PEM form") from None


class _Encrypted(Exception):
    pass


def _no_password() -> str:
    # Without this OpenSSL prompts at the terminal.
    raise _Encrypted
