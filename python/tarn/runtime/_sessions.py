"""Sessions: sequences with their whole past, as values."""

from __future__ import annotations

import codecs
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

import numpy as np

from tarn._paths import AnyPath
from tarn.runtime._arguments import stop_texts, token_array, whole
from tarn.runtime._library import module as _module
from tarn.runtime._sampling import SamplingOptions, given_options

if TYPE_CHECKING:
    from typing import Unpack

Text = str | bytes | Sequence[int] | np.ndarray

_AUTOMATIC = -(2**63)  # kAutoTokens: the library's default
_MOST = 2**63 - 1


def _grammar(
    grammar: str | None, json_schema: Mapping[str, Any] | bool | str | None, regex: str | None
) -> tuple[str, bytes]:
    """The kind of grammar, "" for none, and its source."""
    given = {"grammar": grammar, "json_schema": json_schema, "regex": regex}
    names = [name for name, value in given.items() if value is not None]
    if len(names) > 1:
        raise ValueError(f"{names[1]}: want one of grammar, json_schema and regex, got two")
    if not names:
        return "", b""
    source = given[names[0]]
    if json_schema is not None and isinstance(source, (Mapping, bool)):
        source = json.dumps(source, ensure_ascii=False)
    if not isinstance(source, str):
        raise TypeError(f"{names[0]}: want text, got {type(source).__name__}")
    kinds = {"grammar": "gbnf", "json_schema": "json-schema", "regex": "regex"}
    return kinds[names[0]], source.encode()


class OpenedModel(Protocol):
    """What a session needs of a `Model`."""

    _model: Any

    def encode(
        self, text: str | bytes, *, add_special: bool = False, allow_special: bool = False
    ) -> list[int]: ...


