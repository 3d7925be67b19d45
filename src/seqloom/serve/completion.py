"""What a worker does with a language model: it continues prompts, and scores their tokens.

    prompt     the old man ⏎ reads              lines, as text or as ids
    symbols    <s> the old man </s> reads       what is read; the end of a line is written as a line break
    scores     –   P(the ∣ <s>) P(old ∣ …) …    of each token after those before it; the first has none

All prompts of a batch are read side by side, one symbol of each at a step. A prompt that has been read is continued in
as many rows as texts are requested, while longer prompts are still being read. A model that does not read across line
ends reads each line of a prompt by itself, in a row of its own.

Draws depend on the seed of their prompt, the number of the text and the step, as in `LanguageModel.generate`, so other
prompts in the batch do not change them.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, fields
from functools import lru_cache
from itertools import pairwise
from typing import Any, Literal, TypeVar

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor

from seqloom.apps.language_model import LanguageModel
from seqloom.core.errors import UsageError
from seqloom.core.stepping import Source, Step
from seqloom.core.symbols import BEGIN, END, PAD, UNKNOWN
from seqloom.search.candidates import top_symbols
from seqloom.search.driver import run
from seqloom.search.sampling import choices_of, uniform
from seqloom.search.settings import SearchConfig
from seqloom.serve.groups import Emit, GroupCancellation, Groups, ignore_parts
from seqloom.text.tokenizer import Tokenizer

T = TypeVar("T")

NEVER_WRITTEN = [PAD, BEGIN, UNKNOWN]

MAX_SCORES = 1 << 26
"""Scores of symbols held at a time; more prompts are continued in several turns."""

CONTEXT_SYMBOLS = 8
"""Symbols of a prompt from which it is known how the next piece joins."""

MAX_SKIPPED_CHARACTERS = 64
"""Characters of a prompt without a token of the same text, such as an unknown word, after which the next is found."""

UNDECODED = "\ufffd"
"""Stands for bytes that are not a character yet."""

Finish = Literal["stop", "length"]
"""Why a text ended: by the end of its line or a stop text, or by its maximum length."""


@dataclass(frozen=True)
class CompletionOptions:
    """How prompts are continued; the same for all prompts of a batch."""

    max_tokens: int = 16
    n: int = 1
    """Texts returned for each prompt."""
    best_of: int = 1
    """Texts written for each prompt, of which the n most probable ones per token are returned."""
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    past_line_ends: bool = False
    """Whether texts continue, line after line, up to their maximum length."""
    stop: tuple[str, ...] = ()
    """Texts that end a text; they are not part of it."""
    logprobs: int | None = None
    """How many of the most probable tokens are listed at each place; None lists no probabilities at all."""
    echo: bool = False
    """Whether the prompt is part of the text."""
    stream: bool = False
    """Whether texts are emitted token by token."""

    @staticmethod
    def of(options: Mapping[str, Any]) -> "CompletionOptions":
        """From what a request gives; the rest has its default."""
        known = {each.name for each in fields(CompletionOptions)}
        given = {name: value for name, value in options.items() if name in known}
        return CompletionOptions(**{**given, "stop": tuple(given.get("stop", ()))})

    @property
    def samples(self) -> int:
        """Different texts for each prompt: without a temperature all are the same."""
        return 1 if self.temperature == 0 else max(self.n, self.best_of)

    @property
    def copies(self) -> int:
        """How often each text is returned."""
        return self.n if self.temperature == 0 else 1

    @property
    def scores_prompt(self) -> bool:
        """Whether probabilities of the prompt are returned."""
        return self.echo and self.logprobs is not None

    def search(self) -> SearchConfig:
        """The settings of each draw."""
        return SearchConfig(
            method="sample", temperature=self.temperature, top_p=self.top_p, top_k=self.top_k, min_p=self.min_p
        )


class LanguageModelActions:
    """Completes prompts with one language model."""

    def __init__(self, model: LanguageModel) -> None:
        self._model = model

    def warm_up(self) -> None:
        """Complete a prompt, so that no request waits for a compiler."""
        options = {"max_tokens": 2, "logprobs": 1, "echo": True}
        self.complete([[written_prompt("a", seed=1)]], options, GroupCancellation(), ignore_parts)

    def complete(
        self, groups: Groups, options: Mapping[str, Any], cancellation: GroupCancellation, emit: Emit
    ) -> list[list[Any]]:
        """The texts of each prompt (see `written_prompt`). Options are the fields of `CompletionOptions`.

        A result has `choices`, with the text, finish reason and probabilities of each, and the numbers of tokens.
        """
        wanted = CompletionOptions.of(options)
        prompts = [
            _read_prompt(self._model.tokenizer, text, group=group, place=place)
            for group, texts in enumerate(groups)
            for place, text in enumerate(texts)
        ]
        rows = max(1, MAX_SCORES // self._model.tokenizer.size)
        completing = _Completing(self._model, wanted, cancellation, emit)
        parts = [(prompt, prompt.parts(reads_across_lines=self._model.reads_across_lines)) for prompt in prompts]
        if wanted.scores_prompt:
            others = [_Reading(prompt, *part) for prompt, (*before, _) in parts for part in before]
            for some in chunks_of(others, rows):
                completing.run(some)
        lasts = [_Reading(prompt, *part, is_continued=True) for prompt, (*_, part) in parts]
        for some in chunks_of(lasts, max(1, rows // wanted.samples)):
            completing.run(some)
        results: list[list[Any]] = [[] for _ in groups]
        for prompt in prompts:
            if prompt.group not in cancellation.groups:
                results[prompt.group].append(completing.result(prompt))
        return results


def written_prompt(prompt: str | Sequence[int], *, seed: int) -> str:
    """A prompt, as text or as ids, and the seed of its draws, as they are sent to a worker."""
    return json.dumps({"prompt": prompt, "seed": seed}, ensure_ascii=False)


def chunks_of(rows: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """At most so many rows at a time."""
    for begin in range(0, len(rows), size):
        yield rows[begin : begin + size]


# --- text and symbols -------------------------------------------------------------------------------------------------


@lru_cache(maxsize=1 << 16)
def _decoded(tokenizer: Tokenizer, symbols: tuple[int, ...]) -> str:
    """The text of a few symbols; the same ones come often where the most probable tokens are listed."""
    return tokenizer.decode(symbols)


class Detokenizer:
    """The text that each symbol adds to those before it.

    Some add none until the next one: bytes of a character, or a space at the end, which only the next letter shows.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._shown: tuple[int, ...] = ()  # the last symbols with text, from which it is known how the next one joins
        self._pending: tuple[int, ...] = ()
        self._known = ""  # the text of those shown

    def preview(self, symbol: int) -> str:
        """The text that a symbol would add."""
        if symbol == END:
            return self._text_of(self._pending) + "\n"
        text = self._text_of((*self._pending, symbol))
        return "" if text.endswith(UNDECODED) else text

    def add(self, symbol: int) -> str:
        """The text that a symbol adds."""
        text = self.preview(symbol)
        if symbol == END:
            self._shown, self._pending, self._known = (), (), ""
        elif text:
            self._shown, self._pending = (*self._pending, symbol), ()
            self._known = _decoded(self._tokenizer, self._shown)
        else:
            self._pending = (*self._pending, symbol)
        return text

    def rest(self) -> str:
        """What is left at the end: bytes that are no character."""
        return self._text_of(self._pending)

    def _text_of(self, symbols: Sequence[int]) -> str:
        return _decoded(self._tokenizer, (*self._shown, *symbols))[len(self._known) :] if symbols else ""

    def name(self, symbol: int) -> str:
        """A symbol as tokens are listed: its text, or the piece where it has none of its own."""
        return ("" if symbol in (PAD, BEGIN) else self.preview(symbol)) or self._tokenizer.piece(symbol)


