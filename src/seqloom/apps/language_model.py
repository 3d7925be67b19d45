"""Using language models: how probable texts are, and generating texts.

Several models of one vocabulary may be mixed:

    P(w | before) = Σ_m λ_m P_m(w | before)        Σ λ_m = 1; each model has its own state of the words before

Weights are given, or fitted to a text by expectation maximisation, each round of which makes that text more probable:

    λ_m ← mean over tokens t of  λ_m P_m(w_t) / Σ_n λ_n P_n(w_t)
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from numbers import Real
from pathlib import Path
from typing import Any, cast, get_args

import numpy as np
import torch
from jaxtyping import Float64, Int
from torch import Tensor, nn

from seqloom.apps.search_settings import device_of, require_effect, search_with
from seqloom.classical.ngram import NGram
from seqloom.core.arguments import as_lines, as_path, as_text, as_whole_number, require_choice, shown
from seqloom.core.config import resolve
from seqloom.core.errors import DataError, UsageError
from seqloom.core.reading import Context, TextIds, TextReader
from seqloom.core.stepping import ReadsAhead, Source, State, Step, Stepper
from seqloom.core.symbols import BEGIN, END, PAD, RESERVED, UNKNOWN
from seqloom.interop.arpa import read_arpa, write_arpa
from seqloom.metrics.perplexity import Perplexities
from seqloom.models.protocols import HasLatentVariable
from seqloom.nn.fast.int8 import with_int8
from seqloom.runs.config import RunConfig
from seqloom.runs.loading import Loaded, LoadedFitted, in_words, load_any, require_loaded
from seqloom.runs.model_dir import Card
from seqloom.runs.readers import encode_lines, perplexities_of, require_numbers, require_reader
from seqloom.search.decode import decode
from seqloom.search.driver import Cancellation
from seqloom.search.ensemble import Ensemble
from seqloom.search.hypothesis import Hypothesis
from seqloom.search.settings import OutputLimit, Precision, SearchConfig
from seqloom.text.normalise import is_blank
from seqloom.text.tokenizer import TextConfig, Tokenizer, Tokenizers, WordPieces
from seqloom.text.vocabulary import Vocabulary


class PromptedStepper:
    """A stepper that continues a prompt.

    The prompt is read, in one pass where the stepper can do that, and left out of the score. The end of a line is read
    as the beginning of the next, as in training. A model that does not read across line ends starts with the last line
    of the prompt.

    PAD and BEGIN are never written, and `<unk>` only if requested. Where a text continues past line ends, END is an
    ordinary symbol, and only the maximum length ends the text.
    """

    def __init__(
        self,
        stepper: Stepper,
        lines: Sequence[Sequence[int]],
        *,
        reads_across_lines: bool,
        past_line_ends: bool = False,
        has_unknown: bool = False,
    ) -> None:
        kept = lines if reads_across_lines else lines[-1:]
        prompt = [symbol for line in kept for symbol in (stepper.begin, *line)]
        self._stepper, self._read = stepper, prompt[:-1]
        self._begin = prompt[-1]
        self._past_line_ends = past_line_ends
        self._left_out = [PAD, BEGIN, *([] if has_unknown else [UNKNOWN])]

    @property
    def begin(self) -> int:
        return self._begin

    @property
    def longest(self) -> int | None:
        """Symbols that can be read, those of the prompt included; None if nothing limits them."""
        return self._stepper.longest if isinstance(self._stepper, ReadsAhead) else None

    @property
    def prompt(self) -> int:
        """Symbols of the prompt that are read before the first step."""
        return len(self._read)

    @property
    def end(self) -> int:
        # PAD is never offered, so a text that ends with PAD continues to the maximum length.
        return PAD if self._past_line_ends else self._stepper.end

    def start(self, source: Source) -> State:
        rows, lengths = len(source.lengths), source.lengths
        if self._read and isinstance(self._stepper, ReadsAhead):
            one = self._stepper.start(Source(source.ids[:1], lengths[:1]))  # all rows read the same
            state = self._stepper.read(one, lengths.new_tensor([self._read]))
            return state.select(lengths.new_zeros(rows))
        state = self._stepper.start(source)
        for symbol in self._read:
            state = self._stepper.step(state, lengths.new_full((rows,), symbol)).state
        return state

    def step(self, state: State, last: Int[Tensor, " rows"]) -> Step:
        step = self._stepper.step(state, torch.where(last == END, self._stepper.begin, last))
        log_probs = step.log_probs.clone()
        log_probs[:, self._left_out] = -torch.inf
        return Step(log_probs, step.state)


# --- ARPA files -------------------------------------------------------------------------------------------------------


def is_arpa(path: Path) -> bool:
    """Whether a model is an ARPA file, by its name."""
    return path.name.removesuffix(".gz").endswith(".arpa") and not path.is_dir()


def load_language_model(path: Path | str, *, device: str | None = None) -> Loaded:
    """A model directory, a run, or an ARPA file."""
    path = as_path(path, "folder")
    return load_arpa(path) if is_arpa(path) else load_any(path, device=device)


def load_arpa(path: Path) -> LoadedFitted:
    """The model of an ARPA file; words are separated by spaces, as in the program that wrote it."""
    model = read_arpa(path)
    # Words are looked up as the file writes them: normalised, they might become others.
    text = TextConfig(kind="word", segmentation="spaces", unicode_form="none")
    words = tuple(model.vocabulary[len(RESERVED) :])
    tokenizer = Tokenizer(text, WordPieces(Vocabulary(words, (0,) * len(words)), segmentation="spaces"))
    settings = {"text": text.model_dump(), "model": {"kind": "ngram", "order": model.order}}
    card = Card(source=None, target=None, parameters=sum(array.size for array in model.arrays().values()))
    return LoadedFitted(path, resolve(RunConfig, defaults=settings), Tokenizers(tokenizer, tokenizer), model, card)


def write_model_as_arpa(model: Path, out: Path) -> None:
    """Write the n-gram model of a directory or a run to an ARPA file, compressed if its name ends in `.gz`."""
    if not is_arpa(out):
        raise UsageError(f"{out} ends neither in .arpa nor in .arpa.gz; name the file with one of these endings")
    loaded = load_any(model)
    if not isinstance(loaded.model, NGram):
        raise UsageError(f"{loaded.folder} cannot be exported to ARPA, which is for n-grams: {in_words(loaded.config)}")
    out.parent.mkdir(parents=True, exist_ok=True)
    write_arpa(loaded.model, out)


TokenProgress = Callable[[int, int], None]
"""Gets the number of tokens done, and of all tokens."""


def ignore_progress(_done: int, _all: int) -> None:
    """Report nothing."""


TRANSLATOR_SETTINGS = ("shortlist", "split", "unknown", "heads", "tokens_per_batch")
"""Search settings that have no effect without a source text."""
MAX_SCORES_AT_ONCE = 1 << 28
"""Scores that texts may need at a time: one per symbol and text, a gigabyte in all."""

MAX_BEAM_TEXTS, MAX_SAMPLED_TEXTS = 1_000, 100_000
"""Texts that one search can return."""

MAX_ROUNDS, MIN_WEIGHT_CHANGE = 200, 1e-7
"""Rounds of expectation maximisation, and the change of a weight below which it ends."""


@dataclass(frozen=True)
class LineScore:
    """log P of a line in nats, and the number of its tokens, END included."""

    log_prob: float
    tokens: int


@dataclass(frozen=True)
class ImpossibleToken:
    """A token with probability 0, and the number of its line, from 1."""

    token: str
    line: int


@dataclass(frozen=True)
class PerplexityReport:
    """Perplexities of a text, and their details."""

    perplexities: Perplexities
    alone: tuple[float, ...]
    """The perplexity per token of each model by itself."""
    first_impossible: ImpossibleToken | None
    """The first token to which the mixture gives no probability."""


@dataclass(frozen=True)
class GeneratedText:
    """A text that a model has generated."""

    text: str
    """With the prompt."""
    continuation: str
    """The text after the prompt."""
    log_prob: float
    """log P of the continuation by the model itself, in nats."""
    tokens: int
    is_finished: bool
    """Whether it ended before the maximum length."""


class LanguageModel:
    """Scores and generates text.

    model = LanguageModel.load("run/model")
    model.perplexity(["The old man reads a book."]).word.value
    model.generate("The old")[0].text
    """

    def __init__(
        self, loaded: Loaded, companions: Sequence[Loaded] = (), *, weights: Sequence[float] | None = None
    ) -> None:
        """One model, or several that are mixed with these weights (equal ones by default)."""
        companions = require_loaded(loaded, companions, caller="LanguageModel")
        self.loaded = loaded
        self.config, self.card, self.tokenizer = loaded.config, loaded.card, loaded.tokenizers.target
        members = [loaded, *companions]
        for member in companions:
            if member.tokenizers.target != loaded.tokenizers.target:
                raise UsageError(
                    f"{member.folder} has another vocabulary than {loaded.folder}; models that are mixed must read the "
                    f"same tokens: train the second with data.tokenizers_from={loaded.folder}"
                )
        self._readers = [require_reader(member) for member in members]
        self._folders = [member.folder for member in members]
        self.weights = _checked(weights, len(members))
        self._members = [member.summary() for member in members]
        self._loaded = members
        self._steppers: dict[Precision, Stepper] = {}
        """Made once: weights are packed for them."""

    def __repr__(self) -> str:
        return f"LanguageModel({', mixed with '.join(self._members)})"

    @staticmethod
    def load(
        folder: Path | str,
        *others: Path | str,
        weights: Sequence[float] | None = None,
        device: str | None = None,
    ) -> "LanguageModel":
        """Read a model directory, a run or an ARPA file, and others that are mixed with it."""
        loaded = [load_language_model(each, device=device) for each in (folder, *others)]
        return LanguageModel(loaded[0], loaded[1:], weights=weights)

    # --- measuring ----------------------------------------------------------------------------------------------------

    def score(self, lines: Iterable[str], *, context: Context | None = None) -> list[LineScore]:
        """log P of each line, its END included.

        With `context="line"` each line is read by itself, with "text" as the continuation of the line before it; by
        default as in training.
        """
        text = encode_lines(self.tokenizer, as_lines(lines, "score"))
        log_probs = self.mixed(self.log_probs(text, context=context))
        sums = np.add.reduceat(log_probs, text.offsets[:-1])
        return [LineScore(float(total), int(count)) for total, count in zip(sums, text.lengths, strict=True)]

    def perplexity(
        self,
        lines: Iterable[str],
        *,
        context: Context | None = None,
        progress: TokenProgress = ignore_progress,
    ) -> Perplexities:
        """Perplexities of a text. The end of a blank line counts too, unless a model never saw one."""
        return self.measure(lines, context=context, progress=progress).perplexities

    def measure(
        self,
        lines: Iterable[str],
        *,
        context: Context | None = None,
        progress: TokenProgress = ignore_progress,
    ) -> "PerplexityReport":
        """The same with details: the perplexity of each model by itself, and the first impossible token."""
        given = as_lines(lines, "perplexity")
        has_blank = all(reader.has_blank_lines for reader in self._readers)
        numbers = [number for number, line in enumerate(given, start=1) if has_blank or not is_blank(line)]
        given = [given[number - 1] for number in numbers]
        text = encode_lines(self.tokenizer, given)
        each = self.log_probs(text, context=context, progress=progress)
        log_probs = self.mixed(each)
        is_bound = any(reader.is_bound for reader in self._readers)
        found, first = perplexities_of(given, text, log_probs, is_bound=is_bound), None
        if found.impossible:
            place = int((log_probs == -math.inf).argmax())
            line = int(np.searchsorted(text.offsets, place, side="right")) - 1
            first = ImpossibleToken(self.tokenizer.piece(int(text.ids[place])), numbers[line])
        with np.errstate(over="ignore"):
            alone = tuple(float(value) for value in np.exp(-each.mean(axis=1)))
        return PerplexityReport(found, alone, first)

    def log_probs(
        self, text: TextIds, *, context: Context | None = None, progress: TokenProgress = ignore_progress
    ) -> Float64[np.ndarray, "models tokens"]:
        """log P of each token by each model."""
        if context is not None:
            require_choice(context, "context", get_args(Context))
        done = 0  # over all models; what is reported counts each token once

        def on_tokens(tokens: int) -> None:
            nonlocal done
            done += tokens
            progress(done // len(self._readers), len(text.ids))

        found = np.stack(
            [each.log_probs(text, context=context or each.context, progress=on_tokens) for each in self._readers]
        )
        for folder, row in zip(self._folders, found, strict=True):
            require_numbers(folder, row)
        return found

    def mixed(self, log_probs: Float64[np.ndarray, "models tokens"]) -> Float64[np.ndarray, " tokens"]:
        """log Σ_m λ_m P_m of each token."""
        with np.errstate(divide="ignore"):  # a weight may have become 0
            mixed: np.ndarray = np.logaddexp.reduce(log_probs + np.log(self.weights)[:, None], axis=0)
        return mixed

    def tuned(
        self,
        lines: Iterable[str],
        *,
        context: Context | None = None,
        progress: TokenProgress = ignore_progress,
    ) -> "LanguageModel":
        """The same models, mixed with the weights that fit a text best."""
        text = encode_lines(self.tokenizer, as_lines(lines, "tune"))
        other = copy(self)
        other._steppers = {}
        other.weights = best_weights(self.log_probs(text, context=context, progress=progress))
        return other

    # --- writing ------------------------------------------------------------------------------------------------------

    def generate(
        self,
        prompt: str = "",
        *,
        search: SearchConfig | Mapping[str, Any] | None = None,
        count: int = 1,
        seed: int | None = None,
        past_line_ends: bool = False,
        has_unknown: bool = False,
        is_cancelled: Callable[[], bool] | None = None,
        on_dropped: Callable[[int], None] = lambda _rows: None,
        **changes: Any,
    ) -> list[GeneratedText]:
        """`count` texts that continue `prompt`, which the model reads first.

        A text ends with its line; with `past_line_ends` the model continues, line after line, up to the maximum length,
        `search.length_constant` tokens. Words outside the vocabulary are never written unless `has_unknown` is set.
        `changes` are settings of `SearchConfig` for this call, such as `generate("The", temperature=0.7)`; a mapping as
        `search` does the same, and a SearchConfig replaces all settings of the model.

        `is_cancelled` is called at each step. Once it returns True, the search ends without a text, and `on_dropped`
        gets the number of texts that were being written.
        """
        prompt = as_text(prompt, "prompt")
        own = self.config.search
        chosen = search_with(own, search, changes, method=self.generate, check=_require_effect)
        limit = OutputLimit(own.length_factor or 0.0, own.length_constant or OutputLimit().constant)
        chosen = chosen.with_output_limit(limit).model_copy(update={"length_overrun": 1.0})
        count = as_whole_number(count, "count", least=1)
        is_beam, groups = chosen.method == "beam", chosen.groups
        most = MAX_BEAM_TEXTS // groups * groups if is_beam else MAX_SAMPLED_TEXTS
        most = min(most, MAX_SCORES_AT_ONCE // self.tokenizer.size)
        if count > most:
            raise UsageError(f"count={count} is more than fits into one search; give at most {most:,}")
        given = {**chosen.model_dump(), "nbest": count, "seed": chosen.seed if seed is None else seed}
        if is_beam:
            given["beam"] = max(chosen.beam_for(count), chosen.beam)
        ids = [self.tokenizer.encode(line) for line in prompt.split("\n")]
        one = torch.ones(1, 1, dtype=torch.long, device=self.loaded.device)
        cancellation = None
        if is_cancelled is not None:
            cancellation = Cancellation(lambda _text: is_cancelled(), on_dropped)
        # A model with a latent variable writes each sample from a point of its own.
        latent = self._latent if chosen.method == "sample" else None
        steppers = [self.stepper(precision=chosen.precision)]
        if latent is not None:
            given["nbest"] = 1
            steppers = [latent.stepper(point[None]) for point in latent.prior(count, seed=given["seed"])]
        texts: list[GeneratedText] = []
        for key, base in enumerate(steppers):
            stepper = PromptedStepper(
                base,
                ids,
                reads_across_lines=self.reads_across_lines,
                past_line_ends=past_line_ends,
                has_unknown=has_unknown,
            )
            if stepper.longest is not None:
                room = stepper.longest - stepper.prompt
                if room < 1:
                    raise UsageError(
                        f"the prompt has {sum(map(len, ids)):,} tokens, and this model reads texts of at most "
                        f"{stepper.longest:,}; give a shorter one"
                    )
                # Texts that reach the end of the positions are not finished, as with any other maximum length.
                given["length_constant"] = min(chosen.limits(Source(one, one[0]))[0], room)
                given["length_factor"] = 0.0
            with torch.inference_mode():
                (found,) = decode(
                    stepper,
                    Source(one, one[0]),
                    SearchConfig(**given),
                    keys=[key],
                    show=self.tokenizer.decode,
                    cancellation=cancellation,
                )
            texts += [self._generated(prompt, ids[-1], hypothesis) for hypothesis in found]
        return texts

    def between(self, first: str, second: str, *, steps: int = 7, beam: int = 4) -> list[GeneratedText]:
        """The most probable texts at equal distances on the straight line between the points of two texts.

        Both ends are included. The model must have a latent variable (model.kind=vae).
        """
        steps = as_whole_number(steps, "steps", least=2)
        beam = as_whole_number(beam, "beam", least=1)
        if self._latent is None:
            raise UsageError(
                f"{self.loaded.folder} has no latent variable to move along; train one with model.kind=vae"
                if len(self._loaded) == 1
                else "texts between two others come from one model; leave out the others"
            )
        ends = []
        for text in (first, second):
            ids = self.tokenizer.encode(as_text(text, "text"))
            if not ids:
                raise UsageError("a text between which to move is blank; give two texts with words")
            row = torch.tensor([ids], device=self.loaded.device)
            with torch.inference_mode():
                ends.append(self._latent.points_of(row, torch.tensor([len(ids)], device=self.loaded.device)))
        own = self.config.search
        limit = OutputLimit(own.length_factor or 0.0, own.length_constant or OutputLimit().constant)
        settings = SearchConfig(method="beam", beam=beam).with_output_limit(limit)
        one = torch.ones(1, 1, dtype=torch.long, device=self.loaded.device)
        texts = []
        for at in range(steps):
            share = at / (steps - 1)
            base = self._latent.stepper((1 - share) * ends[0] + share * ends[1])
            stepper = PromptedStepper(base, [[]], reads_across_lines=False, past_line_ends=False, has_unknown=False)
            with torch.inference_mode():
                (found,) = decode(stepper, Source(one, one[0]), settings, keys=[0], show=self.tokenizer.decode)
            texts.append(self._generated("", [], found[0]))
        return texts

    @property
    def _latent(self) -> HasLatentVariable | None:
        """The model, if it has a latent variable and is not mixed with others."""
        model = self.loaded.model
        return model if len(self._loaded) == 1 and isinstance(model, HasLatentVariable) else None

    @property
    def reads_across_lines(self) -> bool:
        """Whether it reads a line as the continuation of those before it."""
        return all(reader.context == "text" for reader in self._readers)

    def unknown_in(self, text: str) -> tuple[int, int]:
        """The number of unknown tokens in a text, and of all tokens."""
        ids = [symbol for line in as_text(text, "text").split("\n") for symbol in self.tokenizer.encode(line)]
        return ids.count(UNKNOWN), len(ids)

    def stepper(self, *, precision: Precision = "float32") -> Stepper:
        """The stepper of the model, or of the mixture, in this precision."""
        if precision not in self._steppers:
            readers = self._readers if precision == "float32" else self._int8_readers()
            steppers = [reader.stepper() for reader in readers]
            only = len(steppers) == 1
            self._steppers[precision] = steppers[0] if only else Ensemble(steppers, self.weights, mode="mean")
        return self._steppers[precision]

    def _int8_readers(self) -> list[TextReader]:
        for member in self._loaded:
            if not member.config.model.is_rounded_by_int8:
                raise UsageError(
                    f"search.precision=int8 has no effect on {member.folder}, a model of kind "
                    f"{member.config.model.kind}, which needs float32; leave it out"
                )
        return [require_reader(replace(each, model=with_int8(cast("nn.Module", each.model)))) for each in self._loaded]

    def _generated(self, prompt: str, prompt_ids: Sequence[int], hypothesis: Hypothesis) -> GeneratedText:
        lines: list[list[int]] = [[]]
        for symbol in hypothesis.symbols:
            if symbol == END:
                lines.append([])
            else:
                lines[-1].append(symbol)
        first, *others = lines
        # How a piece joins depends on those before it, so the whole line is decoded and the prompt taken off.
        known, whole = self.tokenizer.decode(prompt_ids), self.tokenizer.decode([*prompt_ids, *first])
        rest = whole[len(known) :] if whole.startswith(known) else whole
        if prompt[-1:].isspace():
            rest = rest.lstrip(" ")
        continuation = "\n".join([rest, *map(self.tokenizer.decode, others)])
        return GeneratedText(
            text=prompt + continuation,
            continuation=continuation,
            log_prob=hypothesis.log_prob,
            tokens=len(hypothesis.token_log_probs),
            is_finished=hypothesis.is_finished,
        )


def open_language_model(
    folder: Path,
    overrides: Sequence[str] = (),
    *,
    companions: Sequence[Path] = (),
    weights: Sequence[float] | None = None,
) -> LanguageModel:
    """A model with other search settings or another device, and models that are mixed with it."""
    device = device_of(overrides)
    loaded = load_language_model(folder, device=device)
    if is_arpa(folder):
        config = resolve(RunConfig, defaults=loaded.config.model_dump(mode="json"), overrides=overrides)
    else:
        config = resolve(RunConfig, file=loaded.folder / "config.yaml", overrides=overrides)
    _require_effect(config.search, overrides)
    others = [load_language_model(other, device=device) for other in companions]
    return LanguageModel(replace(loaded, config=config), others, weights=weights)


def _require_effect(settings: SearchConfig, overrides: Sequence[str]) -> None:
    """Refuse settings that have no effect."""
    for override in overrides:
        name = override.partition("=")[0].removeprefix("search.")
        if name == "nbest":
            raise UsageError(f"{override}: the number of texts is given with count (--count)")
        if name in TRANSLATOR_SETTINGS:
            raise UsageError(f"{override} has no effect on a language model, which has no source text; leave it out")
    # The number of texts to choose from is not known yet.
    require_effect(settings, [override for override in overrides if not override.startswith("search.rerank=")])


def best_weights(log_probs: Float64[np.ndarray, "models tokens"]) -> tuple[float, ...]:
    """The weights λ under which a text is most probable. Tokens that are impossible for every model are left out."""
    highest = log_probs.max(axis=0)
    is_possible = highest > -math.inf
    if not is_possible.any():
        raise DataError("no weights can be found: every token of the text is impossible for every model")
    probabilities = np.exp(log_probs[:, is_possible] - highest[is_possible])
    weights = np.full(len(log_probs), 1 / len(log_probs))
    for _ in range(MAX_ROUNDS):
        shares = weights[:, None] * probabilities
        better = (shares / shares.sum(axis=0)).mean(axis=1)
        change, weights = np.abs(better - weights).max(), better
        if change < MIN_WEIGHT_CHANGE:
            break
    return tuple(float(weight) for weight in weights)


def _checked(weights: Any, members: int) -> tuple[float, ...]:
    if weights is None:
        return (1 / members,) * members
    if isinstance(weights, str | bytes | Mapping) or not isinstance(weights, Iterable):
        raise UsageError(f"weights must be a list of numbers, one for each model; got {shown(weights)}")
    weights = tuple(weights)
    if len(weights) != members:
        raise UsageError(f"got {len(weights)} weights for {members} models; give one for each")
    if not all(isinstance(weight, Real) and 0 < float(weight) < math.inf for weight in weights):
        raise UsageError(f"weights {list(weights)} are out of range; give each model more than 0, or leave it out")
    return tuple(weight / sum(weights) for weight in weights)
