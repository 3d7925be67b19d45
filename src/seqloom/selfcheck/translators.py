"""The promises of a translator."""

from collections.abc import Callable, Sequence
from copy import copy
from functools import cached_property, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Protocol, runtime_checkable

import torch

from seqloom.apps.translator import Translation, Translator
from seqloom.core.errors import UsageError
from seqloom.core.files import read_lines, write_atomically
from seqloom.nn.fast.int8 import Int8Linear, Int8Output, with_int8
from seqloom.runs.loading import Loaded, LoadedModel
from seqloom.search.greedy import forced_search
from seqloom.search.settings import Precision, SearchConfig
from seqloom.selfcheck.cases import Case, CaseMaker
from seqloom.selfcheck.files import check_saved
from seqloom.selfcheck.lines import BLANK, CheckLines
from seqloom.selfcheck.promises import (
    PROMISES,
    TIE,
    Check,
    CheckResult,
    Figure,
    SearchCheck,
    counted,
    judged,
    shown,
    within,
)
from seqloom.selfcheck.searches import (
    SearchAgreement,
    agreement,
    check_complete,
    check_fast,
    check_greedy,
    check_terms,
    rows_of,
)
from seqloom.text.normalise import is_blank

# Batch size and padding change no token: each sentence by itself, and among others with padding that holds anything.
#
# In float32 the sums of a product may be taken in another order when more rows are multiplied at once, which moves a
# score by some 1e-6; hence two candidates within `TIE` may change places. In eight bits a last digit can turn a
# rounding in the other direction: on a Transformer of width 128, 2 scores of 50 moved by some 2e-3, each by one token
# (up to 5e-3), the others by less than 1e-6. Hence candidates within `ROUNDING` may change places there.

ROUNDING = 1e-2
"""The tie of a search in eight bits: how far two candidates can move by such a rounding."""


def check_batches(bench: CaseMaker) -> CheckResult:
    """In float32."""
    found = _compare(bench, "float32", tie=TIE)
    return _finding(found, is_kept=not found.breaks and found.drift <= TIE)


def check_int8_batches(bench: CaseMaker) -> CheckResult:
    """In eight bits, if the model has such products."""
    try:
        modules = list(with_int8(bench.translator.loaded.model).modules())
    except UsageError as error:
        return CheckResult("not applicable", str(error))
    rounded = sum(isinstance(module, Int8Linear | Int8Output) for module in modules)
    if not rounded:
        return CheckResult("not applicable", "no matrix of the model is large enough to be multiplied in eight bits")
    found = _compare(bench, "int8", tie=ROUNDING)
    narrow = sum(each.gap <= TIE for each in found.ties)
    return _finding(found, is_kept=not found.breaks, more={"matrices_in_8_bits": rounded, "ties_within_1e-4": narrow})


def _compare(bench: CaseMaker, precision: Precision, *, tie: float) -> SearchAgreement:
    settings = bench.settings.model_copy(update={"precision": precision})
    with torch.inference_mode():
        return agreement(rows_of(bench.alone), rows_of(bench.mixed), settings, tie=tie)


def _finding(found: SearchAgreement, *, is_kept: bool, more: dict[str, int] | None = None) -> CheckResult:
    figures = {
        "sentences": found.compared,
        "changed": len(found.breaks),
        "ties": len(found.ties),
        "largest_score_change": found.drift,
        **(more or {}),
    }
    sentence = f"{counted(found.compared, 'sentence')} alone and in padded batches: "
    if found.breaks:
        sentence += f"{len(found.breaks):,} differ"
    elif not is_kept:
        sentence += f"the same tokens, but a score moved by {found.drift:.1e}, more than {TIE:g}"
    else:
        sentence += f"the same tokens, scores {within(found.drift)}"
    if found.ties:
        widest = max(each.gap for each in found.ties)
        sentence += f"; {counted(len(found.ties), 'tie')} decided otherwise, candidates at most {widest:.0e} apart"
    worst = str(found.widest) if found.widest else None
    if worst is None and found.drifted is not None:
        worst = f"the score of {shown(found.drifted)} moved by {found.drift:.1e}"
    return judged(is_kept, sentence, figures=figures, worst=worst)