@dataclass(frozen=True)
class TokenScore:
    """The probability of a token, and of the most probable ones in its place."""

    log_prob: float
    top: tuple[tuple[int, float], ...] = ()
    """Symbols and their log-probabilities, best first."""


@dataclass
class _Listing:
    """Tokens as they are listed in an answer."""

    tokens: list[str] = field(default_factory=list)
    token_logprobs: list[float | None] = field(default_factory=list)
    top_logprobs: list[dict[str, float] | None] = field(default_factory=list)
    text_offset: list[int] = field(default_factory=list)

    def add(self, text: Detokenizer, symbol: int, scored: TokenScore | None, *, offset: int) -> None:
        """One more token; `text` has those before it."""
        name = text.name(symbol)
        top: dict[str, float] | None = None
        if scored is not None:
            others = {text.name(each): log_prob for each, log_prob in reversed(scored.top) if each != symbol}
            top = {name: scored.log_prob, **{key: value for key, value in others.items() if key != name}}
            # Best first; the token itself is listed even if it is not among the best.
            top = dict(sorted(top.items(), key=lambda pair: -pair[1]))
        self.tokens.append(name)
        self.token_logprobs.append(None if scored is None else scored.log_prob)
        self.top_logprobs.append(top)
        self.text_offset.append(offset)

    def followed_by(self, other: "_Listing") -> "_Listing":
        """Both, one after the other."""
        return _Listing(*(getattr(self, each.name) + getattr(other, each.name) for each in fields(self)))

    def since(self, first: int) -> "_Listing":
        """Those from a place on."""
        return _Listing(*(getattr(self, each.name)[first:] for each in fields(self)))

    def record(self, options: CompletionOptions) -> dict[str, Any] | None:
        """As it is written in an answer."""
        if options.logprobs is None:
            return None
        found = {each.name: getattr(self, each.name) for each in fields(self)}
        return found if options.logprobs else {**found, "top_logprobs": None}


