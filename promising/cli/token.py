"""`token`: access tokens and their roles, in the file that the service reads; needs no running service."""

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from promising.cli.choices import Role
from promising.cli.common_options import span
from promising.cli.context import Output, state
from promising.cli.durations import seconds
from promising.cli.serve import Config
from promising.cli.text_output import print_json

if TYPE_CHECKING:
    from promising.server.access_tokens import TokenStore

app = typer.Typer(name="token", help="Create, list and revoke tokens.", no_args_is_help=True)
Store = Annotated[
    Path | None,
    typer.Option("--tokens", metavar="FILE", help="Token file. Default: the setting auth.tokens."),
]
Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the token's owner.", show_default=False)]


@app.command("create")
def create(
    ctx: typer.Context,
    name: Name,
    role: Annotated[list[Role], typer.Option(help="A role of the token; repeatable.", show_default=False)],
    expires: Annotated[float | None, span(seconds, "Lifetime of the token, such as 30d.")] = None,
    tokens: Store = None,
    config: Config = None,
) -> None:
    """Create a token. Its secret is written to stdout once; only its hash is stored."""
    store = _store(tokens, config)
    try:
        secret = store.create(name, [one.value for one in role], expires)
    finally:
        store.close()
    if state(ctx).output is Output.JSON:
        print_json({"name": name, "roles": [one.value for one in role], "token": secret})
    else:
        typer.echo(secret)
    state(ctx).say(
        f"This is the only time it is shown. Use it with --token-file or PROMISING_TOKEN; it is in {store.path}."
    )


@app.command("list")
def list_(ctx: typer.Context, tokens: Store = None, config: Config = None) -> None:
    """List tokens, without their secrets."""
    import pyarrow as pa  # noqa: PLC0415  # Arrow: not for `--help`

    from promising.cli.formats import write_table  # noqa: PLC0415  # as above

    store = _store(tokens, config)
    try:
        found = store.list()
    finally:
        store.close()
    now = datetime.now(UTC)
    kind = pa.timestamp("us", "UTC")
    table = pa.table(
        {
            "name": pa.array([t.name for t in found], pa.string()),
            "roles": pa.array([" ".join(sorted(t.roles)) for t in found], pa.string()),
            "created": pa.array([t.created for t in found], kind),
            "expires": pa.array([t.expires for t in found], kind),
            "in_force": pa.array([t.expires is None or t.expires > now for t in found], pa.bool_()),
        }
    )
    write_table(state(ctx).output, table)


@app.command("revoke")
def revoke(ctx: typer.Context, name: Name, tokens: Store = None, config: Config = None) -> None:
    """Revoke a token: its running calls end, and further ones are refused."""
    store = _store(tokens, config)
    try:
        store.revoke(name)
    finally:
        store.close()
    state(ctx).say(f"token {name} revoked")


def _store(tokens: Path | None, config: Path | None) -> "TokenStore":
    from promising.server.access_tokens import TokenStore  # noqa: PLC0415  # pydantic: not for `--help`
    from promising.settings import Settings  # noqa: PLC0415  # as above

    path = tokens or Settings.load(config, {}).auth.tokens
    if path is None:
        raise typer.BadParameter("no file of tokens: give --tokens FILE, or set auth.tokens (PROMISING_AUTH__TOKENS)")
    return TokenStore(path)