SAME_LINE = 1e-2
"""Tolerance between the reported log P of an output and its recomputed value: well above all rounding."""

SAMPLES = 2
"""Texts drawn for each line."""


class TranslatorChecks:
    """A translator, the lines it is checked with, and values shared by several checks."""

    def __init__(self, loaded: LoadedModel, lines: CheckLines, *, seed: int) -> None:
        self.translator = Translator(loaded)
        self.seed = seed
        self.texts = lines.texts
        self.all = lines.with_hard_ones(self.translator.tokenizers.source, limit=self.translator.longest)
        self.bench = CaseMaker(self.translator, [*lines.texts, *self.all[len(lines.texts) : -1]], seed=seed)

    def checks(self) -> list[Check]:
        """All checks, in the order in which they are reported."""
        bench, settings = self.bench, self.bench.settings

        def check(name: str, run: partial[CheckResult], passes: int) -> Check:
            return Check(name, PROMISES[name], run, passes)

        return [
            check("saved", partial(check_saved, self.translator.loaded, self._outputs), 2),
            check("lines", partial(check_lines, self.translator, self.all), 2),
            check("blank", partial(check_blank, self.translator), 0),
            check("batch", partial(check_batches, bench), 6),
            check("batch-int8", partial(check_int8_batches, bench), 6),
            check("greedy", partial(self._on_cases, check_greedy, settings), 2),
            check("fast", partial(self._on_cases, check_fast, settings), 2),
            check("plan", partial(check_plan, bench), 2),
            check("complete", partial(self._on_cases, check_complete, settings), 5),
            check("terms", partial(self._on_cases, partial(check_terms, source=True), settings), 4),
            check("score", partial(check_score, bench), 2),
            check("seed", partial(check_seed, self.translator, self.texts, seed=self.seed), 3),
        ]

    @cached_property
    def cases(self) -> list[Case]:
        """The sentences, batched for speed."""
        return self.bench.sorted

    def _on_cases(self, check: SearchCheck, settings: SearchConfig) -> CheckResult:
        if not self.cases:
            return CheckResult("not applicable", "no line holds anything to translate")
        return check(self.cases, settings)

    def _outputs(self, loaded: Loaded) -> list[object]:
        found = Translator(loaded).search(self.texts)
        return [[(each.text, each.score, each.hypotheses) for each in of_line] for of_line in found]


# --- lines -----------------------------------------------------------------------------------------------------------


@torch.inference_mode()
def of_other_lines(translator: Translator, lines: Sequence[str], found: Sequence[Sequence[Translation]]) -> list[int]:
    """Positions of translations whose log P, given the line at that position, differs from the reported one."""
    bench = CaseMaker(translator, lines, seed=0)
    # A line in parts has an output for each of them, in their order.
    hypotheses = [each for of_line in found for each in of_line[0].hypotheses]
    strangers = set()
    for places in bench.batches():
        symbols = [hypotheses[place].symbols for place in places]
        case = bench.case(places)
        forced = forced_search(case.stepper(bench.settings), case.source, symbols, settings=bench.settings)
        for place, again in zip(places, forced, strict=True):
            tokens = hypotheses[place].token_log_probs
            apart = abs(sum(tokens) - sum(again.token_log_probs[: len(tokens)]))
            if not apart <= SAME_LINE:
                strangers.add(bench.parts[place].line)
    return sorted(strangers)


