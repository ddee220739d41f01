"""A client that asks for texts and sessions at random and checks each answer."""

from __future__ import annotations

import collections
import http.client
import json
import random
import threading
import time
from dataclasses import dataclass, field

from server import Server

BUSY = (409, 429, 503, 507)  # answers of a server that has no room now


@dataclass
class Known:
    """What a client knows of a session."""

    model: str
    read: list[int]
    pending: list[int] = field(default_factory=list)
    marks: dict[str, tuple[list[int], list[int]]] = field(default_factory=dict)
    parked: bool = False  # and not used since
    past: set[tuple[int, ...]] = field(default_factory=set)  # all that it has been

    def now(self, read: list[int], pending: list[int]) -> None:
        self.read, self.pending, self.parked = read, pending, False
        self.past.add(tuple(read))


class Shared:
    """What all clients know: faults, counts, and texts that must repeat."""

    def __init__(self, server: Server, models: list[str]):
        self.server, self.models = server, models
        self.stop = threading.Event()
        self.faults: list[str] = []
        self.calls: collections.Counter[str] = collections.Counter()
        self.checked = self.compared = 0
        self.texts: dict[tuple, list[int]] = {}
        self.lock = threading.Lock()

    def count(self) -> int:
        return sum(self.calls.values())

    def fault(self, text: str) -> None:
        with self.lock:
            self.faults.append(text)

    def compare(self, key: tuple, tokens: list[int]) -> None:
        """A text that is asked for twice is the same."""
        with self.lock:
            self.compared += key in self.texts
            if self.texts.setdefault(key, tokens) != tokens:
                self.faults.append(f"{key}: {self.texts[key]} and {tokens}")


class Gone(Exception):
    """The server was killed."""