class Session:
    """A sequence with its whole past: the state, the tokens that it has read, the text
    that is being drawn, states at earlier positions, and named marks.

    Everything is exact: after any call the state and its logits have the bits of a
    session that has read the same tokens and nothing else. One thread at a time; calls
    that run the model release the interpreter's lock.

    model: kept alive by the session. snapshot_bytes: most bytes of earlier states, of
    which the earliest are dropped first. every_token: states kept after each of as many
    last tokens, 0 to 1,024: going back by fewer reads nothing again, and each token costs
    a copy of the state. Raises ValueError for values out of range and for models other
    than language models.
    """

    def __init__(
        self, model: OpenedModel, *, snapshot_bytes: int = 256 << 20, every_token: int = 0
    ) -> None:
        self._open(model, snapshot_bytes, every_token)

    def _open(
        self,
        model: OpenedModel,
        snapshot_bytes: int,
        every_token: int,
        source: str = "",
        given: bytes = b"",
    ) -> None:
        self._held = _module.Session(
            model._model,
            whole("snapshot_bytes", snapshot_bytes, 0, _MOST),
            whole("every_token", every_token, 0, 1024),
            source,
            given,
        )
        self._model = model
        self._draft: OpenedModel | None = None
        self._characters = codecs.getincrementaldecoder("utf-8")("replace")

    @classmethod
    def load(
        cls,
        model: OpenedModel,
        path: AnyPath,
        *,
        snapshot_bytes: int = 256 << 20,
        every_token: int = 0,
    ) -> Session:
        """The session that `save` wrote with the same model (configuration, weights and
        how they are held), bit for bit; its text draws the same tokens. Raises FormatError
        for another model's or a damaged file, and OSError."""
        session = cls.__new__(cls)
        session._open(model, snapshot_bytes, every_token, "path", os.fsencode(path))
        return session

    @classmethod
    def from_bytes(
        cls,
        model: OpenedModel,
        data: bytes,
        *,
        snapshot_bytes: int = 256 << 20,
        every_token: int = 0,
    ) -> Session:
        """The session of which `to_bytes` gave the bytes. Errors as `load`."""
        session = cls.__new__(cls)
        session._open(model, snapshot_bytes, every_token, "bytes", bytes(data))
        return session

    def to_bytes(self) -> bytes:
        """The bytes of the file that `save` writes, for a cache or a database. Raises
        NumericError for NaN in it. O(its bytes)."""
        return self._held.to_bytes()

    def save(self, path: AnyPath) -> None:
        """Writes the session as one file that appears whole or not at all. Raises
        NumericError for NaN in it, and OSError. O(its bytes)."""
        self._held.save(os.fsencode(path))

    def _tokens(self, text: Text) -> np.ndarray:
        if isinstance(text, (str, bytes)):
            begins = self.position == 0 and not len(self._held.pending)
            text = self._model.encode(text, add_special=begins)
        return token_array(text)

    def append(self, tokens: Text) -> None:
        """Consumes what is pending and then these tokens, or those of a text. The text
        that is being drawn ends. Raises ValueError, with nothing changed, for a token
        outside the vocabulary and for more than a model has learned positions. After
        KeyboardInterrupt a beginning of them is consumed."""
        self._held.append(self._tokens(tokens))

    def begin(
        self,
        prompt: Text = "",
        max_tokens: int | None = None,
        *,
        grammar: str | None = None,
        json_schema: Mapping[str, Any] | bool | str | None = None,
        regex: str | None = None,
        stop: str | bytes | Sequence[str | bytes] = (),
        stop_tokens: Sequence[int] | None = None,
        seed: int = 0,
        stream: int = 0,
        temperature: float | None = None,
        top_k: int | None = None,
        top_p: float | None = None,
        min_p: float | None = None,
        **options: Unpack[SamplingOptions],
    ) -> None:
        """Begins a text after what is pending and a prompt, which iteration then draws.
        Nothing is consumed yet, and a text that has begun is dropped.

        prompt: with an empty one the text continues where the session stands, which needs
        a token before. max_tokens: None: 256, or as many as the model has positions for.
        grammar, json_schema, regex: at most one of them; what the text must be, as
        GBNF, as a schema (its source, or a dict) or as a regular expression
        (docs/grammars.md). seed, stream: of the random numbers. The others as in
        `Model.stream`. Raises ValueError and FormatError with nothing changed."""
        kind, source = _grammar(grammar, json_schema, regex)
        count = _AUTOMATIC if max_tokens is None else whole("max_tokens", max_tokens, 0, _MOST)
        own = {"temperature": temperature, "top_k": top_k, "top_p": top_p, "min_p": min_p}
        stops = self._model._model.stop_tokens if stop_tokens is None else stop_tokens
        self._held.begin(
            self._model._model,
            self._tokens(prompt),
            count,
            given_options(own | dict(options)),
            whole("seed", seed, 0, 2**64 - 1),
            whole("stream", stream, 0, 2**64 - 1),
            stop_texts(stop),
            [whole("stop_tokens", token, 0, 2**31 - 1) for token in stops],
            kind,
            source,
        )
        self._characters.reset()

    def next(self) -> tuple[int, bytes] | None:
        """Consumes what is pending and draws a token, which is pending then: the token, -1
        for none, and the bytes of the text that it settles. None once the text has ended;
        nothing is pending then. Raises ValueError without a text, NumericError for logits
        that are not finite."""
        return self._held.next()

    def __iter__(self) -> Iterator[str]:
        """Pieces of the text as they are drawn, none while a character is unfinished. In
        the end all its tokens are consumed. A loop that is left can be taken up again."""
        while (drawn := self._held.next()) is not None:
            piece = self._characters.decode(drawn[1])
            if piece:
                yield piece
        rest = self._characters.decode(b"", final=True)
        self._characters.reset()
        if rest:
            yield rest

    def text(
        self,
        prompt: Text = "",
        max_tokens: int | None = None,
        *,
        grammar: str | None = None,
        json_schema: Mapping[str, Any] | bool | str | None = None,
        regex: str | None = None,
        stop: str | bytes | Sequence[str | bytes] = (),
        stop_tokens: Sequence[int] | None = None,
        seed: int = 0,
        stream: int = 0,
        temperature: float | None = None,
        top_k: int | None = None,
        top_p: float | None = None,
        min_p: float | None = None,
        **options: Unpack[SamplingOptions],
    ) -> str:
        """Begins a text and draws all of it; arguments and errors as in `begin`."""
        self.begin(
            prompt,
            max_tokens,
            grammar=grammar,
            json_schema=json_schema,
            regex=regex,
            stop=stop,
            stop_tokens=stop_tokens,
            seed=seed,
            stream=stream,
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            min_p=min_p,
            **options,
        )
        return "".join(self)

    @property
    def end(self) -> str | None:
        """Why the text has ended: "budget", "stop token", "stop text" or "grammar". None
        where it continues, and where there is none."""
        return self._held.end or None

    def fork(self, stream: int | None = None) -> Session:
        """A session that continues by itself from the same value: state, tokens, text,
        marks. stream: of the random numbers that its text draws with; None: as this one.
        O(tokens): the state is copied when one of the two next moves."""
        copy = type(self).__new__(type(self))
        own = 0 if stream is None else whole("stream", stream, 0, 2**64 - 1)
        copy._held = self._held.fork(stream is not None, own)
        copy._model = self._model
        copy._draft = self._draft
        copy._characters = codecs.getincrementaldecoder("utf-8")("replace")
        copy._characters.setstate(self._characters.getstate())
        return copy

    def speculate(self, source: OpenedModel | str | None = "ngram", *, most: int = 12) -> None:
        """From now on draft tokens are read in one pass together with the
        token that was drawn, as far as that is measured to pay. Texts, states and logits
        stay the same bit for bit; where a draft token is accepted, it is there without
        running the model.

        source: "ngram" drafts what the text repeats of itself; "mtp" drafts with the
        model's own extra prediction head, which is read from its directory when a session
        first asks for it; a small `Model` with the
        same tokenizer drafts what it would draw; None drafts nothing. most: tokens of a
        draft, 1 to 64. Meanwhile `position` may stand at an earlier token than without
        drafts, with several tokens `pending`; marks and rollback are as without. Raises
        ValueError for another tokenizer, for a model without such a head and for values
        out of range."""
        most = whole("most", most, 1, 64)
        if source is None:
            self._held.draft_nothing()
        elif isinstance(source, str):
            if source == "ngram":
                self._held.draft_repeats(most)
            elif source == "mtp":
                self._held.draft_mtp(most, True)
            else:
                raise ValueError(f'source: want "ngram", "mtp", a Model or None, got {source!r}')
        else:
            self._held.draft_with(source._model, most)
        self._draft = None if isinstance(source, str) else source

    @property
    def draft_counts(self) -> tuple[int, int]:
        """Tokens that were drafted since `speculate`, and how many were accepted."""
        return self._held.draft_counts

    def mark(self, name: str) -> None:
        """Gives the present position a name of 1 to 64 letters, digits, - and _, or moves
        the name here; at most 64 names."""
        self._held.mark(name)

    def unmark(self, name: str) -> bool:
        """Takes a mark away; False where there is none."""
        return self._held.unmark(name)

    @property
    def marks(self) -> dict[str, int]:
        """The position of every mark."""
        return dict(self._held.marks)

    def rollback(self, to: int | str) -> int:
        """Goes back to a position or a mark, from the nearest state that is kept; returns
        how many tokens were read again. What is pending is dropped, and later marks are. A
        text continues from there if it had begun by then; a character that the position
        cuts is U+FFFD in its pieces. Raises ValueError for other positions and unknown
        marks, with nothing changed."""
        if isinstance(to, str):
            replayed = self._held.roll_back_to(to)
        else:
            replayed = self._held.roll_back(whole("to", to, 0, _MOST))
        self._characters.reset()
        return replayed

    @property
    def position(self) -> int:
        """Tokens consumed."""
        return self._held.position

    @property
    def tokens(self) -> np.ndarray:
        """The tokens consumed, int32 [position], a copy."""
        return self._held.tokens

    @property
    def pending(self) -> np.ndarray:
        """Tokens to consume next, int32, a copy: a prompt, or the token drawn last, with
        drafts several of these."""
        return self._held.pending

    @property
    def logits(self) -> np.ndarray | None:
        """Logits after the last token consumed, float32 [n_outputs], a copy; None before
        the first."""
        return self._held.logits

    @property
    def state_bytes(self) -> int:
        return self._held.state_bytes

    @property
    def snapshot_bytes(self) -> int:
        """Bytes of earlier states and marks."""
        return self._held.snapshot_bytes

    def __eq__(self, other: object) -> bool:
        """The same state, tokens and pending tokens, bit for bit."""
        if not isinstance(other, Session):
            return NotImplemented
        return self._model is other._model and self._held.equals(other._held)

    __hash__ = None  # type: ignore[assignment]  # its value changes

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise TypeError("Session: cannot be pickled; want fork(), or save() and Session.load()")

    def __repr__(self) -> str:
        return f"Session(position {self.position}, {self.state_bytes} bytes of state)"


