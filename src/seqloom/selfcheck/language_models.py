"""The promises of language models: recurrent ones, n-grams, and both directions of ELMo."""

import math
from collections.abc import Sequence
from functools import partial
from typing import cast

import numpy as np
import torch

from seqloom.apps.contextual import ContextualModel
from seqloom.apps.language_model import LanguageModel, PromptedStepper
from seqloom.classical.vectors import WordVectors
from seqloom.core.reading import TextIds
from seqloom.core.seeds import seed_for
from seqloom.core.stepping import Source, Stepper
from seqloom.models.elmo import GivesContextualVectors
from seqloom.runs.loading import Loaded
from seqloom.search.candidates import DeadEnd
from seqloom.search.decode import decode
from seqloom.search.settings import SearchConfig
from seqloom.selfcheck.cases import Case, bare_settings
from seqloom.selfcheck.files import check_saved
from seqloom.selfcheck.lines import CheckLines
from seqloom.selfcheck.promises import (
    PROMISES,
    TIE,
    Check,
    CheckResult,
    Figure,
    SearchCheck,
    counted,
    judged,
    out_of_place,
    shown,
    within,
)
from seqloom.selfcheck.searches import check_complete, check_fast, check_greedy, check_terms
from seqloom.selfcheck.translators import judge_draws
from seqloom.text.normalise import is_blank

# The promises of word vectors: files, saving, and neighbours that do not depend on the rest of the query.

NEAREST = 5


class WordVectorChecks:
    """Word vectors, and words that are drawn from them."""

    def __init__(self, loaded: Loaded, vectors: WordVectors, *, count: int, seed: int) -> None:
        self.loaded, self.vectors = loaded, vectors
        generator = np.random.default_rng(seed_for(seed, "words to check with"))
        places = generator.choice(len(vectors), size=min(count, len(vectors)), replace=False)
        self.words = tuple(vectors.words[place] for place in sorted(places.tolist()))

    def checks(self) -> list[Check]:
        """All checks, in the order in which they are reported."""
        reason = "word vectors read no lines and are not searched"
        found = {
            "saved": partial(check_saved, self.loaded, self._outputs),
            "batch": partial(check_nearest, self.vectors, self.words),
        }
        names = [name for name in PROMISES if name not in ("files", "features")]
        return [
            Check(name, PROMISES[name], found[name]) if name in found else out_of_place(name, PROMISES[name], reason)
            for name in names
        ]

    def _outputs(self, loaded: Loaded) -> list[object]:
        return list(cast("WordVectors", loaded.model).nearest(self.words, count=NEAREST))


def check_nearest(vectors: WordVectors, words: Sequence[str]) -> CheckResult:
    """The nearest words of a word do not depend on the other words of the query, up to ties."""
    together = vectors.nearest(words, count=NEAREST)
    off, worst, changed, ties = 0.0, None, 0, 0
    for word, among_others in zip(words, together, strict=True):
        (alone,) = vectors.nearest([word], count=NEAREST)
        apart = max((abs(a.score - b.score) for a, b in zip(alone, among_others, strict=True)), default=0.0)
        is_other = [each.word for each in alone] != [each.word for each in among_others]
        ties += is_other and apart <= TIE
        changed += is_other and not apart <= TIE
        if not apart <= off:
            off, worst = apart, f"{shown(word)}: a cosine differs by {apart:.1e}"
    sentence = f"the {NEAREST} nearest of {counted(len(words), 'word')}, queried alone and together, {within(off)}"
    sentence += f"; {counted(ties, 'tie')} decided otherwise" if ties else ""
    figures = {"words": len(words), "changed": changed, "ties": ties, "largest_difference": off}
    return judged(off <= TIE, sentence, figures=figures, worst=worst)


PROMPTS, READ = 12, 3
"""Lines after whose beginnings texts are searched, and how many symbols of them are read."""
WRITTEN = 16
"""Texts that are drawn, and symbols of those that are searched for."""
LONG = 200
"""Tokens of the longest line."""


