"""Settings of the service: from a file, the environment and flags, validated."""

import difflib
import ipaddress
import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, Secret, ValidationError
from pydantic.fields import FieldInfo
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
)

from promising.errors import BadSettings

PREFIX = "PROMISING_"
CONFIG = "PROMISING_CONFIG"
DEFAULT_FILE = Path("promising.toml")
HIDDEN = "********"

Role = Literal["admin", "ingest", "query"]


def address(listen: str) -> tuple[str, int]:
    """Host and port of "host:port"; an IPv6 host is in brackets.

    >>> address("127.0.0.1:50151"), address("[::1]:0")
    (('127.0.0.1', 50151), ('::1', 0))
    """
    host, colon, port = listen.rpartition(":")
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if not colon or not bare or not (port.isascii() and port.isdigit()) or int(port) > 65535:
        raise ValueError("write host:port, 127.0.0.1:50151 say; an IPv6 host in brackets; port 0 picks a free one")
    if bare == host and ":" in host:
        raise ValueError("an IPv6 host stands in brackets: [::1]:50151")
    return bare, int(port)


def is_loopback(listen: str) -> bool:
    """Whether only this machine can reach the address. A name other than localhost counts as public."""
    host, _ = address(listen)
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _listen(value: str) -> str:
    address(value)
    return value


def _url(value: str) -> str:
    if not re.match(r"[a-z][a-z0-9+.-]*://.", value):
        raise ValueError("write a URL, such as s3://bucket/folder")
    return value


def _places(value: object) -> object:
    """Several places in one text, as in the environment, are separated by commas."""
    return [part.strip() for part in value.split(",")] if isinstance(value, str) else value


def _place(value: str) -> str:
    if not value.startswith("/") and not re.match(r"[a-z][a-z0-9+.-]*://.", value):
        raise ValueError("write a path from / on, or a URL, such as s3://bucket/folder")
    return value


def _lower(value: object) -> object:
    return value.lower() if isinstance(value, str) else value


Listen = Annotated[str, AfterValidator(_listen)]
Places = Annotated[tuple[Annotated[str, AfterValidator(_place)], ...], NoDecode, BeforeValidator(_places)]
LogLevel = Annotated[Literal["debug", "info", "warning", "error"], BeforeValidator(_lower)]