@dataclass(eq=False)
class _Prompt:
    """A prompt of a batch."""

    group: int
    place: int
    """Its number in the group."""
    text: str
    symbols: list[int]
    """What is read after BEGIN, with END at line ends."""
    has_begin: bool
    """Whether BEGIN is listed as one of its tokens: it is part of a text, ids may leave it out."""
    seed: int
    scores: dict[int, TokenScore] = field(default_factory=dict)
    """By place, for the symbols that have been read."""
    writings: "list[_Writing]" = field(default_factory=list)

    @property
    def tokens(self) -> int:
        """The number of its tokens."""
        return len(self.symbols) + self.has_begin

    def parts(self, *, reads_across_lines: bool) -> list[tuple[int, int]]:
        """Where the parts that are read by themselves begin and end; the last one is continued."""
        ends = [] if reads_across_lines else [at + 1 for at, symbol in enumerate(self.symbols) if symbol == END]
        borders = [0, *ends, len(self.symbols)]
        return list(pairwise(borders))

    def listing(self, tokenizer: Tokenizer) -> _Listing:
        """Its tokens with their probabilities; the first has none."""
        listing, text, texts = _Listing(), Detokenizer(tokenizer), []
        if self.has_begin:
            listing.add(text, BEGIN, None, offset=0)
        for at, symbol in enumerate(self.symbols):
            listing.add(text, symbol, self.scores[at] if listing.tokens else None, offset=0)
            texts.append(text.add(symbol))
        listing.text_offset[int(self.has_begin) :] = offsets_of(texts, self.text)
        return listing

    def detokenizer(self, tokenizer: Tokenizer) -> Detokenizer:
        """What the text of the next symbols depends on."""
        text = Detokenizer(tokenizer)
        for symbol in self.symbols[-CONTEXT_SYMBOLS:]:
            text.add(symbol)
        return text