def check_lines(
    translator: Translator,
    lines: Sequence[str],
    strange: Callable[[Translator, Sequence[str], Sequence[Sequence[Translation]]], list[int]] = of_other_lines,
) -> CheckResult:
    """N lines in, N lines out: through a file and back, and each translation is that of its own line.

    `strange` finds the positions of those that are not.
    """
    with TemporaryDirectory(prefix="seqloom-selfcheck-") as place:
        file = Path(place) / "lines"
        write_atomically(file, "".join(f"{line}\n" for line in lines))
        read = list(read_lines(file))
    found = [of_line[:1] for of_line in translator.search(read, search=_beam(translator))]
    broken = [of_line for of_line in found if not of_line or "\n" in of_line[0].text]
    strangers = []
    if len(found) == len(read) and not broken:
        strangers = strange(translator, read, found)
    is_kept = len(found) == len(lines) and not broken and not strangers
    sentence = f"{counted(len(lines), 'line')} in, {len(found):,} out"
    if broken:
        sentence += f"; {len(broken):,} of them hold a line end, or nothing was found"
    if strangers:
        sentence += f"; {len(strangers):,} do not belong to their line"
    figures: dict[str, Figure] = {"in": len(lines), "out": len(found), "of_other_lines": len(strangers)}
    worst = None
    if strangers:
        at = strangers[0]
        worst = f"line {at + 1}, {shown(read[at])}, gives {shown(found[at][0].text)}"
    return judged(is_kept, sentence, figures=figures, worst=worst)


def check_blank(translator: Translator) -> CheckResult:
    """A blank line gives an empty line without a score, alone and among others."""
    lines = [*BLANK, "x", *BLANK]
    found = translator.search(lines, search=_beam(translator))
    wrong = [
        f"{shown(line)} gives {shown(of_line[0].text)} with score {of_line[0].score}"
        for line, of_line in zip(lines, found, strict=True)
        if is_blank(line) and (of_line[0].text != "" or of_line[0].score is not None)
    ]
    count = 2 * len(BLANK)
    sentence = f"{count} blank lines (empty, spaces, zero-width) give empty lines"
    if wrong:
        sentence = f"{len(wrong)} of {count} blank lines give something"
    return judged(not wrong, sentence, figures={"blank": count, "wrong": len(wrong)}, worst=wrong[0] if wrong else None)


def _beam(translator: Translator) -> SearchConfig:
    """The settings of the model with beam search: sampled outputs differ between calls."""
    plain = {"method": "beam", "nbest": 1, "rerank": "none", "precision": "float32", "shortlist": 0, "mode": "seqloom"}
    return translator.config.search.model_copy(update=plain)


# --- seeds -----------------------------------------------------------------------------------------------------------


def check_seed(translator: Translator, lines: Sequence[str], *, seed: int) -> CheckResult:
    """The same seed draws the same texts."""
    settings = SearchConfig(method="sample", nbest=SAMPLES, seed=seed)

    def drawn(chosen: SearchConfig) -> list[list[tuple[str, float | None]]]:
        return [[(each.text, each.score) for each in found] for found in translator.search(lines, search=chosen)]

    first, again = drawn(settings), drawn(settings)
    other = drawn(settings.model_copy(update={"seed": seed + 1}))
    return judge_draws(first, again, other, names=lines)


def judge_draws(
    first: Sequence[object], again: Sequence[object], other: Sequence[object], *, names: Sequence[str]
) -> CheckResult:
    """What was drawn twice with one seed, and once with another."""
    differing = [at for at, one in enumerate(first) if one != again[at]]
    changed = sum(one != another for one, another in zip(first, other, strict=True))
    sentence = f"drawn twice: {counted(len(first), 'line')} the same"
    if differing:
        sentence = f"drawn twice with one seed: {len(differing):,} of {counted(len(first), 'line')} differ"
    sentence += f"; another seed changes {changed:,}"
    if not changed:
        sentence += ", so this model leaves nothing to chance"
    figures: dict[str, Figure] = {"lines": len(first), "differ": len(differing), "changed_by_another_seed": changed}
    worst = None
    if differing:
        at = differing[0]
        worst = f"{shown(names[at])} gives {first[at]!s:.160} and {again[at]!s:.160}"
    return judged(not differing, sentence, figures=figures, worst=worst)


# --- scores ----------------------------------------------------------------------------------------------------------