class _Group(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Tls(_Group):
    """Encryption and client certificates."""

    certificate: Path | None = Field(default=None, description="PEM file of the server's certificate chain.")
    key: Path | None = Field(default=None, description="PEM file of its private key, unencrypted.")
    client_ca: Path | None = Field(
        default=None,
        description="PEM file of the CAs whose client certificates are accepted, and required.",
    )
    client_role: Role = Field(
        default="query", description="Role of a client certificate without a token: admin, ingest or query."
    )


class Auth(_Group):
    """Authentication."""

    tokens: Path | None = Field(
        default=None,
        description="SQLite file of tokens (`promising token create`). If set, every call needs a token.",
    )
    allow_plaintext: bool = Field(
        default=False, description="Accept tokens without TLS off loopback, behind a TLS-terminating proxy."
    )
    anonymous_metrics: bool = Field(default=False, description="Serve /metrics off loopback to everyone, without TLS.")


class Limits(_Group):
    """Resource limits."""

    max_message_bytes: int = Field(default=16 << 20, ge=1 << 10, le=1 << 30, description="Maximum message size.")
    max_batch_rows: int = Field(default=1 << 20, ge=1, description="Maximum rows per batch.")
    max_ingest_streams_per_client: int = Field(default=16, ge=1, description="Concurrent Ingest calls per client.")
    max_calls: int = Field(default=8192, ge=1, description="Concurrent calls of all kinds.")
    max_queries: int = Field(default=1024, ge=1, description="Concurrent queries.")
    max_queries_per_client: int = Field(default=256, ge=1, description="Concurrent queries per client.")
    max_budget_seconds: float = Field(
        default=60.0, gt=0, le=3600, description="Maximum and default CPU budget of a query."
    )
    max_deadline_seconds: float = Field(default=3600.0, gt=0, description="Maximum duration of a call.")
    max_sql_bytes: int = Field(default=1 << 16, ge=1, description="Maximum statement length.")
    max_sql_tokens: int = Field(
        default=1 << 12, ge=1, description="Maximum names, numbers and signs of a query; more are refused unparsed."
    )
    max_keys: int = Field(default=100_000, ge=1, description="Maximum keys per summary request.")
    max_statements: int = Field(default=1000, ge=1, description="Maximum statements per QueryBatch.")
    max_rows: int = Field(default=10_000_000, ge=1, description="Maximum rows of a Probe or QueryBatch.")
    max_subscriptions: int = Field(default=1024, ge=1, description="Concurrent Subscribe calls.")
    max_subscriptions_per_client: int = Field(default=64, ge=1, description="Concurrent Subscribe calls per client.")
    max_watches: int = Field(default=1024, ge=1, description="Concurrent health watches and reflection calls.")
    max_watches_per_client: int = Field(default=64, ge=1, description="The same per client, or address without token.")
    max_subscribed_queries: int = Field(default=10_000, ge=1, description="Maximum queries per Subscribe call.")
    max_table_bytes: int = Field(default=256 << 20, ge=1, description="Maximum bytes per LoadTable call.")
    slow_reader_seconds: float = Field(
        default=30.0, gt=0, description="A client that reads nothing for this long is disconnected."
    )
    memory_bytes: int = Field(
        default=0, ge=0, description="Tuples and postings in memory, all streams; 0: half of the machine's memory."
    )
    max_query_bytes: int = Field(
        default=0, ge=0, description="Memory of a query; 0: an eighth of `max_query_bytes_total`."
    )
    max_query_bytes_per_client: int = Field(
        default=0, ge=0, description="Memory of a client's queries and suspended answers; 0: half of the next."
    )
    max_query_bytes_total: int = Field(
        default=0, ge=0, description="Memory of all queries; 0: a quarter of the machine's memory."
    )
    max_connections: int = Field(default=4096, ge=1, description="Maximum connections.")
    idle_seconds: float = Field(default=600.0, gt=0, description="Idle time before a connection is closed.")
    workers: int = Field(
        default=0, ge=0, le=1024, description="Threads each for queries, batches and short calls; 0: one per core."
    )


class Storage(_Group):
    """Storage on disk, if `data` is set."""

    sync: Annotated[Literal["always", "relaxed"], BeforeValidator(_lower)] = Field(
        default="always",
        description="always: acknowledged data is on disk. relaxed: a machine crash may lose the last second.",
    )
    checkpoint_bytes: int = Field(
        default=32 << 20, ge=1 << 16, description="Log size per stream that triggers a checkpoint."
    )
    segment_bytes: int = Field(default=64 << 20, ge=1 << 16, description="Size of a log file.")
    hot_tuples: int = Field(
        default=1 << 22, ge=0, description="Tuples per stream in memory; older ones are read from disk."
    )
    cache_bytes: int = Field(
        default=256 << 20, ge=0, description="Cache for tuples read from disk, all streams together."
    )
    spill_bytes: int = Field(
        default=0,
        ge=0,
        description="Disk space for rows of queries that memory has no room for; 0: half of what is free at the start.",
    )
    producer_days: float = Field(
        default=7.0, gt=0, le=36_500, description="Days that the batches of a silent producer are remembered."
    )
    cold: Annotated[str, AfterValidator(_url)] | None = Field(
        default=None,
        description="fsspec URL for cold tuples; default: the data directory.",
    )


class Standing(_Group):
    """Continuous queries."""

    tick_seconds: float = Field(default=0.1, gt=0, le=60, description="Update interval of continuous queries.")
    cpu: float = Field(
        default=1.0,
        gt=0,
        description="CPU seconds per second for all of them; beyond it, queries with BUDGET or PREFERENCE defer work.",
    )
    silence_seconds: float = Field(
        default=1.0, gt=0, description="Idle time after which a stream advances by the clock, so that rows expire."
    )


class Settings(BaseSettings):
    """All settings of the service. `Settings()` has only the defaults; `Settings.load` reads file and environment."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        env_nested_delimiter="__",
        env_ignore_empty=True,
        extra="forbid",
        frozen=True,
        allow_inf_nan=False,
    )

    listen: Listen = Field(default="127.0.0.1:50151", description="Listen address, host:port; port 0 picks a free one.")
    metrics_listen: Listen | None = Field(
        default=None,
        description="HTTP address of /metrics, /-/ready and /-/healthy; off by default.",
    )
    data: Path | None = Field(
        default=None, description="Data directory, created if missing. Default: everything in memory."
    )
    seed: Secret[Annotated[int, Field(ge=0, lt=1 << 63)]] | None = Field(
        default=None, description="Secret of the key hash, below 2^63; random by default, stored with the data."
    )
    load_paths: Places = Field(
        default=(),
        description="Folders (paths or URLs) that packages may be attached from; any by default.",
    )
    reflection: bool = Field(default=True, description="Enable gRPC reflection.")
    log_level: LogLevel = Field(default="info", description="Minimum log level: debug, info, warning or error.")
    drain_seconds: float = Field(default=10.0, ge=0, description="Grace period for running calls after SIGTERM.")
    tls: Tls = Tls()
    auth: Auth = Auth()
    storage: Storage = Storage()
    standing: Standing = Standing()
    limits: Limits = Limits()

    GROUPS: ClassVar[dict[str, type[BaseModel]]] = {
        "tls": Tls,
        "auth": Auth,
        "storage": Storage,
        "standing": Standing,
        "limits": Limits,
    }

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Arguments only: `load` reads the other sources itself, to report the source of an invalid value."""
        return (init_settings,)

    @classmethod
    def load(cls, config: Path | None = None, overrides: Mapping[str, Any] | None = None) -> Self:
        """Settings from flags, environment and file, in that order of precedence, over the defaults.

        config: a TOML file; else the one in PROMISING_CONFIG; else promising.toml, if it exists.
        overrides: by name, "limits.max_rows" or in groups; None is a flag that was not given.
        """
        layers = _layers(config, overrides)
        merged: dict[str, Any] = {}
        for _, layer in reversed(layers):
            _merge(merged, layer)
        try:
            return cls(**merged)
        except ValidationError as problem:
            raise BadSettings("\n".join(_told(error, layers) for error in problem.errors())) from None


def fields() -> Iterator[tuple[str, FieldInfo]]:
    """Every setting, by its dotted name, in order."""
    for name, field in Settings.model_fields.items():
        if name in Settings.GROUPS:
            for inner, its in Settings.GROUPS[name].model_fields.items():
                yield f"{name}.{inner}", its
        else:
            yield name, field


def variable(name: str) -> str:
    """The environment variable of a setting.

    >>> variable("limits.max_rows")
    'PROMISING_LIMITS__MAX_ROWS'
    """
    return PREFIX + name.upper().replace(".", "__")


def sources(config: Path | None = None, overrides: Mapping[str, Any] | None = None) -> dict[str, str]:
    """The source of each setting, by its dotted name: flag, environment, a file or default."""
    layers = _layers(config, overrides)
    return {
        name: next((source for source, layer in layers if _holds(layer, name.split("."))), "default")
        for name, _ in fields()
    }


def shown(settings: Settings) -> dict[str, str]:
    """Every setting by its dotted name, as text; unset ones are empty, and secrets are masked."""
    told = {}
    for name, _ in fields():
        value: Any = settings
        for part in name.split("."):
            value = getattr(value, part)
        if isinstance(value, bool):
            told[name] = str(value).lower()
        elif isinstance(value, tuple):
            told[name] = ",".join(map(_covered, value))
        else:
            told[name] = "" if value is None else HIDDEN if isinstance(value, Secret) else _covered(str(value))
    return told


def _covered(text: str) -> str:
    """A text with the password of a URL masked.

    >>> _covered("sftp://me:secret@host/data"), _covered("s3://bucket")
    ('sftp://me:********@host/data', 's3://bucket')
    """
    return re.sub(r"(?<=://)([^/@:]*):[^/@]*@", rf"\1:{HIDDEN}@", text)


def check_safe(settings: Settings) -> None:
    """Raise BadSettings if the service would accept unauthenticated remote calls or scrapes, or unencrypted tokens."""
    tls, auth = settings.tls, settings.auth
    for given, needed in (("certificate", "key"), ("key", "certificate"), ("client_ca", "certificate")):
        if getattr(tls, given) is not None and getattr(tls, needed) is None:
            raise BadSettings(f"tls.{given} is set, but tls.{needed} is not: TLS needs both")
    doors = [("listen", settings.listen, "or listen on 127.0.0.1")]
    if settings.metrics_listen is not None and guards_metrics(settings):
        otherwise = "or metrics_listen to 127.0.0.1:9464; or auth.anonymous_metrics, if everyone there may read them"
        doors.append(("metrics_listen", settings.metrics_listen, otherwise))
    for name, listen, otherwise in doors:
        if is_loopback(listen):
            continue
        if auth.tokens is None and tls.client_ca is None:
            raise BadSettings(
                f"{name} is {listen}, which other machines can reach, but nobody is asked who they are. Set"
                f" auth.tokens (make a token with `promising token create`) or tls.client_ca, {otherwise}"
            )
        if tls.certificate is None and not auth.allow_plaintext:
            raise BadSettings(
                f"{name} is {listen}, which other machines can reach, but tokens would cross the network in plain"
                f" text. Set tls.certificate and tls.key, {otherwise}; or auth.allow_plaintext if a proxy in front"
                " ends TLS"
            )


def guards_metrics(settings: Settings) -> bool:
    """Whether /metrics asks callers who they are."""
    listen = settings.metrics_listen
    return listen is not None and not is_loopback(listen) and not settings.auth.anonymous_metrics


# --- sources -----------------------------------------------------------------------------------------------------


def _layers(config: Path | None, overrides: Mapping[str, Any] | None) -> list[tuple[str, dict[str, Any]]]:
    """The values of each source, in order of precedence."""
    path = config or (Path(os.environ[CONFIG]) if os.environ.get(CONFIG) else None)
    if path is None and DEFAULT_FILE.exists():
        path = DEFAULT_FILE
    layers = [("flag", _nested(overrides or {})), ("environment", _environment(Settings))]
    if path is not None:
        layers.append((f"file {path}", _read(path)))
    return layers


def _nested(flat: Mapping[str, Any]) -> dict[str, Any]:
    """Dotted names as groups; None is omitted."""
    found: dict[str, Any] = {}
    for name, value in flat.items():
        if value is None:
            continue
        *groups, last = name.split(".")
        into = found
        for group in groups:
            into = into.setdefault(group, {})
        _merge(into, {last: _nested(value) if isinstance(value, Mapping) else value})
    return found


def _merge(into: dict[str, Any], layer: Mapping[str, Any]) -> None:
    for name, value in layer.items():
        if isinstance(value, Mapping) and isinstance(into.get(name), dict):
            _merge(into[name], value)
        else:
            into[name] = dict(value) if isinstance(value, Mapping) else value


def _environment(kind: type[Settings]) -> dict[str, Any]:
    for group in Settings.GROUPS:
        for name in os.environ:
            start = f"{PREFIX}{group.upper()}_"
            if name.startswith(start) and not name.startswith(start + "_"):
                right = f"{start}_{name.removeprefix(start)}"
                raise BadSettings(f"{name} (environment): two underscores follow a group's name: {right}")
    try:
        return EnvSettingsSource(kind)()
    except SettingsError as problem:
        raise BadSettings(f"environment: {problem}") from None


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as problem:
        raise BadSettings(f"{path}: the settings cannot be read: {problem.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as problem:
        raise BadSettings(f"{path}: no TOML: {problem}") from None


def _told(error: Any, layers: list[tuple[str, dict[str, Any]]]) -> str:
    """One invalid setting: its name, its source, and the error."""
    names = [name for name, _ in fields()]
    # Beyond the name, pydantic lists branches of a type.
    place = [str(part) for part in error["loc"]]
    name = next((".".join(place[:n]) for n in (2, 1) if ".".join(place[:n]) in names), ".".join(place[:2]))
    source = next((source for source, layer in layers if _holds(layer, name.split("."))), "flag")
    if source == "environment":
        source = f"environment, {variable(name)}"
    if error["type"] == "extra_forbidden":
        near = difflib.get_close_matches(name, names, 1)
        return f"{name} ({source}): no such setting" + (f"; did you mean {near[0]}?" if near else "")
    message = error["msg"].removeprefix("Value error, ")
    given = "" if name == "seed" or isinstance(error["input"], Mapping) else f", not {error['input']!r}"
    return f"{name} ({source}): {message[0].lower()}{message[1:]}{given}"


def _holds(layer: Mapping[str, Any], place: list[str]) -> bool:
    inner: Any = layer
    for part in place:
        if not isinstance(inner, Mapping) or part not in inner:
            return False
        inner = inner[part]
    return True
