"""Damaged tokens: of an answer to resume, of a subscription, of a caller; and the file with the tokens of callers."""

import asyncio
import base64
import os
import random
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from promising.errors import BadSettings, PromisingError
from promising.query.standing.feed_tokens import read_token, token_head, token_progress
from promising.query.standing.subscription import Delta, LiveView
from promising.query.standing.views import Seen
from promising.server.access_tokens import Caller, TokenStore
from promising.server.authentication import Authentication
from promising.settings import Auth, Settings
from tests.fuzz import world
from tests.fuzz.byte_mutations import mutated
from tests.fuzz.cases import Broken, Subject, differs, typed

MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
CUT = "SELECT x.k, y.b FROM s x, t y WHERE x.k = y.k BUDGET 1 MICROSECONDS"
QUERIES = {
    "watch": None,
    "pairs": None,
    "some": "CREATE CONTINUOUS QUERY some AS SELECT k, b FROM t WHERE b > 0 WINDOW 30 SECONDS",
    "endless": "CREATE CONTINUOUS QUERY endless AS SELECT k, price FROM s",
}
ODD: list[Any] = [
    *[0, 1, -1, 7, 39, 40, 41, 1 << 31, 1 << 53, 1 << 62, (1 << 63) - 1, 1 << 63, -(1 << 63) - 1, 1 << 70, -(1 << 70)],
    *[1.5, 1e300, True, None, "", "x", "1", [], [1], {}],
]


def text_of(rng: random.Random, token: str) -> str:
    """A token changed as text; never itself."""
    while True:
        raw, _ = mutated(rng, token.encode())
        found = raw.decode(errors="surrogateescape") if rng.random() < 0.5 else raw.decode("latin-1")
        if found != token:
            return found


class Given(NamedTuple):
    """A token, and whose it is: "resume", "caller", or the name of a continuous query; forged: it has its checksums."""

    kind: str
    token: str
    forged: bool = False


class Tokens(Subject):
    """None is accepted unless it says what the one that was issued says."""

    name: ClassVar[str] = "tokens"
    verdicts: ClassVar[dict[str, float]] = {"BadToken": 0.5, "Unauthenticated": 0.05, "resumed": 0.003, "forged": 0.03}

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="promising-fuzz-", dir=MEMORY)
        path = Path(self._folder.name) / "tokens"
        self._store = TokenStore(path)
        self._secret = self._store.create("reader", "query")
        self._access = Authentication(Settings(auth=Auth(tokens=path)))
        self._session = world.session()
        answer = self._session.query(CUT)
        answer.run()
        assert answer.progress.token is not None
        self._token: str = answer.progress.token
        self._begun: dict[str, Delta] = {}
        for name, statement in QUERIES.items():
            if statement is not None:
                self._session.execute(statement)
            with self._session.subscribe(name) as subscription:
                first = subscription.poll()
                assert first is not None
                self._begun[name] = first
        for number in range(4):  # what a subscriber has missed
            more = world.columns(world.TUPLES + number, 6)
            for stream in ("s", "t"):
                self._session.ingest(stream, more | {"ts": [(60 + number + i) * world.SECOND for i in range(6)]})
            self._session.standing.tick()

    def __exit__(self, *_: object) -> None:
        self._session.close()
        self._store.close()
        self._access.close()
        self._folder.cleanup()

    def input(self, rng: random.Random) -> Given:
        kind = rng.choice(("resume", "caller", *QUERIES, *QUERIES))
        if kind == "resume":
            return Given(kind, text_of(rng, self._token))
        if kind == "caller":
            return Given(kind, text_of(rng, f"Bearer {self._secret}"))
        token = self._begun[kind].token
        if rng.random() < 0.3:
            return Given(kind, self._forged(rng, token), forged=True)
        if rng.random() < 0.3:  # as text, below its encoding
            raw = bytearray(base64.urlsafe_b64decode(token))
            digits = [at for at, byte in enumerate(raw) if byte in b"0123456789"]
            if rng.random() < 0.5:
                raw[rng.choice(digits)] = rng.choice(b"0123456789")
            else:
                raw[:], _ = mutated(rng, bytes(raw))
            return Given(kind, base64.urlsafe_b64encode(raw).decode())
        return Given(kind, text_of(rng, token))

    def judge(self, given: Given) -> str:
        judge: Callable[[Given], str] = {"resume": self._resume, "caller": self._call}.get(given.kind, self._subscribe)
        try:
            return judge(given)
        except PromisingError as problem:
            return typed(problem)

    def _forged(self, rng: random.Random, token: str) -> str:
        """A token with other content, made as the service makes them."""
        epoch, number, seen = read_token(token)
        fields: list[Any] = [seen.tick, seen.now, seen.positions]
        at = rng.randrange(4)
        if at < 2:
            fields[at] = rng.choice(ODD)
        else:
            names = list(seen.positions)
            fields[2] = {**seen.positions, rng.choice([*names, *names, "nobody"]): rng.choice(ODD)}
        return token_head(epoch, number) + token_progress(Seen(*fields))

    def _resume(self, given: Given) -> str:
        held = self._held()
        try:
            self._session.resume(given.token)
        finally:
            differs(held, self._held(), "a damaged token")
        raise Broken("a token was taken that nobody was given")

    def _held(self) -> list[str]:
        """The names of all suspended answers."""
        return [name for cursors in self._session._shelf._clients.values() for name in cursors]

    def _call(self, given: Given) -> str:
        who, _ = asyncio.run(self._access.known([("authorization", given.token)]))
        if who != Caller("reader", frozenset({"query"})) or self._secret not in given.token:
            raise Broken(f"{who} is known by a token that nobody was given")
        return "known"  # by another spelling of "Bearer", or more space

    def _subscribe(self, given: Given) -> str:
        """What a subscriber has that resumes by the token is the view."""
        begun = self._begun[given.kind]
        with self._session.subscribe(given.kind, given.token) as subscription:
            view = LiveView(subscription.schema, subscription.feed.keyed, subscription.feed.endless)  # type: ignore[attr-defined]  # of this process
            view.apply(begun)
            delta = subscription.poll()
        if given.forged:  # who lies about what it has seen has a wrong view of its own making
            return "forged"
        if delta is None:
            differs(world.view(self._session, given.kind), _rows(view), "a damaged token")
            return "resumed"
        if view.endless:
            if not delta.reset:
                with self._session.subscribe(given.kind, begun.token) as right:
                    differs(right.poll().inserts.to_pylist(), delta.inserts.to_pylist(), "a damaged token")  # type: ignore[union-attr]  # it has changed
            return "resumed"
        view.apply(delta)
        differs(world.view(self._session, given.kind), _rows(view), "a damaged token")
        return "resumed"