class PrefixCache:
    """States after beginnings that several sessions of one model share, so that a prompt
    which was read once is not read again. One thread at a time.

    max_bytes: what goes first is large and has not been used for long; 0 keeps nothing.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = whole("max_bytes", max_bytes, 0, _MOST)
        self._model: OpenedModel | None = None
        self._held: Any = None

    def _of(self, session: Session) -> Any:
        if not isinstance(session, Session):
            raise TypeError(f"session: want a Session, got {type(session).__name__}")
        if self._model is None:
            # It keeps the model alive; a cache is for one model, that of its first session.
            self._held = _module.PrefixCache(session._model._model, self._max_bytes)
            self._model = session._model
        if session._model is not self._model:
            raise ValueError("session: want one of this cache's model, got another model's")
        return self._held

    def restore(self, session: Session, tokens: Sequence[int] | np.ndarray, space: str = "") -> int:
        """Brings a session, whose past and marks are dropped, to the longest beginning of
        tokens that is known; returns its length, and the caller appends the rest.
        space: what one has read is not found in another. O(len(tokens) + state)."""
        length = self._of(session).restore(session._held, token_array(tokens), space.encode())
        session._characters.reset()
        return length

    def insert(self, session: Session, space: str = "") -> None:
        """Adds the states that a session keeps, and its present one."""
        self._of(session).insert(session._held, space.encode())

    @property
    def bytes(self) -> int:
        """Bytes that it holds."""
        return 0 if self._held is None else self._held.bytes
