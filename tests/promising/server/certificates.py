"""Certificates for tests: an authority, servers and clients of it, some of them out of their time."""

import ipaddress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

DAY = timedelta(days=1)


@dataclass(frozen=True)
class Pair:
    """The PEM files of a certificate and its key."""

    certificate: Path
    key: Path


class Authority:
    """Signs certificates into a folder. Two of them do not know each other."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        limits = x509.BasicConstraints(ca=True, path_length=0)
        built = self._builder(self._name, self._key, -DAY, DAY).add_extension(limits, critical=True)
        self.certificate = folder / f"{name}.pem"
        self.certificate.write_bytes(built.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))

    def server(self, name: str = "server", *, since: timedelta = -DAY, until: timedelta = DAY) -> Pair:
        """For localhost and 127.0.0.1, in force from `since` to `until`, seen from now."""
        return self._signed(name, ExtendedKeyUsageOID.SERVER_AUTH, since, until)

    def client(self, name: str = "client", *, since: timedelta = -DAY, until: timedelta = DAY) -> Pair:
        """With `name` as common name."""
        return self._signed(name, ExtendedKeyUsageOID.CLIENT_AUTH, since, until)

    def expired_server(self) -> Pair:
        """In force until yesterday."""
        return self.server("expired-server", since=-3 * DAY, until=-DAY)

    def expired_client(self) -> Pair:
        """In force until yesterday."""
        return self.client("expired-client", since=-3 * DAY, until=-DAY)

    def _signed(self, name: str, use: x509.ObjectIdentifier, since: timedelta, until: timedelta) -> Pair:
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)] if name else [])
        hosts = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.IPv4Address("127.0.0.1"))]
        built = (
            self._builder(subject, key, since, until)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.ExtendedKeyUsage([use]), critical=False)
            .add_extension(x509.SubjectAlternativeName(hosts), critical=False)
        )
        pair = Pair(self._folder / f"{name or 'nameless'}.pem", self._folder / f"{name or 'nameless'}.key")
        pair.certificate.write_bytes(built.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
        pair.key.write_bytes(private_pem(key))
        return pair

    def _builder(
        self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, since: timedelta, until: timedelta
    ) -> x509.CertificateBuilder:
        now = datetime.now(UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now + since)
            .not_valid_after(now + until)
        )


def private_pem(key: ec.EllipticCurvePrivateKey, password: bytes | None = None) -> bytes:
    """A key in PEM form, encrypted if there is a password."""
    hidden = serialization.NoEncryption() if password is None else serialization.BestAvailableEncryption(password)
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, hidden)