def _rows(view: LiveView) -> list[Any]:
    return sorted(view.snapshot().to_pylist(), key=repr)


class TokenFile(Subject):
    """A damaged file of tokens: an error that names it, or a caller who is who it was, with no more rights."""

    name: ClassVar[str] = "tokenfile"
    verdicts: ClassVar[dict[str, float]] = {"BadSettings": 0.05, "refused": 0.005, "known": 0.1}

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="promising-fuzz-", dir=MEMORY)
        self._path = Path(self._folder.name) / "tokens"
        store = TokenStore(self._path)
        self._callers = {
            store.create("reader", "query"): Caller("reader", frozenset({"query"})),
            store.create("writer", ["ingest", "query"], 1e6): Caller("writer", frozenset({"ingest", "query"})),
            store.create("owner", "admin"): Caller("owner", frozenset({"admin"})),
        }
        store.close()
        self._whole = self._path.read_bytes()

    def __exit__(self, *_: object) -> None:
        self._folder.cleanup()

    def input(self, rng: random.Random) -> bytes:
        used = bytearray(self._whole)
        if rng.random() < 0.7:  # where there is something
            places = [at for at, byte in enumerate(used) if byte]
            for _ in range(rng.choice((1, 1, 2, 4))):
                used[rng.choice(places)] = rng.choice((0, 1, 255, 128, rng.randrange(256)))
            return bytes(used)
        return mutated(rng, self._whole)[0]

    def judge(self, given: bytes) -> str:
        for name in os.listdir(self._folder.name):
            (Path(self._folder.name) / name).unlink()
        self._path.write_bytes(given)
        store = TokenStore(self._path)
        found = set()
        try:
            for secret, caller in self._callers.items():
                who = store.check(secret)
                if who is not None and not who.roles <= caller.roles:
                    raise Broken(f"{caller} has become {who}")
                found.add(who)
            store.list()
        except BadSettings as problem:
            if str(self._path) not in str(problem):
                raise Broken(f"which file? {problem}") from problem
            return typed(problem, apart=())
        finally:
            store.close()
        return "known" if found == set(self._callers.values()) else "refused"