@torch.inference_mode()
def check_score(bench: CaseMaker) -> CheckResult:
    """log P of the search = log P step by step over its symbols, and the same for a text by `score`.

    A text may be segmented differently than the output of the search, hence two comparisons.
    """
    settings, tokenizer = bench.settings, bench.translator.tokenizers.target
    off, worst, outputs, read_back = 0.0, None, 0, 0
    for case in bench.sorted:
        best = [hypotheses[0] for hypotheses in case.search(settings)]
        texts = [tokenizer.decode(each.symbols) for each in best]
        cut = tokenizer.encode_many(texts)
        outputs_of = [each.symbols for each in best], cut
        found, read = (
            forced_search(case.stepper(settings), case.source, each, settings=settings) for each in outputs_of
        )
        scored = bench.translator.score(case.names, texts)
        for at, (name, each) in enumerate(zip(case.names, best, strict=True)):
            outputs, read_back = outputs + 1, read_back + (tuple(cut[at]) == each.symbols)
            # What was cut at its maximum length has no end, which is counted when it is scored.
            end = 0.0 if each.is_finished else found[at].token_log_probs[-1]
            pairs = [(each.log_prob + end, found[at].log_prob)]
            value = scored[at]
            pairs += [] if value is None else [(value, read[at].log_prob)]
            for one, other in pairs:
                if not abs(one - other) <= off:
                    off = abs(one - other)
                    worst = f"{shown(name)} → {shown(texts[at])}: {one:.6f} and step by step {other:.6f}"
    sentence = f"log P of {counted(outputs, 'output')} by the search, by seqloom score and step by step, {within(off)}"
    if read_back < outputs:
        sentence += f"; the texts of {outputs - read_back:,} are cut into other pieces when they are read"
    if not off <= TIE:
        sentence = f"log P of an output differs by {off:.1e} between the search or seqloom score and single steps"
    figures: dict[str, Figure] = {"outputs": outputs, "read_back": read_back, "largest_difference": off}
    return judged(off <= TIE, sentence, figures=figures, worst=worst)


@runtime_checkable
class HasPlan(Protocol):
    """A stepper with a plan of its decoder, and where possible a compiled step; without a plan, it runs by layers."""

    plan: object | None
    compiled: object | None


# --- the plan --------------------------------------------------------------------------------------------------------


@torch.inference_mode()
def check_plan(bench: CaseMaker) -> CheckResult:
    """The decoder's compiled step and its plan give what its layers give, one after another."""
    settings = bench.settings.model_copy(update={"coverage": 0.0, "nbest": bench.settings.beam})
    planned = bench.stepper(settings)
    if not isinstance(planned, HasPlan):
        return CheckResult("not applicable", "recurrent models are decoded layer by layer, without a plan")
    if planned.plan is None:
        return CheckResult("not applicable", "no plan: positions inside attention, or the model is not on a CPU")
    off, worst, count = 0.0, None, 0
    for case in bench.sorted:
        outputs = [hypotheses[0].symbols for hypotheses in case.search(settings)]
        by_layers, by_plan = copy(planned), copy(planned)
        by_layers.plan = by_plan.compiled = None
        ways = [by_plan] if planned.compiled is None else [planned, by_plan]
        others = forced_search(by_layers, case.source, outputs, settings=settings)
        for way in ways:
            ones = forced_search(way, case.source, outputs, settings=settings)
            for name, one, other in zip(case.names, ones, others, strict=True):
                for a, b in zip(one.token_log_probs, other.token_log_probs, strict=True):
                    count += way is by_plan
                    if not abs(a - b) <= off:
                        off, worst = abs(a - b), f"a token of the translation of {shown(name)}: {a:.6f} and {b:.6f}"
    sentence = f"log P of {count:,} tokens by the plan and by the layers, {within(off)}"
    if not off <= TIE:
        sentence = f"log P of a token differs by {off:.1e} between the decoder's plan and its layers"
    return judged(off <= TIE, sentence, figures={"tokens": count, "largest_difference": off}, worst=worst)