def offsets_of(tokens: Sequence[str], text: str) -> list[int]:
    """Where each token begins in a text. Where normalisation has changed the text, this is a guess."""
    at, offsets = 0, []
    for token in tokens:
        begin, end = at, at + len(token) + MAX_SKIPPED_CHARACTERS
        for part in (token, token.strip()):
            if part and (found := text.find(part, at, end)) >= 0:
                begin, at = at + len(text[at:found].rstrip()), found + len(part)
                break
        offsets.append(begin)
    return offsets


def _read_prompt(tokenizer: Tokenizer, text: str, *, group: int, place: int) -> _Prompt:
    """A prompt as it was sent. Ids that the vocabulary does not have, or that cannot be read, are refused."""
    message = json.loads(text)
    prompt, seed = message["prompt"], message["seed"]
    if isinstance(prompt, str):
        symbols = [symbol for line in prompt.split("\n") for symbol in (*tokenizer.encode(line), END)][:-1]
        return _Prompt(group, place, prompt, symbols, True, seed)
    for number, symbol in enumerate(prompt):
        if not 0 <= symbol < tokenizer.size:
            raise UsageError(
                f"the prompt has the id {str(symbol)[:20]}; the ids of this model are 0 to {tokenizer.size - 1}"
            )
        if symbol == PAD or (symbol == BEGIN and number):
            raise UsageError(f"the id {symbol} ({tokenizer.piece(symbol)}) cannot be token {number + 1} of a prompt")
    has_begin = prompt[:1] == [BEGIN]
    symbols = prompt[int(has_begin) :]
    lines: list[list[int]] = [[]]
    for symbol in symbols:
        if symbol == END:
            lines.append([])
        else:
            lines[-1].append(symbol)
    written = "\n".join(map(tokenizer.decode, lines))
    return _Prompt(group, place, written, symbols, has_begin, seed)


# --- reading and writing ----------------------------------------------------------------------------------------------


@dataclass(eq=False)
class _Reading:
    """A row that reads a part of a prompt."""

    prompt: _Prompt
    at: int
    """The next symbol of the prompt."""
    end: int
    is_continued: bool = False
    """Whether texts are written after it."""


@dataclass(eq=False)
class _Writing:
    """A row that continues a prompt."""

    prompt: _Prompt
    sample: int
    detokenizer: Detokenizer
    finish: Finish | None = None
    listing: _Listing = field(default_factory=_Listing)
    text: str = ""
    tokens: int = 0
    """How many were written, END not counted."""
    log_probs: list[float] = field(default_factory=list)
    """Of all symbols, END included."""
    emitted: int | None = None
    """Characters that were emitted; None if nothing was."""
    listed: int = 0
    """Tokens that were emitted."""
    is_emitted: bool = False
    """Whether all of it was emitted."""

    @property
    def mean(self) -> float:
        """log P per symbol."""
        return sum(self.log_probs) / max(1, len(self.log_probs))

    def add(self, symbol: int, scored: TokenScore, options: CompletionOptions) -> None:
        """Write a symbol; END, a stop text or the maximum length ends the text."""
        self.log_probs.append(scored.log_prob)
        if symbol == END and not options.past_line_ends:
            self.end("stop")
            return
        self.tokens += 1
        if options.logprobs is not None:
            offset = len(self.text) + (len(self.prompt.text) if options.echo else 0)
            self.listing.add(self.detokenizer, symbol, scored, offset=offset)
        added = self.detokenizer.add(symbol)
        if not self.text and self.prompt.text[-1:].isspace():
            added = added.lstrip(" ")
        unsearched = max(0, len(self.text) + 1 - max(map(len, options.stop), default=0))
        self.text += added
        places = [self.text.find(stop, unsearched) for stop in options.stop]
        if found := [place for place in places if place >= 0]:
            self.text, self.finish = self.text[: min(found)], "stop"
        elif self.tokens >= options.max_tokens:
            self.end("length")

    def end(self, finish: Finish) -> None:
        """End the text here."""
        self.text, self.finish = self.text + self.detokenizer.rest(), finish

    def part(self, options: CompletionOptions, tokenizer: Tokenizer) -> dict[str, Any] | None:
        """What is new since the last part, without characters that may become a stop text; None if nothing is."""
        if self.is_emitted:
            return None
        held = 0
        if self.finish is None:
            for stop in options.stop:
                sizes = (size for size in range(len(stop) - 1, held, -1) if self.text.endswith(stop[:size]))
                held = next(sizes, held)
        settled = len(self.text) - held
        text, listing = self.text[self.emitted or 0 : settled], self.listing.since(self.listed)
        if self.emitted is None and options.echo:
            text = self.prompt.text + text
            listing = self.prompt.listing(tokenizer).followed_by(listing) if options.scores_prompt else listing
        if not text and not listing.tokens and self.finish is None:
            return None
        self.emitted, self.listed, self.is_emitted = settled, len(self.listing.tokens), self.finish is not None
        return {"text": text, "logprobs": listing.record(options), "finish_reason": self.finish}


