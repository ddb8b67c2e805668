"""TLS files are checked at the start, and what is wrong is named by its setting."""

import grpc
import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from promising.errors import BadSettings
from promising.server.tls import is_loopback, server_credentials
from promising.settings import Settings, Tls
from tests.promising.server.certificates import DAY, Authority, private_pem


def made(**tls):
    return server_credentials(Settings(tls=Tls(**tls)))


@pytest.mark.parametrize(
    ("listen", "alone"),
    [
        ("127.0.0.1:1", True),
        ("127.8.9.10:1", True),
        ("[::1]:1", True),
        ("localhost:1", True),
        ("0.0.0.0:1", False),
        ("[::]:1", False),
        ("10.0.0.1:1", False),
        ("example.org:1", False),
        ("localhost.example.org:1", False),
    ],
)
def test_what_is_loopback(listen, alone):
    assert is_loopback(listen) is alone


def test_without_tls_there_are_no_credentials():
    assert made() is None


def test_good_files_make_credentials(tmp_path):
    authority = Authority(tmp_path)
    pair = authority.server()
    assert isinstance(made(certificate=pair.certificate, key=pair.key), grpc.ServerCredentials)
    both = made(certificate=pair.certificate, key=pair.key, client_ca=authority.certificate)
    assert isinstance(both, grpc.ServerCredentials)


def test_a_chain_of_certificates_is_taken(tmp_path):
    authority = Authority(tmp_path)
    pair = authority.server()
    pair.certificate.write_bytes(pair.certificate.read_bytes() + authority.certificate.read_bytes())
    assert made(certificate=pair.certificate, key=pair.key) is not None


@pytest.mark.parametrize("setting", ["certificate", "key", "client_ca"])
@pytest.mark.parametrize("what", ["missing", "folder", "text", "empty"])
def test_a_bad_file_is_named_by_its_setting(tmp_path, setting, what):
    authority = Authority(tmp_path)
    pair = authority.server()
    files = {"certificate": pair.certificate, "key": pair.key, "client_ca": authority.certificate}
    files[setting] = tmp_path / "bad"
    if what == "folder":
        files[setting].mkdir()
    elif what != "missing":
        files[setting].write_text("no PEM at all" if what == "text" else "", encoding="utf-8")
    with pytest.raises(BadSettings, match=rf"^tls\.{setting}: .*bad"):
        made(**files)


def test_the_key_of_another_certificate_is_refused(tmp_path):
    authority = Authority(tmp_path)
    with pytest.raises(BadSettings, match=r"tls\.key: .* is not the key of tls\.certificate"):
        made(certificate=authority.server().certificate, key=authority.server("other").key)


def test_an_encrypted_key_is_refused_without_asking_for_its_password(tmp_path):
    pair = Authority(tmp_path).server()
    pair.key.write_bytes(private_pem(ec.generate_private_key(ec.SECP256R1()), b"password"))
    with pytest.raises(BadSettings, match=r"tls\.key: .* is encrypted"):
        made(certificate=pair.certificate, key=pair.key)


def test_a_certificate_out_of_its_time_is_refused(tmp_path):
    authority = Authority(tmp_path)
    old, young = authority.expired_server(), authority.server("young", since=DAY, until=2 * DAY)
    with pytest.raises(BadSettings, match=r"tls\.certificate: .*expired"):
        made(certificate=old.certificate, key=old.key)
    with pytest.raises(BadSettings, match=r"tls\.certificate: .*not yet valid"):
        made(certificate=young.certificate, key=young.key)
