"""Settings: where they come from, which source wins, what is refused, and the page that lists them."""

import re
from pathlib import Path

import pytest
from pydantic import Secret, ValidationError

from promising.errors import BadSettings
from promising.settings import Auth, Limits, Settings, Tls, address, check_safe, fields, shown, sources, variable

PAGE = Path(__file__).resolve().parents[3] / "docs" / "reference" / "configuration.md"


@pytest.fixture(autouse=True)
def alone(monkeypatch, tmp_path):
    """An empty working directory and an environment without settings."""
    monkeypatch.chdir(tmp_path)
    for name in [*map(variable, (name for name, _ in fields())), "PROMISING_CONFIG"]:
        monkeypatch.delenv(name, raising=False)


def file(text: str, name: str = "some.toml") -> Path:
    path = Path(name)
    path.write_text(text, encoding="utf-8")
    return path


# --- sources -----------------------------------------------------------------------------------------------------


def test_flags_go_before_environment_before_file_before_defaults(monkeypatch):
    monkeypatch.setenv("PROMISING_LIMITS__MAX_ROWS", "2")
    monkeypatch.setenv("PROMISING_LIMITS__MAX_KEYS", "2")
    path = file("[limits]\nmax_rows = 3\nmax_keys = 3\nmax_queries = 3")
    found = Settings.load(path, {"limits.max_rows": 1}).limits
    assert (found.max_rows, found.max_keys, found.max_queries, found.max_statements) == (1, 2, 3, 1000)
    told = sources(path, {"limits.max_rows": 1})
    names = ("limits.max_rows", "limits.max_keys", "limits.max_queries", "limits.max_statements")
    assert [told[name] for name in names] == ["flag", "environment", "file some.toml", "default"]


def test_the_file_is_the_one_named_or_the_one_of_the_environment_or_the_one_here(monkeypatch):
    file("drain_seconds = 1", "promising.toml")
    assert Settings.load().drain_seconds == 1
    monkeypatch.setenv("PROMISING_CONFIG", str(file("drain_seconds = 2", "two.toml")))
    assert Settings.load().drain_seconds == 2
    assert Settings.load(file("drain_seconds = 3", "three.toml")).drain_seconds == 3


def test_every_setting_can_come_from_the_environment(monkeypatch):
    odd = {"listen": "127.0.0.1:1", "metrics_listen": "[::1]:2", "log_level": "DEBUG", "tls.client_role": "ingest"}
    odd |= {"storage.sync": "Relaxed", "storage.cold": "memory://x", "load_paths": "/a,s3://b"}
    defaults = shown(Settings())
    for name, _ in fields():
        default = defaults[name]
        text = odd.get(name) or {"true": "false", "false": "true", "": "7"}.get(default) or str(float(default) + 1)
        monkeypatch.setenv(variable(name), text.removesuffix(".0"))
    found = shown(Settings.load())
    assert [name for name in found if found[name] == defaults[name]] == []
    assert found["log_level"] == "debug"


def test_several_places_stand_in_a_list_or_with_commas_between_them():
    path = file('load_paths = ["/data/staging", "s3://lake/in"]')
    assert Settings.load(path).load_paths == ("/data/staging", "s3://lake/in")
    assert Settings.load(path, {"load_paths": "/a, s3://me:secret@b"}).load_paths == ("/a", "s3://me:secret@b")
    assert shown(Settings(load_paths=("/a", "s3://me:secret@b")))["load_paths"] == "/a,s3://me:********@b"
    with pytest.raises(BadSettings, match=r"load_paths \(flag\): write a path from / on"):
        Settings.load(path, {"load_paths": "here"})


def test_flags_may_come_in_groups_and_not_at_all():
    found = Settings.load(None, {"auth": {"tokens": "a.db", "allow_plaintext": None}, "tls.key": None, "listen": None})
    assert found == Settings(auth=Auth(tokens=Path("a.db")))


def test_settings_alone_read_nothing(monkeypatch):
    monkeypatch.setenv("PROMISING_DRAIN_SECONDS", "99")
    file("drain_seconds = 98", "promising.toml")
    assert Settings().drain_seconds == 10
    assert Settings.load().drain_seconds == 99


def test_an_empty_variable_is_not_set(monkeypatch):
    monkeypatch.setenv("PROMISING_METRICS_LISTEN", "")
    assert Settings.load().metrics_listen is None