class Client:
    MOST_SESSIONS = 24

    def __init__(self, shared: Shared, rng: random.Random, name: str):
        self.shared, self.rng, self.name = shared, rng, name
        self.sessions: dict[str, Known] = {}
        self.made = 0
        self.starts = shared.server.starts  # of the server that has its sessions
        self.connection: http.client.HTTPConnection | None = None

    # --- Calls ---

    def call(self, method: str, path: str, body: dict | None = None) -> tuple[int, dict]:
        for attempt in (0, 1):
            if self.starts != self.shared.server.starts:
                raise Gone
            if self.connection is None:
                self.connection = http.client.HTTPConnection(
                    "127.0.0.1", self.shared.server.port, timeout=120
                )
            reused = self.connection.sock is not None
            try:
                data = None if body is None else json.dumps(body)
                headers = {"Content-Type": "application/json"} if data else {}
                self.connection.request(method, path, data, headers)
                answer = self.connection.getresponse()
                text = answer.read().decode()
                return answer.status, json.loads(text) if text else {}
            except (OSError, http.client.HTTPException):
                self.close()
                # The server closes connections that were idle for five seconds.
                if not reused or attempt or method != "GET":
                    raise Gone from None
        raise Gone

    def post(self, path: str, wanted: tuple[int, ...] = (200, *BUSY), **body: object):
        """The document of an answer with 200, nothing where the server had no room."""
        status, answer = self.call("POST", path, body)
        made = status == 201 and 200 in wanted
        if status not in wanted and not made:
            self.shared.fault(f"{self.name}: {path} {str(body)[:200]}: {status} {answer}")
        return answer if status == 200 or made else None

    def close(self) -> None:
        if self.connection is not None:
            self.connection.close()
        self.connection = None

    # --- Texts ---

    def prompt(self) -> str:
        words = ("Once", " upon", " a time", " the", " law", "\n", " of", " \u20ac", " is")
        return "".join(self.rng.choice(words) for _ in range(self.rng.randrange(1, 40)))

    def text(self) -> None:
        """One of a few prompts with one of a few seeds: the same tokens each time."""
        model, number = self.rng.choice(self.shared.models), self.rng.randrange(40)
        seed, length = self.rng.randrange(4), self.rng.choice((4, 16, 48))
        prompt = "".join(random.Random(number).choices("abc de\n", k=1 + 7 * number))
        got = self.post(
            "/v1/completions",
            model=model,
            prompt=prompt,
            seed=seed,
            max_tokens=length,
            ignore_eos=True,
            return_tokens=True,
            cache_prompt=self.rng.random() < 0.8,
        )
        if got:
            self.shared.compare((model, number, seed, length), got["choices"][0]["tokens"])

    def stream(self) -> None:
        """A stream whose client may go away, or read slowly."""
        connection = http.client.HTTPConnection("127.0.0.1", self.shared.server.port, timeout=120)
        body = {"model": self.rng.choice(self.shared.models), "prompt": self.prompt()}
        body |= {"max_tokens": 400, "stream": True, "ignore_eos": True, "logprobs": 2}
        try:
            connection.request(
                "POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"}
            )
            answer = connection.getresponse()
            if answer.status in BUSY:
                return
            ends = self.rng.choice((0, 1, 20, 10_000))
            for _, line in zip(range(ends), answer, strict=False):
                if self.rng.random() < 0.002:
                    time.sleep(0.3)
                if b"error" in line:
                    self.shared.fault(f"{self.name}: stream: {line!r}")
        except (OSError, http.client.HTTPException):
            raise Gone from None
        finally:
            connection.close()

    def other(self) -> None:
        model = self.rng.choice(self.shared.models)
        text = self.prompt()
        pick = self.rng.randrange(5)
        if pick == 0:
            self.post("/v1/embeddings", model=model, input=[text, "b"])
        elif pick == 1:
            got = self.post("/tokenize", model=model, content=text)
            back = got and self.post("/detokenize", model=model, tokens=got["tokens"])
            if back and back["content"] != text:
                self.shared.fault(f"{text!r} came back as {back['content']!r}")
        elif pick == 2:
            self.post("/v1/completions", (400, *BUSY), model=model, prompt=text, top_p=7)
        elif pick == 3:
            self.post("/v1/completions", model=model, prompt=text, max_tokens=12, regex="[a-c]*")
        else:
            self.post("/v1/sessions/none-such/fork", (404, *BUSY), model=model)

    # --- Sessions ---

    def path(self, name: str, verb: str = "") -> str:
        known = self.sessions[name]
        return f"/v1/sessions/{name}{'/' + verb if verb else ''}?model={known.model}"

    def create(self) -> None:
        if len(self.sessions) >= self.MOST_SESSIONS:
            return self.delete()
        model = self.rng.choice(self.shared.models)
        tokens = [self.rng.randrange(97, 123) for _ in range(self.rng.randrange(1, 200))]
        self.made += 1
        name = f"{self.name}-{self.made}"
        if self.post("/v1/sessions", model=model, id=name, tokens=tokens):
            self.sessions[name] = Known(model, [])
            self.sessions[name].now(tokens, [])
        return None

    def pick(self) -> tuple[str, Known] | None:
        if not self.sessions:
            return None
        name = self.rng.choice(list(self.sessions))
        return name, self.sessions[name]

    def append(self) -> None:
        name, known = self.pick() or (None, None)
        if name is None or known is None:
            return
        tokens = [self.rng.randrange(97, 123) for _ in range(self.rng.randrange(1, 60))]
        known.parked = False
        if self.post(self.path(name, "append"), model=known.model, tokens=tokens):
            known.now(known.read + known.pending + tokens, [])

    def complete(self) -> None:
        """A session's text is that of all its tokens as a prompt."""
        name, known = self.pick() or (None, None)
        if name is None or known is None:
            return
        seed, length = self.rng.randrange(1 << 30), self.rng.randrange(1, 40)
        words = {"model": known.model, "seed": seed, "max_tokens": length}
        words |= {"ignore_eos": True, "return_tokens": True}
        whole = known.read + known.pending
        known.parked = False
        got = self.post(self.path(name, "completions"), **words)
        if got is None:
            return
        tokens = got["tokens"]
        known.now(whole + tokens[:-1], tokens[-1:])
        if self.rng.random() < 0.2 and len(whole) < 1000:
            plain = self.post("/v1/completions", prompt=whole, **words)
            if plain:
                self.shared.compare((known.model, tuple(whole), seed, length), tokens)
                self.shared.compare(
                    (known.model, tuple(whole), seed, length), plain["choices"][0]["tokens"]
                )

    def fork(self) -> None:
        name, known = self.pick() or (None, None)
        if name is None or known is None or len(self.sessions) >= self.MOST_SESSIONS:
            return
        self.made += 1
        ids = [f"{self.name}-{self.made}-{i}" for i in range(self.rng.randrange(1, 3))]
        known.parked = False
        if self.post(self.path(name, "fork"), model=known.model, n=len(ids), ids=ids):
            for one in ids:
                self.sessions[one] = Known(known.model, [], marks=dict(known.marks))
                self.sessions[one].now(list(known.read), list(known.pending))

    def mark(self) -> None:
        name, known = self.pick() or (None, None)
        if name is None or known is None:
            return
        mark = self.rng.choice("xyz")
        known.parked = False
        if self.post(self.path(name, "mark"), model=known.model, name=mark):
            known.marks[mark] = (list(known.read), list(known.pending))

    def rollback(self) -> None:
        name, known = self.pick() or (None, None)
        if name is None or known is None:
            return
        known.parked = False
        if known.marks and self.rng.random() < 0.5:
            mark = self.rng.choice(list(known.marks))
            read, pending = known.marks[mark]
            got = self.post(self.path(name, "rollback"), model=known.model, mark=mark)
        else:
            to = self.rng.randrange(1, len(known.read) + 1)
            read, pending = known.read[:to], []
            got = self.post(self.path(name, "rollback"), model=known.model, to=to)
        if got:
            # Marks of positions that are no more are gone, too.
            known.marks = {m: r for m, r in known.marks.items() if m in got["marks"]}
            known.now(list(read), list(pending) if got["pending"] else [])

    def park(self) -> None:
        name, known = self.pick() or (None, None)
        if name is None or known is None or known.pending:
            return
        if self.post(self.path(name, "park"), model=known.model):
            known.parked = True

    def restore(self) -> None:
        name, known = self.pick() or (None, None)
        if name is None or known is None:
            return
        known.parked = False
        self.post(self.path(name, "restore"), model=known.model)

    def check(self) -> None:
        name, known = self.pick() or (None, None)
        if name is None or known is None:
            return
        known.parked = False
        status, got = self.call("GET", self.path(name))
        if status == 200 and "tokens" in got and got["tokens"] != known.read:
            self.shared.fault(f"{name}: want {known.read}, got {got['tokens']}")
        if status != 200 and status not in BUSY:
            self.shared.fault(f"{name}: {status} {got}")

    def delete(self) -> None:
        name, known = self.pick() or (None, None)
        if name is None or known is None:
            return
        status, got = self.call("DELETE", self.path(name))
        if status == 200:
            del self.sessions[name]
        elif status not in BUSY:
            self.shared.fault(f"DELETE {name}: {status} {got}")

    # --- After a crash ---

    def recover(self) -> None:
        """Parked sessions are as they were. Others are gone, or something that they have been."""
        self.close()
        for _ in range(1200):
            self.starts = self.shared.server.starts
            try:
                status, _ = self.call("GET", "/health")
                if status == 200:
                    break
            except Gone:
                time.sleep(0.05)
        else:
            self.shared.fault(f"{self.name}: no server for a minute")
            return
        for name, known in list(self.sessions.items()):
            status, _ = self.call("POST", self.path(name, "restore"), {"model": known.model})
            if status == 404 and not known.parked:
                del self.sessions[name]
                continue
            if status in BUSY:
                continue
            status, got = self.call("GET", self.path(name))
            tokens = got.get("tokens")
            self.shared.checked += 1
            fits = tokens == known.read if known.parked else tuple(tokens or ()) in known.past
            if not fits:
                # What a call that the crash cut off had done is not known.
                if known.parked or not tokens or tokens[: len(known.read)] != known.read:
                    was = f"parked {known.parked}, {len(known.read)} tokens"
                    self.shared.fault(f"{name} after a crash ({was}): {status} {got}")
            if status == 200 and tokens is not None:
                self.post(self.path(name, "rollback"), model=known.model, to=len(tokens))
                known.marks = {}
                known.now(tokens, [])

    def recover_whatever_happens(self) -> None:
        while True:
            try:
                return self.recover()
            except Gone:
                continue  # killed again

    def run(self) -> None:
        kinds = {
            self.text: 20,
            self.stream: 6,
            self.other: 10,
            self.create: 8,
            self.append: 10,
            self.complete: 16,
            self.fork: 5,
            self.mark: 5,
            self.rollback: 8,
            self.park: 6,
            self.restore: 3,
            self.check: 6,
            self.delete: 4,
        }
        while not self.shared.stop.is_set():
            (act,) = self.rng.choices(list(kinds), list(kinds.values()))
            with self.shared.lock:
                self.shared.calls[act.__name__] += 1
            try:
                act()
            except Gone:
                self.recover_whatever_happens()
            except Exception as error:
                self.shared.fault(f"{self.name}: {act.__name__}: {error!r}")
                return

    def clean(self) -> None:
        for name in list(self.sessions):
            self.close()  # the server has closed what was idle
            status, got = self.call("DELETE", self.path(name))
            if status != 200:
                self.shared.fault(f"DELETE {name}: {status} {got}")
        self.sessions.clear()
        self.close()
