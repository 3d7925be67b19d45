"""Translating with a language model: it reads examples before each line, and continues in their form.

    English: Good morning.
    German: Guten Morgen.
    English: Thank you.
    German:

A translation is what the model writes up to the end of the line. Names of languages are those that are given, `Source`
and `Target` without any. A model whose vocabulary has line ends reads all of it as one text; others read it line by
line, as in training. Where the examples and a line do not fit into the positions of a model, the longest are left out.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import torch
from jaxtyping import Int
from torch import Tensor

from seqloom.apps.language_model import LanguageModel, is_arpa, load_language_model
from seqloom.apps.request import Request
from seqloom.apps.search_settings import device_of, require_effect
from seqloom.apps.translator import PartListener, Translation
from seqloom.core.errors import UsageError
from seqloom.core.stepping import ReadsAhead, Source, State, Step, Stepper
from seqloom.core.symbols import BEGIN, PAD, UNKNOWN
from seqloom.runs.languages import split_choice
from seqloom.runs.loading import in_words
from seqloom.runs.model_dir import read_settings
from seqloom.runs.translator import Part, join, line_counter, make_parts, mean_log_prob
from seqloom.search.decode import decode
from seqloom.search.hypothesis import Hypothesis
from seqloom.search.settings import SearchConfig
from seqloom.text.languages import language_name
from seqloom.text.normalise import is_blank
from seqloom.text.tokenizer import Tokenizers

Pair = tuple[str, str]
"""A line and its translation."""

MAX_ROWS = 64
"""Lines that are translated together at most; they have prompts of the same length."""

LINE_END, LINE_END_BYTE = "\n", "<0x0A>"
"""How line ends are written in texts, and in vocabularies that fall back to bytes."""


@dataclass(frozen=True)
class Prompt:
    """What is read before a translation, and the part of a line that it is for."""

    at: int
    symbols: tuple[int, ...]
    dropped: int
    """Examples that were left out."""


@dataclass
class DroppedExamples:
    """How many lines were translated with fewer examples than were given."""

    lines: int = 0
    most: int = 0

    def message(self, name: str, examples: int) -> str | None:
        """A sentence for the user; None if all examples were read."""
        if not self.lines:
            return None
        return (
            f"{name} reads too few tokens for all {examples:,} examples and some lines: {self.lines:,} lines were "
            f"translated without the longest ones, at most {self.most:,} left out"
        )


class FewShotTranslator:
    """Translates lines with a language model and examples.

    translator = FewShotTranslator(LanguageModel.load("gpt2"), [("Good morning.", "Guten Morgen.")], ("en", "de"))
    """

    calibration = None

    def __init__(
        self, model: LanguageModel, pairs: Sequence[Pair], languages: tuple[str | None, str | None] = (None, None)
    ) -> None:
        if not pairs:
            raise UsageError("a language model translates from examples; give at least one pair")
        for number, pair in enumerate(pairs, start=1):
            if any(is_blank(side) for side in pair):
                raise UsageError(f"example {number} has a blank side; give a line and its translation")
        self.model, self.pairs = model, [tuple(" ".join(side.split()) for side in pair) for pair in pairs]
        self.tokenizers: Tokenizers = model.loaded.tokenizers
        self.source_language = languages[0]
        source, target = (None if code is None else language_name(code) for code in languages)
        self._names = source or "Source", target or "Target"
        self.dropped = DroppedExamples()
        self._stepper = model.stepper(precision=model.config.search.precision)
        self._positions = self._stepper.longest if isinstance(self._stepper, ReadsAhead) else None
        self.longest = model.config.data.longest if self._positions is None else max(2, self._positions // 3)
        """Tokens of a line up to which it is not split."""
        tokenizer = self.tokenizers.target
        self._has_line_ends = any(map(_ends_line, tokenizer.pieces(f"a{LINE_END}b")))
        if not self._has_line_ends and not model.reads_across_lines:
            raise UsageError(
                f"{model.loaded.folder} reads each line by itself, so it cannot follow examples; use a model that "
                "reads across line ends"
            )

    def run(
        self,
        lines: Sequence[str],
        request: Request,
        *,
        first: int = 0,
        progress: Callable[[int], None] = lambda _lines: None,
        watch: PartListener | None = None,
    ) -> list[list[Translation]]:
        """The best translations of each line, best first; a blank line stays blank."""
        if request.constraints or request.glossary or request.dictionary or request.align or request.tags:
            raise UsageError("a language model translates without constraints, glossaries, alignments and tags")
        settings = request.search or self.model.config.search
        parts = make_parts(lines, self.tokenizers.target, limit=self.longest, split=settings.split, first=first)
        by_line: list[list[int]] = [[] for _ in lines]
        for at, part in enumerate(parts):
            by_line[part.line].append(at)
        for line, places in enumerate(by_line):
            if watch is not None and len(places) > 1:
                watch.cut(line, len(places))
        on_batch, done = line_counter(parts, len(lines), progress), 0
        prompts = [self._prompt(at, part, settings) for at, part in enumerate(parts)]
        short = {parts[prompt.at].line: prompt.dropped for prompt in prompts if prompt.dropped}
        self.dropped.lines += len(short)
        self.dropped.most = max(self.dropped.most, *short.values(), 0)
        found: dict[int, list[Translation]] = {}
        for batch in _batches(prompts, settings):
            keys = [parts[prompt.at].key for prompt in batch]
            for prompt, hypotheses in zip(batch, self._search(batch, settings, keys), strict=True):
                found[prompt.at] = [self._translation(each) for each in hypotheses]
            places = [prompt.at for prompt in batch]
            on_batch(places)
            done += len(places)
            if watch is not None:
                watch.parts_done(done, len(parts))
        return [_joined([parts[at] for at in places], [found[at] for at in places]) for places in by_line]

    @cached_property
    def _closing(self) -> tuple[list[int], frozenset[int]]:
        """Symbols that are nothing but the end of a line, and those that end one after other characters."""
        tokenizer = self.tokenizers.target
        if not self._has_line_ends:
            return [], frozenset()
        ends = [id for id in range(UNKNOWN + 1, tokenizer.size) if _ends_line(tokenizer.piece(id))]
        alone = [id for id in ends if is_blank(tokenizer.piece(id)) or tokenizer.piece(id) == LINE_END_BYTE]
        return alone, frozenset(ends) - frozenset(alone)

    def _prompt(self, at: int, part: Part, settings: SearchConfig) -> Prompt:
        """The examples, as many as there is room for, and the line."""
        pairs, line = self.pairs, " ".join(part.text.split())
        symbols = self._symbols(pairs, line)
        if self._positions is not None:
            room = min(self._most(settings), 2 * len(part.ids) + 10)
            by_length = sorted(range(len(pairs)), key=lambda number: sum(map(len, pairs[number])))
            while len(symbols) + room > self._positions and by_length:
                by_length.pop()
                symbols = self._symbols([pairs[number] for number in sorted(by_length)], line)
            return Prompt(at, symbols, len(pairs) - len(by_length))
        return Prompt(at, symbols, 0)

    def _symbols(self, pairs: Sequence[Sequence[str]], line: str) -> tuple[int, ...]:
        source, target = self._names
        rows = [row for pair in pairs for row in (f"{source}: {pair[0]}", f"{target}: {pair[1]}")]
        rows += [f"{source}: {line}", f"{target}:"]
        tokenizer, begin = self.tokenizers.target, self._stepper.begin
        if self._has_line_ends:
            return (begin, *tokenizer.encode(LINE_END.join(rows)))
        return tuple(symbol for ids in tokenizer.encode_many(rows) for symbol in (begin, *ids))

    def _most(self, settings: SearchConfig) -> int:
        """Symbols of the longest output."""
        return settings.length_constant or 200

    def _search(self, prompts: Sequence[Prompt], settings: SearchConfig, keys: Sequence[int]) -> list[list[Hypothesis]]:
        count = len(prompts[0].symbols)
        most = self._most(settings)
        if self._positions is not None:
            if count >= self._positions:
                raise UsageError(
                    f"{self.model.loaded.folder} reads {self._positions:,} tokens, too few for a line and its "
                    "translation; use a model that reads more"
                )
            most = min(most, self._positions - count)
        limited = settings.model_copy(update={"length_factor": 0.0, "length_constant": most, "length_overrun": 1.0})
        table = torch.tensor([prompt.symbols for prompt in prompts], device=self.model.loaded.device)
        one = torch.ones(len(prompts), 1, dtype=torch.long, device=table.device)
        stepper = ExamplesStepper(self._stepper, table, *self._closing)
        with torch.inference_mode():
            return decode(stepper, Source(one, one[:, 0]), limited, keys=keys, show=self.tokenizers.target.decode)

    def _translation(self, hypothesis: Hypothesis) -> Translation:
        # How a piece joins depends on those before it, so the whole line is decoded and its beginning taken off.
        tokenizer = self.tokenizers.target
        label = tokenizer.encode(f"{self._names[1]}:")
        known, whole = tokenizer.decode(label), tokenizer.decode([*label, *hypothesis.symbols])
        text = whole[len(known) :] if whole.startswith(known) else tokenizer.decode(hypothesis.symbols)
        log_prob = mean_log_prob([hypothesis])
        return Translation(
            text=text.strip(),
            score=hypothesis.score,
            hypotheses=(hypothesis,),
            confidence=None if log_prob is None else math.exp(log_prob),
        )


@dataclass(frozen=True)
class ExamplesStepper:
    """A stepper whose rows continue prompts of one length. What they share is read once.

    The end of a line is END, whatever symbol the model has for it: symbols of nothing else give it their probability,
    and after symbols that have other characters before it nothing but END is possible.
    """

    stepper: Stepper
    prompts: Int[Tensor, "rows length"]
    """They have one last symbol."""
    line_ends: Sequence[int] = ()
    closing: frozenset[int] = field(default=frozenset())

    @property
    def begin(self) -> int:
        return int(self.prompts[0, -1])

    @property
    def end(self) -> int:
        return self.stepper.end

    def start(self, source: Source) -> State:
        known = self.prompts[:, :-1]
        is_shared = (known == known[:1]).all(0)
        shared = int(is_shared.long().cumprod(0).sum())
        state = self.stepper.start(Source(source.ids[:1], source.lengths[:1]))
        state = self._read(state, known[:1, :shared])
        state = state.select(torch.zeros(len(known), dtype=torch.long, device=known.device))
        return self._read(state, known[:, shared:])

    def _read(self, state: State, symbols: Int[Tensor, "rows count"]) -> State:
        if isinstance(self.stepper, ReadsAhead):
            return self.stepper.read(state, symbols)
        for column in symbols.unbind(1):
            state = self.stepper.step(state, column).state
        return state

    def step(self, state: State, last: Int[Tensor, " rows"]) -> Step:
        step = self.stepper.step(state, last)
        log_probs = step.log_probs.clone()
        log_probs[:, [each for each in (PAD, BEGIN, UNKNOWN) if each != self.end]] = -torch.inf
        if self.line_ends:
            ends = [self.end, *self.line_ends]
            log_probs[:, self.end] = log_probs[:, ends].logsumexp(1)
            log_probs[:, list(self.line_ends)] = -torch.inf
        if self.closing:
            has_closed = torch.isin(last, last.new_tensor(sorted(self.closing)))
            log_probs[has_closed] = -torch.inf
            log_probs[has_closed, self.end] = 0.0
        return Step(log_probs, step.state)


def _ends_line(piece: str) -> bool:
    return LINE_END in piece or piece == LINE_END_BYTE


def _batches(prompts: Sequence[Prompt], settings: SearchConfig) -> Iterator[list[Prompt]]:
    """Prompts of one length that end in the same symbol; fewer where they are long, since each has keys and values."""
    rest: dict[tuple[int, int], list[Prompt]] = {}
    for prompt in prompts:
        rest.setdefault((len(prompt.symbols), prompt.symbols[-1]), []).append(prompt)
    width = settings.nbest if settings.method == "sample" else settings.beam
    for (length, _), some in rest.items():
        rows = max(1, min(MAX_ROWS, settings.tokens_per_batch // (length * width)))
        for begin in range(0, len(some), rows):
            yield some[begin : begin + rows]


def _joined(parts: Sequence[Part], found: Sequence[list[Translation]]) -> list[Translation]:
    """The translations of a line out of those of its parts: of several parts, the best of each."""
    if not parts:
        return [Translation("", None)]
    if len(parts) == 1:
        return found[0]
    best = [some[0] for some in found]
    hypotheses = tuple(hypothesis for each in best for hypothesis in each.hypotheses)
    log_prob = mean_log_prob(hypotheses)
    joined = join([each.text for each in best], inside_word=[part.is_inside_word for part in parts])
    return [
        Translation(
            joined.text,
            sum(each.score for each in hypotheses),
            hypotheses,
            confidence=None if log_prob is None else math.exp(log_prob),
        )
    ]


def open_few_shot(folder: Path, pairs: Sequence[Pair], overrides: Sequence[str] = ()) -> FewShotTranslator:
    """A language model that translates from examples, with other search settings, languages or another device."""
    choice, others = split_choice(overrides)
    loaded = load_language_model(folder, device=device_of(others))
    if loaded.config.purpose != "language model":
        raise UsageError(f"--shots cannot be used with {folder}: {in_words(loaded.config)}")
    if not is_arpa(folder):
        # The best output is searched for, whatever a model draws its texts with.
        config = read_settings(loaded.folder, ["search.method=beam", *others])
        require_effect(config.search, others)
        loaded = replace(loaded, config=config)
    known = loaded.card.source, loaded.card.target
    return FewShotTranslator(LanguageModel(loaded), pairs, (choice.source or known[0], choice.target or known[1]))