# --- what is refused ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("limits.max_rows", "many", "valid integer.*'many'"),
        ("limits.max_rows", 0, "greater than or equal to 1.*0"),
        ("limits.max_budget_seconds", float("nan"), "finite"),
        ("limits.max_message_bytes", 1 << 31, "less than or equal to"),
        ("drain_seconds", -1, "greater than or equal to 0"),
        ("log_level", "loud", "'debug', 'info', 'warning' or 'error'"),
        ("tls.client_role", "boss", "'admin', 'ingest' or 'query'"),
        ("listen", "50151", "write host:port"),
        ("listen", ":50151", "write host:port"),
        ("listen", "127.0.0.1:65536", "write host:port"),
        ("listen", "127.0.0.1:x", "write host:port"),
        ("listen", "::1:50151", "in brackets"),
        ("metrics_listen", "nowhere", "write host:port"),
        ("reflection", "perhaps", "boolean"),
        ("storage.sync", "never", "'always' or 'relaxed'"),
        ("storage.cold", "/some/folder", "write a URL"),
        ("storage.segment_bytes", 5, "greater than or equal to 65536"),
        ("limits", 3, "dictionary"),
        ("lisen", "127.0.0.1:1", "no such setting; did you mean listen?"),
        ("limits.max_row", 1, "no such setting; did you mean limits.max_rows?"),
    ],
)
def test_a_bad_value_is_named_with_its_source(name, value, says):
    with pytest.raises(BadSettings, match=re.escape(name) + r" \(flag\): .*") as caught:
        Settings.load(None, {name: value})
    assert re.search(says, str(caught.value))


def test_the_source_that_won_is_the_one_named(monkeypatch):
    path = file("[limits]\nmax_rows = -3")
    with pytest.raises(BadSettings, match=r"^limits\.max_rows \(file some\.toml\): "):
        Settings.load(path)
    monkeypatch.setenv("PROMISING_LIMITS__MAX_ROWS", "-2")
    with pytest.raises(BadSettings, match=r"^limits\.max_rows \(environment, PROMISING_LIMITS__MAX_ROWS\): .*'-2'"):
        Settings.load(path)
    assert Settings.load(path, {"limits.max_rows": 1}).limits.max_rows == 1


def test_all_that_is_wrong_is_told_at_once():
    with pytest.raises(BadSettings) as caught:
        Settings.load(None, {"limits.max_rows": 0, "listen": "x", "seed": -1})
    assert [line.split(" ")[0] for line in str(caught.value).splitlines()] == ["listen", "seed", "limits.max_rows"]


def test_one_underscore_too_few_is_not_passed_over(monkeypatch):
    monkeypatch.setenv("PROMISING_AUTH_TOKENS", "tokens.db")
    with pytest.raises(BadSettings, match=r"PROMISING_AUTH_TOKENS .*PROMISING_AUTH__TOKENS"):
        Settings.load()


@pytest.mark.parametrize("text", ["listen = ", "\x00", "[limits", "listen = 'a'\nlisten = 'b'"])
def test_a_file_that_is_no_toml_is_named(text):
    with pytest.raises(BadSettings, match=r"^some\.toml: no TOML: "):
        Settings.load(file(text))


def test_a_file_that_is_not_there_is_named_wherever_it_was_asked_for(monkeypatch):
    with pytest.raises(BadSettings, match=r"^none\.toml: .*No such file"):
        Settings.load(Path("none.toml"))
    monkeypatch.setenv("PROMISING_CONFIG", "none.toml")
    with pytest.raises(BadSettings, match=r"^none\.toml: .*No such file"):
        Settings.load()
    Path("odd.toml").write_bytes(b"listen = '\xff'")
    with pytest.raises(BadSettings, match=r"^odd\.toml: no TOML"):
        Settings.load(Path("odd.toml"))


def test_settings_do_not_change():
    with pytest.raises(ValidationError, match="frozen"):
        Settings().listen = "127.0.0.1:1"
    with pytest.raises(ValidationError, match="frozen"):
        Settings().limits.max_rows = 1


# --- secrets -----------------------------------------------------------------------------------------------------


def test_the_seed_is_never_shown():
    settings = Settings.load(None, {"seed": "123456789"})
    assert settings.seed is not None
    assert settings.seed.get_secret_value() == 123456789
    assert shown(settings)["seed"] == "********"
    assert "123456789" not in f"{settings!r} {settings} {shown(settings)} {settings.model_dump_json()}"
    assert Settings(seed=Secret(7)).seed == Secret(7)


def test_a_password_in_a_url_is_never_shown():
    settings = Settings.load(None, {"storage.cold": "sftp://me:hunter2@host/data"})
    assert settings.storage.cold == "sftp://me:hunter2@host/data"
    assert shown(settings)["storage.cold"] == "sftp://me:********@host/data"