class _Completing:
    """Prompts that are read and continued, step by step."""

    def __init__(
        self, model: LanguageModel, options: CompletionOptions, cancellation: GroupCancellation, emit: Emit
    ) -> None:
        self._model, self._stepper, self._tokenizer = model, model.stepper(), model.tokenizer
        self._options, self._settings = options, options.search()
        self._cancellation, self._emit = cancellation, emit
        self._rows: list[_Reading | _Writing] = []
        self._prompts: list[_Prompt] = []

    def run(self, rows: Sequence[_Reading]) -> None:
        """Read parts of prompts side by side, and continue those that are the last of their prompt."""
        self._rows, self._prompts = list(rows), [row.prompt for row in rows if row.is_continued]
        ones = torch.ones(len(rows), 1, dtype=torch.long, device=self._model.loaded.device)
        run(self._stepper, Source(ones, ones[:, 0]), self._advance)

    def result(self, prompt: _Prompt) -> dict[str, Any]:
        """What is answered for a prompt."""
        options, found = self._options, prompt.writings
        if len(found) > options.n:
            found = sorted(found, key=lambda writing: -writing.mean)[: options.n]
        before = prompt.listing(self._tokenizer) if options.scores_prompt else _Listing()
        choices = [
            {
                "text": (prompt.text if options.echo else "") + writing.text,
                "logprobs": before.followed_by(writing.listing).record(options),
                "finish_reason": writing.finish,
            }
            for writing in found
        ]
        written = sum(writing.tokens for writing in prompt.writings) * options.copies
        return {"choices": choices * options.copies, "prompt_tokens": prompt.tokens, "completion_tokens": written}

    def _advance(self, step: Step) -> tuple[Int64[np.ndarray, " rows"], Int64[np.ndarray, " rows"]]:
        """One symbol more for each row: the next of its prompt, or one that is drawn."""
        cancelled, wanted = self._cancellation.groups, list(enumerate(self._rows))
        if cancelled:
            wanted = [(at, row) for at, row in wanted if row.prompt.group not in cancelled]
            self._cancellation.count(len(self._rows) - len(wanted))
        reading = [(at, row) for at, row in wanted if isinstance(row, _Reading) and row.at < row.end]
        writing = [(at, row) for at, row in wanted if isinstance(row, _Writing)]
        for at, row in wanted:
            if isinstance(row, _Reading) and row.at == row.end:
                writing += [(at, each) for each in self._read_to_end(row)]
        kept: list[tuple[int, _Reading | _Writing, int]] = [*self._read(step, reading), *self._write(step, writing)]
        if self._options.stream:
            self._emit_parts()
        self._rows = [row for _, row, _ in kept]
        # The end of a line is read as the beginning of the next.
        symbols = [self._stepper.begin if symbol == END else symbol for _, _, symbol in kept]
        return np.array([at for at, _, _ in kept], np.int64), np.array(symbols, np.int64)

    def _read_to_end(self, row: _Reading) -> "list[_Writing]":
        """The texts that continue a part of a prompt which has been read, if it is the last part."""
        if not row.is_continued:
            return []
        text = row.prompt.detokenizer(self._tokenizer)
        finish: Finish | None = None if self._options.max_tokens else "length"
        row.prompt.writings = [
            _Writing(row.prompt, sample, copy(text), finish) for sample in range(self._options.samples)
        ]
        return row.prompt.writings if finish is None else []

    def _read(self, step: Step, rows: Sequence[tuple[int, _Reading]]) -> list[tuple[int, _Reading, int]]:
        """Rows, with the symbols of their prompts that they read."""
        symbols = [row.prompt.symbols[row.at] for _, row in rows]
        if self._options.scores_prompt and rows:
            log_probs = step.log_probs[[at for at, _ in rows]]
            for (_, row), scored in zip(rows, self._scores(step, log_probs, symbols), strict=True):
                row.prompt.scores[row.at] = scored
        for _, row in rows:
            row.at += 1
        return [(at, row, symbol) for (at, row), symbol in zip(rows, symbols, strict=True)]

    def _write(self, step: Step, rows: Sequence[tuple[int, _Writing]]) -> list[tuple[int, _Writing, int]]:
        """Rows, with the symbols that were drawn for them, unless they end with them."""
        if not rows:
            return []
        log_probs = step.log_probs[[at for at, _ in rows]]
        offered = log_probs.clone()
        offered[:, NEVER_WRITTEN] = -torch.inf
        choices = choices_of(Step(offered, step.state), self._settings)
        sums = choices.weights.cumsum(1)  # [rows, choices]
        numbers = [uniform(row.prompt.seed, 0, sample=row.sample, step=len(row.log_probs) + 1) for _, row in rows]
        height = torch.tensor(numbers, dtype=torch.float64, device=sums.device)[:, None] * sums[:, -1:]
        columns = torch.searchsorted(sums, height, right=True).clamp(max=sums.shape[1] - 1)  # [rows, 1]
        symbols: list[int] = choices.symbols.gather(1, columns)[:, 0].tolist()
        totals: list[float] = sums[:, -1].tolist()
        scores = self._scores(step, log_probs, symbols)
        for (_, row), symbol, scored, total in zip(rows, symbols, scores, totals, strict=True):
            if total > 0:
                row.add(symbol, scored, self._options)
            else:  # nothing can follow
                row.end("stop")
        return [(at, row, symbol) for (at, row), symbol in zip(rows, symbols, strict=True) if row.finish is None]

    def _scores(self, step: Step, log_probs: Float[Tensor, "rows symbols"], symbols: Sequence[int]) -> list[TokenScore]:
        """The probability of a symbol of each row, and of the most probable ones."""
        own = log_probs.gather(1, torch.tensor(symbols, device=log_probs.device)[:, None])[:, 0].tolist()
        if not self._options.logprobs:
            return [TokenScore(log_prob) for log_prob in own]
        top = top_symbols(Step(log_probs, step.state), self._options.logprobs)
        tables = zip(top.symbols.tolist(), top.log_probs.tolist(), strict=True)
        tops = [tuple(zip(names, values, strict=True)) for names, values in tables]
        return [TokenScore(log_prob, some) for log_prob, some in zip(own, tops, strict=True)]

    def _emit_parts(self) -> None:
        """Emit what is new of each text."""
        for prompt in self._prompts:
            for writing in prompt.writings if prompt.group not in self._cancellation.groups else ():
                part = writing.part(self._options, self._tokenizer)
                if part is not None:
                    for number in range(self._options.copies):
                        self._emit(prompt.group, prompt.place, {"index": writing.sample + number, **part})