class LanguageModelChecks:
    """A language model and the lines it is checked with."""

    def __init__(self, loaded: Loaded, lines: CheckLines, *, seed: int) -> None:
        self.loaded, self.model = loaded, LanguageModel(loaded)
        self.texts, self.seed = lines.texts, seed
        self.all = lines.with_hard_ones(self.model.tokenizer, limit=LONG)
        found = bare_settings(self.model.config.search, beam=max(2, self.model.config.search.beam))
        self.settings = found.model_copy(
            update={
                "length_factor": 0.0,
                "length_constant": WRITTEN,
                "length_overrun": 1.0,
                "end_normalisation": 0.0,
                "coverage": 0.0,
            }
        )

    def checks(self) -> list[Check]:
        """All checks, in the order in which they are reported."""

        def check(name: str, run: partial[CheckResult], passes: int = 1) -> Check:
            return Check(name, PROMISES[name], run, passes)

        found = [
            check("saved", partial(check_saved, self.loaded, self._outputs)),
            check("lines", partial(check_scored_lines, self.model, self.all)),
            _absent("blank", "a language model writes no line for a line; a blank one is scored by its end"),
            check("batch", partial(check_neighbours, self.model, self.all)),
            _absent("batch-int8", "eight bits are for translators"),
            check("greedy", partial(self._on_cases, check_greedy)),
            check("fast", partial(self._on_cases, check_fast)),
            _absent("plan", "only the decoder of a Transformer has a plan"),
            check("complete", partial(self._on_cases, check_complete)),
            check("terms", partial(self._on_cases, partial(check_terms, source=False))),
            check("score", partial(check_written, self.model, self.settings, seed=self.seed)),
            check("seed", partial(check_written_twice, self.model, seed=self.seed)),
        ]
        if isinstance(self.loaded.model, GivesContextualVectors):
            contextual = ContextualModel(self.loaded.model, self.model.tokenizer)
            found.append(check("features", partial(check_features, contextual, self.texts)))
        return found

    def _outputs(self, loaded: Loaded) -> list[object]:
        return list(LanguageModel(loaded).score(self.all, context="line"))

    def _on_cases(self, check: SearchCheck) -> CheckResult:
        found = self.cases()
        if not found:
            return CheckResult("not applicable", "the model cannot continue any of the lines")
        return check(found, self.settings)

    def cases(self) -> list[Case]:
        """The model after the beginnings of some lines; those after which nothing is possible are left out."""
        encoded = [self.model.tokenizer.encode(text) for text in self.texts if not is_blank(text)]
        prompts = list(dict.fromkeys(tuple(ids[:READ]) for ids in encoded))[:PROMPTS]
        return [case for case in map(self._after, prompts) if self._can_continue(case)]

    def _after(self, prompt: Sequence[int]) -> Case:
        def stepper(_: SearchConfig) -> Stepper:
            return PromptedStepper(self.model.stepper(), [list(prompt)], reads_across_lines=False)

        write = self.model.tokenizer.decode
        return Case(stepper, _nothing(self.model), (write(prompt),), write)

    def _can_continue(self, case: Case) -> bool:
        try:
            case.search(self.settings)
        except DeadEnd:  # without smoothing, a counted model knows nothing after words that it never saw together
            return False
        return True


def _absent(name: str, reason: str) -> Check:
    return out_of_place(name, PROMISES[name], reason)


def _nothing(model: LanguageModel) -> Source:
    """The source of a text that is not a translation."""
    one = torch.ones(1, 1, dtype=torch.long, device=model.loaded.device)
    return Source(one, one[0])


def check_scored_lines(model: LanguageModel, lines: Sequence[str]) -> CheckResult:
    """N lines in, N scores out, each a number."""
    found = model.score(lines, context="line")
    wrong = [at for at, each in enumerate(found) if math.isnan(each.log_prob) or each.log_prob > TIE]
    is_kept = len(found) == len(lines) and not wrong
    sentence = f"{counted(len(lines), 'line')} in, {len(found):,} scores out"
    if wrong:
        sentence += f"; {len(wrong):,} are not valid log-probabilities"
    worst = f"{shown(lines[wrong[0]])} has log P {found[wrong[0]].log_prob}" if wrong else None
    figures: dict[str, Figure] = {"in": len(lines), "out": len(found), "wrong": len(wrong)}
    return judged(is_kept, sentence, figures=figures, worst=worst)