@pytest.mark.parametrize("seed", ["hunter2", "-4711", "9" * 20])
def test_a_bad_seed_is_refused_without_telling_it(monkeypatch, seed):
    monkeypatch.setenv("PROMISING_SEED", seed)
    with pytest.raises(BadSettings, match=r"^seed \(environment, PROMISING_SEED\): ") as caught:
        Settings.load()
    assert seed not in str(caught.value)


# --- safe together -----------------------------------------------------------------------------------------------

CERTIFICATE, KEY, AUTHORITY, TOKENS = Path("c.pem"), Path("k.pem"), Path("ca.pem"), Path("t.db")
ENCRYPTED = Tls(certificate=CERTIFICATE, key=KEY)
MUTUAL = Tls(certificate=CERTIFICATE, key=KEY, client_ca=AUTHORITY)
EVERYWHERE = "0.0.0.0:50151"


@pytest.mark.parametrize(
    "settings",
    [
        Settings(),
        Settings(listen="[::1]:0"),
        Settings(auth=Auth(tokens=TOKENS)),
        Settings(listen=EVERYWHERE, auth=Auth(tokens=TOKENS), tls=ENCRYPTED),
        Settings(listen=EVERYWHERE, auth=Auth(tokens=TOKENS, allow_plaintext=True)),
        Settings(listen=EVERYWHERE, tls=MUTUAL),
        Settings(metrics_listen="127.0.0.1:9464"),
        Settings(metrics_listen=EVERYWHERE, auth=Auth(anonymous_metrics=True)),
        Settings(metrics_listen=EVERYWHERE, auth=Auth(tokens=TOKENS), tls=ENCRYPTED),
        Settings(metrics_listen=EVERYWHERE, auth=Auth(tokens=TOKENS, allow_plaintext=True)),
        Settings(metrics_listen=EVERYWHERE, tls=MUTUAL),
    ],
)
def test_what_is_safe_passes(settings):
    check_safe(settings)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (Settings(listen=EVERYWHERE), "nobody is asked"),
        (Settings(listen="[::]:50151"), "nobody is asked"),
        (Settings(listen="example.org:50151"), "nobody is asked"),
        (Settings(listen=EVERYWHERE, tls=ENCRYPTED), "nobody is asked"),
        (Settings(listen=EVERYWHERE, auth=Auth(allow_plaintext=True)), "nobody is asked"),
        (Settings(listen=EVERYWHERE, auth=Auth(tokens=TOKENS)), "plain text"),
        (Settings(metrics_listen=EVERYWHERE), r"^metrics_listen is .*nobody is asked.* 127\.0\.0\.1:9464"),
        (Settings(metrics_listen=EVERYWHERE, tls=ENCRYPTED), r"nobody is asked.*auth\.anonymous_metrics"),
        (Settings(metrics_listen=EVERYWHERE, auth=Auth(tokens=TOKENS)), r"^metrics_listen is .*plain text"),
        (Settings(listen=EVERYWHERE, auth=Auth(anonymous_metrics=True)), "^listen is .*nobody is asked"),
        (Settings(tls=Tls(certificate=CERTIFICATE)), r"tls\.key is not"),
        (Settings(tls=Tls(key=KEY)), r"tls\.certificate is not"),
        (Settings(tls=Tls(client_ca=AUTHORITY)), r"tls\.certificate is not"),
        (
            Settings(listen=EVERYWHERE, tls=Tls(client_ca=AUTHORITY), auth=Auth(tokens=TOKENS)),
            r"tls\.certificate is not",
        ),
    ],
)
def test_what_is_unsafe_is_refused(settings, says):
    with pytest.raises(BadSettings, match=says):
        check_safe(settings)


def test_addresses():
    assert address("[::]:0") == ("::", 0)
    assert address("host.example:65535") == ("host.example", 65535)


# --- the page ----------------------------------------------------------------------------------------------------


def test_the_page_lists_every_setting_and_no_other():
    text = PAGE.read_text(encoding="utf-8")
    assert f"such as `{variable('limits.max_rows')}` for `limits.max_rows`" in " ".join(text.split())
    rows = re.findall(r"^`([\w.]+)` \| (.*?) ?\| (.*?)$", text, re.M)
    defaults = shown(Settings())
    expected = [(name, f"`{defaults[name]}`" if defaults[name] else "", field.description) for name, field in fields()]
    assert rows == expected


def test_the_example_on_the_page_is_a_good_file():
    (text,) = re.findall(r"```toml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.S)
    found = Settings.load(file(text))
    check_safe(found)
    assert found.limits == Limits(max_queries=200, max_budget_seconds=10)


def test_every_group_is_told_of():
    assert {name.partition(".")[0] for name, _ in fields()} == set(Settings.model_fields)
