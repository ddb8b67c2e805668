"""The command line: `promising serve`, `promising sql`, and the rest."""


def main() -> None:
    """Run the command that the arguments of the process name."""
    from promising.cli.app import app  # noqa: PLC0415  # importing a submodule loads no commands

    app()