def check_neighbours(model: LanguageModel, lines: Sequence[str]) -> CheckResult:
    """A line has the same log P alone and among others."""
    together = [each.log_prob for each in model.score(lines, context="line")]
    alone = [model.score([line], context="line")[0].log_prob for line in lines]
    apart = [0.0 if one == other else abs(one - other) for one, other in zip(together, alone, strict=True)]
    at = int(np.argmax([math.inf if math.isnan(each) else each for each in apart]))
    is_kept = apart[at] <= TIE
    sentence = f"log P of {counted(len(lines), 'line')} alone and side by side, {within(apart[at])}"
    if not is_kept:
        sentence = f"log P of a line differs by {apart[at]:.1e} when it is batched with other lines"
    worst = f"{shown(lines[at])}: {alone[at]:.6f} alone, {together[at]:.6f} among others"
    return judged(is_kept, sentence, figures={"lines": len(lines), "largest_difference": apart[at]}, worst=worst)


@torch.inference_mode()
def check_written(model: LanguageModel, settings: SearchConfig, *, seed: int) -> CheckResult:
    """log P of a text that was drawn, symbol by symbol, is that of the same text when it is read at once."""
    stepper = PromptedStepper(model.stepper(), [[]], reads_across_lines=False)
    chosen = settings.model_copy(update={"method": "sample", "nbest": WRITTEN, "seed": seed})
    (drawn,) = decode(stepper, _nothing(model), chosen, keys=[0])
    off, worst = 0.0, None
    for each in drawn:
        tokens = model.log_probs(TextIds.of([each.symbols]), context="line")[0]
        read = float(tokens[: len(each.token_log_probs)].sum())  # a text that was cut has not ended
        if not abs(read - each.log_prob) <= off:
            off = abs(read - each.log_prob)
            worst = f"{shown(model.tokenizer.decode(each.symbols))}: {each.log_prob:.6f} written, {read:.6f} read"
    sentence = f"log P of {counted(len(drawn), 'text')}, as it was written and when it is read, {within(off)}"
    if not off <= TIE:
        sentence = f"log P of a text differs by {off:.1e} between writing and reading it"
    return judged(off <= TIE, sentence, figures={"texts": len(drawn), "largest_difference": off}, worst=worst)


def check_written_twice(model: LanguageModel, *, seed: int) -> CheckResult:
    """The same seed writes the same texts."""
    settings = SearchConfig(method="sample", length_factor=0.0, length_constant=2 * WRITTEN)

    def write(with_seed: int) -> list[object]:
        return list(model.generate(search=settings, count=WRITTEN, seed=with_seed))

    names = [f"text {number}" for number in range(1, WRITTEN + 1)]
    return judge_draws(write(seed), write(seed), write(seed + 1), names=names)


def check_features(model: ContextualModel, lines: Sequence[str]) -> CheckResult:
    """The vectors of a sentence are the same alone and among others."""
    chosen = [line for line in lines if model.tokenizer.encode(line)]
    if not chosen:
        return CheckResult("not applicable", "no line contains a word to check")
    off, worst = 0.0, None
    for line, together in zip(chosen, model.features(chosen), strict=True):
        (alone,) = model.features([line])
        apart = max(
            float(np.abs(one - other).max())
            for one, other in ((alone.static, together.static), (alone.layers, together.layers))
        )
        if not apart <= off:
            off, worst = apart, f"{shown(line)}: a number of its vectors differs by {apart:.1e}"
    sentence = f"vectors of {counted(len(chosen), 'sentence')} alone and side by side, {within(off)}"
    return judged(off <= TIE, sentence, figures={"sentences": len(chosen), "largest_difference": off}, worst=worst)
