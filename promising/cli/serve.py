"""`serve`: run the service."""

import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from promising.cli.common_options import pairs, span
from promising.cli.context import state
from promising.cli.durations import seconds
from promising.cli.exit_codes import Code, tell

Config = Annotated[
    Path | None,
    typer.Option(
        envvar="PROMISING_CONFIG", metavar="FILE", help="Settings in TOML. Default: promising.toml, if it exists."
    ),
]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="Any setting, such as limits.max_queries=100; repeatable."),
]


def serve(
    ctx: typer.Context,
    config: Config = None,
    listen: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Listen address; port 0 picks a free one.")
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Data directory. Without it, all data is in memory."),
    ] = None,
    metrics_listen: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Listen address of /metrics over HTTP.")
    ] = None,
    tokens: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Require a token from this file (`promising token`).")
    ] = None,
    tls_certificate: Annotated[
        Path | None, typer.Option(metavar="FILE", help="TLS: server certificate and chain (PEM).")
    ] = None,
    tls_key: Annotated[Path | None, typer.Option(metavar="FILE", help="TLS: key of the certificate (PEM).")] = None,
    tls_client_ca: Annotated[
        Path | None, typer.Option(metavar="FILE", help="TLS: require a client certificate of these CAs (PEM).")
    ] = None,
    max_budget: Annotated[float | None, span(seconds, "Maximum CPU time of a query.")] = None,
    drain: Annotated[float | None, span(seconds, "Time for open calls to finish after SIGTERM or Ctrl-C.")] = None,
    log_level: Annotated[str | None, typer.Option(metavar="LEVEL", help="debug, info, warning or error.")] = None,
    set_: Set = None,
) -> None:
    """Run the service until SIGTERM or Ctrl-C.

    Flags override the environment (PROMISING_LISTEN), which overrides the file; `promising config show` shows all.

    Logs are JSON on stderr; the line "started" has the address.
    """
    flags: dict[str, Any] = {
        "listen": listen,
        "data": data,
        "metrics_listen": metrics_listen,
        "auth.tokens": tokens,
        "tls.certificate": tls_certificate,
        "tls.key": tls_key,
        "tls.client_ca": tls_client_ca,
        "limits.max_budget_seconds": max_budget,
        "drain_seconds": drain,
        "log_level": log_level,
    }
    overrides = {**pairs(set_, "--set"), **{name: value for name, value in flags.items() if value is not None}}
    from promising.settings import Settings, address, check_safe  # noqa: PLC0415  # pydantic: not for `--help`

    settings = Settings.load(config, overrides)
    check_safe(settings)
    from promising.server.starting import end_at_once  # noqa: PLC0415  # as above

    end_at_once()  # what follows takes a second to load
    # We report errors ourselves; gRPC's own messages would break the JSON lines.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    from promising.server.service import serve as run  # noqa: PLC0415  # as above

    host, _ = address(settings.listen)

    def ready(port: int) -> None:
        if sys.stderr.isatty():
            state(ctx).say(f"Ready at {host}:{port}. Ctrl-C ends it. In another terminal: promising status")

    try:
        run(settings, ready)
    except OSError as problem:
        tell(problem, settings.listen)
        raise typer.Exit(Code.USAGE) from None
