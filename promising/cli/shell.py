"""The shell: multi-line statements, with history and completion."""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.filters import has_completions
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.input import Input
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.lexers import PygmentsLexer
from prompt_toolkit.output import ColorDepth, Output
from pygments.lexers.sql import SqlLexer
from rich.text import Text

from promising.cli.console import clean, err
from promising.cli.context import State
from promising.cli.exit_codes import tell
from promising.cli.sql import run
from promising.cli.streams import rows_of
from promising.cli.text_output import print_text
from promising.client.scripts import many
from promising.errors import BadSyntax, PromisingError
from promising.query.sql.tokenizer import scan
from promising.query.sql.words import CALL_BY_NAME, RESERVED, TYPES

if TYPE_CHECKING:
    from promising.client.session import RemoteSession

PROMPT, MORE = "promising> ", "       ... "
OTHERS = """
ADD ALTER ANALYZE BUDGET BY CASCADE COLLAPSE CONFIDENCE CONTINUOUS COUNT DAYS DESCRIBE DROP ERROR EXISTS EXPLAIN
FACTOR FADE FREQUENT( GRANULARITY HALF HISTOGRAM( HOURS IF INTERVAL LATENESS LIFE MEASURES MILLISECONDS MINUTES
MOMENTS( OPTIONS PREFERENCE QUANTILES( QUERIES QUERY SAMPLE( SECONDS SHOW STREAM STREAMS STRUCTURE SUMMARIES SUMMARY
SUMMARY.Confidence( SUMMARY.Estimate.Count( TIMESTAMP WEIGHTED WINDOW
"""
WORDS = sorted({*RESERVED, *TYPES, *CALL_BY_NAME, *OTHERS.split()})
HELP = r"""Statements end with a semicolon and may have several lines.

  CREATE STREAM name (column type, ...) TIMESTAMP BY column [LATENESS 5 MINUTES];
  CREATE SUMMARY name ON stream (column) [MEASURES (MOMENTS(column), ...)]
    WITH GRANULARITY 60 SECONDS AND COLLAPSE (4, 5);
  ALTER SUMMARY name ADD | DROP MEASURES (MOMENTS(column), ...);
  SELECT ... FROM stream [, stream] [WHERE ...] [GROUP BY ...] [ORDER BY ...]
    [WITH PREFERENCE DESC | ASC | WEIGHTED SUMMARY.Estimate.Count(column)]
    [WINDOW 1 HOURS] [BUDGET 100 MILLISECONDS] [WITH ERROR 0.05] [LIMIT n BY column] [LIMIT m];
  EXPLAIN [ANALYZE] SELECT ...;
  SHOW STREAMS | SUMMARIES | QUERIES;   DESCRIBE name;   DROP STREAM | SUMMARY | QUERY name;

  Tab       complete keywords and names      Up, Ctrl-R   earlier statements, search them
  Ctrl-C    end a query with the rows there are; at the prompt, forget what was typed
  \h        this help                        \q, Ctrl-D   leave
"""


def complete(text: str) -> bool:
    """Whether a text is ready to run: it ends with a semicolon outside strings and comments.

    A shell command and an empty text are complete.

    >>> complete("SHOW STREAMS;"), complete("SELECT ';"), complete("SELECT 1 -- ;"), complete("\\\\q"), complete("")
    (True, False, False, True, True)
    """
    if not text.strip() or text.lstrip().startswith("\\") or text.strip().lower() in ("exit", "quit"):
        return True
    try:
        tokens = scan(text)
    except BadSyntax as problem:
        return "without an end" not in problem.problem  # anything else is an error at once
    return not tokens or text[tokens[-1].start] == ";"


def history() -> History:
    """Earlier statements, in a private file of the user's state folder; in memory if that is not writable."""
    folder = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "promising"
    file = folder / "history"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file.touch(mode=0o600)
    except OSError:
        return InMemoryHistory()
    return FileHistory(str(file))


class Names(Completer):
    """Completes keywords, and the service's names of streams, summaries, queries and columns."""

    def __init__(self, session: "RemoteSession") -> None:
        self._session = session
        self._names: list[str] | None = None

    def forget(self) -> None:
        """Drop cached names, which may have changed."""
        self._names = None

    def names(self) -> list[str]:
        """All names, fetched once; empty if that fails, since completion must not raise."""
        if self._names is None:
            self._names = []
            try:
                found: set[str] = set()
                for kind in ("STREAMS", "SUMMARIES", "QUERIES"):
                    rows = rows_of(self._session, f"SHOW {kind}")
                    found.update(row["name"] for row in rows)
                    if kind == "STREAMS":
                        for row in rows:
                            columns = rows_of(self._session, f"DESCRIBE {quoted(row['name'])}")
                            found.update(column["column"] for column in columns)
                self._names = sorted(map(quoted, found))
            except PromisingError:
                pass
        return self._names

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        word = document.get_word_before_cursor(pattern=None)
        word = word[max(word.rfind(c) for c in "(,.") + 1 :]
        if not word:
            return
        for name in self.names():
            if name.strip('"').lower().startswith(word.lower()):
                yield Completion(name, -len(word))
        for name in WORDS:
            if name.startswith(word.upper()):
                yield Completion(name, -len(word))


def quoted(name: str) -> str:
    """A name as SQL text: quoted if it is reserved or not a plain word.

    >>> quoted("store1"), quoted("my store"), quoted("select")
    ('store1', '"my store"', '"select"')
    """
    if name.isidentifier() and name.upper() not in RESERVED:
        return name
    return '"' + name.replace('"', '""') + '"'


class Shell:
    """Reads statements until the user leaves."""

    def __init__(
        self, state: State, session: "RemoteSession", *, input: Input | None = None, output: Output | None = None
    ) -> None:
        self._state = state
        self._session = session
        self._names = Names(session)
        self._prompt: PromptSession[str] = PromptSession(
            PROMPT,
            history=history(),
            completer=self._names,
            complete_while_typing=False,
            complete_in_thread=True,
            multiline=True,
            prompt_continuation=MORE,
            lexer=PygmentsLexer(SqlLexer),
            key_bindings=_keys(),
            color_depth=ColorDepth.DEPTH_1_BIT if os.environ.get("NO_COLOR") else None,
            input=input,
            output=output,
        )

    def run(self) -> None:
        """Run until Ctrl-D or \\q."""
        version = self._session.admin.version()
        self._state.say(f"promising {version.version} at {self._state.target}. \\h is help, \\q leaves.")
        while True:
            try:
                text = self._prompt.prompt()
            except KeyboardInterrupt:
                continue
            except EOFError:
                return
            if text.strip().rstrip(";").lower() in ("\\q", "exit", "quit"):
                return
            if text.strip():
                self._do(text)

    def _do(self, text: str) -> None:
        if text.lstrip().startswith("\\"):
            if text.strip() in ("\\h", "\\?"):
                print_text(HELP)
            else:
                err().print(Text(f"there is no {clean(text.strip())}; \\h is help, \\q leaves"))
            return
        try:
            for statement in many(text):
                run(self._state, self._session, statement)
                if statement.kind == "define":
                    self._names.forget()
        except KeyboardInterrupt:
            err().print("interrupted")
        except Exception as problem:
            tell(problem, self._state.target)


def _keys() -> KeyBindings:
    """Enter runs a complete statement, else begins a new line."""
    keys = KeyBindings()

    @keys.add("enter", filter=~has_completions)
    def _(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if complete(buffer.text):
            buffer.validate_and_handle()
        else:
            buffer.insert_text("\n")

    return keys
