"""Self-checks on a translator: they hold on a sound model, and each of them sees the fault that it is there for."""

import math
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from seqloom.apps import backends as stepping
from seqloom.apps.translator import Translation, Translator
from seqloom.core.errors import DataError, ModelError, UsageError
from seqloom.core.events import Event
from seqloom.core.stepping import Source, State, Step, Stepper
from seqloom.nn.fast.compiled_step import CompiledStep
from seqloom.nn.fast.decoder_plan import DecoderPlan
from seqloom.nn.fast.int8 import with_int8
from seqloom.runs.loading import load
from seqloom.runs.train import Trained
from seqloom.search.hypothesis import Hypothesis
from seqloom.search.settings import SearchConfig
from seqloom.selfcheck import files, run
from seqloom.selfcheck import searches as searching
from seqloom.selfcheck import translators as batching
from seqloom.selfcheck.cases import Case, CaseMaker, bare_settings
from seqloom.selfcheck.files import check_files, check_saved
from seqloom.selfcheck.lines import BLANK, HARD, CheckLines, given_lines, made_lines, own_lines
from seqloom.selfcheck.promises import PROMISES, Check, CheckResult
from seqloom.selfcheck.run import CheckReport, selfcheck, selfcheck_page, timed
from seqloom.selfcheck.searches import agreement, check_complete, check_fast, check_greedy, check_terms, rows_of
from seqloom.selfcheck.translators import (
    check_batches,
    check_blank,
    check_int8_batches,
    check_lines,
    check_plan,
    check_score,
    check_seed,
    judge_draws,
)

LINES = ("The old man reads a book.", "A dog sleeps.", "", "x y")
Patch = pytest.MonkeyPatch


@pytest.fixture(scope="module")
def translator(tiny: Trained) -> Translator:
    return Translator(load(tiny.model))


@pytest.fixture
def bench(translator: Translator) -> CaseMaker:
    return CaseMaker(translator, LINES, seed=1)


# --- steppers with faults --------------------------------------------------------------------------------------------


@dataclass
class Faulty:
    """A stepper whose log-probabilities are changed by somebody who looks at the batch."""

    inner: Stepper
    change: Callable[[Tensor, int], Tensor]
    sentences: int = 0

    @property
    def begin(self) -> int:
        return self.inner.begin

    @property
    def end(self) -> int:
        return self.inner.end

    def start(self, source: Source) -> State:
        self.sentences = len(source.lengths)
        return self.inner.start(source)

    def step(self, state: State, last: Tensor) -> Step:
        step = self.inner.step(state, last)
        return replace(step, log_probs=self.change(step.log_probs, self.sentences))


def spoil(monkeypatch: Patch, change: Callable[[Tensor, int], Tensor]) -> None:
    """Change what every search of a bench sees."""
    whole = CaseMaker.stepper
    monkeypatch.setattr(CaseMaker, "stepper", lambda self, settings: Faulty(whole(self, settings), change))


@dataclass(frozen=True)
class Rows:
    """The last symbols of rows; symbol 9 stands for none."""

    last: Tensor

    def select(self, rows: Tensor) -> "Rows":
        return Rows(self.last[rows])


class Table:
    """P(next | last) from a table that may depend on the number of sentences; 0 begins, 1 ends."""

    begin, end = 0, 1

    def __init__(self, table: Callable[[int], Sequence[Sequence[float]]]) -> None:
        self.table, self.sentences = table, 0

    def start(self, source: Source) -> Rows:
        self.sentences = len(source.lengths)
        return Rows(source.lengths)

    def step(self, state: State, last: Tensor) -> Step:
        return Step(torch.tensor(self.table(self.sentences), dtype=torch.float32).log()[last], Rows(last))


def case_of(table: Callable[[int], Sequence[Sequence[float]]], *, sentences: int = 1) -> Case:
    source = Source(torch.ones(sentences, 1, dtype=torch.long), torch.ones(sentences, dtype=torch.long))
    names = tuple(f"sentence {number}" for number in range(sentences))
    return Case(lambda _: Table(table), source, names, lambda symbols: " ".join(map(str, symbols)))


TOY = SearchConfig(beam=1, length_normalisation="none", length_factor=0.0, length_constant=4)
SOUND = ([0.0, 0.1, 0.5, 0.4], [0.25] * 4, [0.0, 0.6, 0.2, 0.2], [0.0, 1.0, 0.0, 0.0])
"""After the beginning, 2 is likelier than 3; but 3 ends for certain: a beam of one is led astray."""


# --- all of it -------------------------------------------------------------------------------------------------------


def test_all_promises_hold_on_a_sound_translator(tiny: Trained) -> None:
    events: list[Any] = []
    report = selfcheck(tiny.run, count=2, listener=events.append)
    outcomes = {each.name: each.finding.outcome for each in report.checked}
    assert report.is_kept, [each for each in report.checked if each.finding.outcome == "broken"]
    assert set(outcomes) == set(PROMISES) - {"features"}
    assert {name for name, outcome in outcomes.items() if outcome == "not applicable"} <= {"batch-int8", "complete"}
    assert "2 lines of the dev text of the run" in report.lines
    assert report.advice is None
    done = [event["done"] for event in events]
    assert done == sorted(done)
    assert done[-1] == events[-1]["all"]
    page = selfcheck_page(report)
    assert "✓" in page
    assert all(promise in page for name, promise in PROMISES.items() if name not in ("features", "plan"))


def test_a_check_that_stops_is_a_broken_promise() -> None:
    def stop() -> CheckResult:
        raise ModelError("the model gave no numbers")

    assert timed(Check("greedy", "promise", stop)).finding.sentence == "the check stopped: the model gave no numbers"
    assert timed(Check("greedy", "promise", stop)).finding.outcome == "broken"


def test_each_promise_is_reported_when_it_is_decided(tiny: Trained, monkeypatch: Patch) -> None:
    threads, events, reports, seen = (
        torch.get_num_threads(),
        list[Event](),
        list[CheckReport](),
        list[tuple[int, int]](),
    )

    def look() -> CheckResult:
        seen.append((len(reports), torch.get_num_threads()))
        return CheckResult("holds", "as it should be")

    checks = [Check(name, name, look, passes) for name, passes in (("one", 1), ("two", 2), ("three", 3))]
    monkeypatch.setattr(run, "_checks", lambda *_, **__: ("2 lines", checks))
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    torch.set_num_threads(2)
    try:
        report = selfcheck(tiny.model, listener=events.append, decided=reports.append)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(threads)
    assert seen == [(1, 1), (2, 1), (3, 1)]
    assert reports[-1] == report
    assert [each.left for each in reports] == [("one", "two", "three"), ("two", "three"), ("three",), ()]
    assert [(event["done"], event["all"]) for event in events] == [(1, 4), (2, 4), (3, 4), (4, 4)]
    assert "left" not in events[0].values, "nothing to go by yet"
    assert events[1]["left"] == pytest.approx(5 * report.checked[1].seconds)
    assert events[3]["left"] == 0


def test_a_report_names_what_is_broken_and_what_to_do() -> None:
    broken = timed(
        Check("terms", "terms add up", lambda: CheckResult("broken", "3 is missing", {}, "<script>x</script>"))
    )
    report = CheckReport(Path("run/model"), "translator", "1 line", (broken,), {"torch": "2"})
    assert report.verdict == "1 of 1 promise is broken: terms."
    assert "Please report it" in (report.advice or "")
    page = selfcheck_page(report)
    assert "&lt;script&gt;x" in page
    assert "<script>" not in page


# --- files -----------------------------------------------------------------------------------------------------------


def test_a_flipped_byte_of_the_weights_is_found_and_nothing_else_is_run(tiny: Trained, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(tiny.model, folder)
    weights = bytearray((folder / "model.safetensors").read_bytes())
    weights[-5] ^= 1
    (folder / "model.safetensors").write_bytes(weights)
    report = selfcheck(folder, count=1)
    assert [each.name for each in report.broken] == ["files"]
    assert len(report.checked) == 1
    assert "model.safetensors: SHA-256 is" in report.checked[0].finding.sentence
    assert "Copy the model directory again" in (report.advice or "")


def test_a_folder_that_cannot_be_checked_is_refused(tiny: Trained, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(tiny.model, folder)
    (folder / "manifest.json").unlink()
    with pytest.raises(ModelError, match=r"manifest\.json"):
        selfcheck(folder)
    with pytest.raises(UsageError, match="model directory not found"):
        selfcheck(tmp_path / "nowhere")


def test_unlisted_files_are_reported(tiny: Trained, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(tiny.model, folder)
    (folder / "notes.txt").write_text("mine")
    found = check_files(folder)
    assert found.outcome == "holds"
    assert "such as notes.txt" in found.sentence


def test_weights_that_change_when_saved_are_found(tiny: Trained, monkeypatch: Patch) -> None:
    loaded = load(tiny.model)
    whole = files.stored_weights

    def rounded(model: torch.nn.Module) -> dict[str, Tensor]:
        return {name: tensor.half().float() for name, tensor in whole(model).items()}

    assert check_saved(loaded, lambda _: [1]).outcome == "holds"
    monkeypatch.setattr(files, "stored_weights", rounded)
    found = check_saved(loaded, lambda _: [1])
    assert found.outcome == "broken"
    assert "changed" in found.sentence


def test_a_model_that_gives_something_else_after_loading_is_found(tiny: Trained) -> None:
    calls = iter((["one", "two"], ["one", "three"]))
    found = check_saved(load(tiny.model), lambda _: next(calls))
    assert found.outcome == "broken"
    assert found.worst == "before: two; after: three"


# --- lines -----------------------------------------------------------------------------------------------------------


def test_a_line_that_is_lost_or_swapped_is_found(translator: Translator, monkeypatch: Patch) -> None:
    lines = [*LINES, *HARD[:2]]
    assert check_lines(translator, lines).outcome == "holds"
    whole = Translator.search

    def lose(self: Translator, given: Sequence[str], **options: Any) -> list[list[Translation]]:
        return whole(self, given, **options)[:-1]

    def swap(self: Translator, given: Sequence[str], **options: Any) -> list[list[Translation]]:
        found = whole(self, given, **options)
        return [found[1], found[0], *found[2:]]

    monkeypatch.setattr(Translator, "search", lose)
    assert check_lines(translator, lines).sentence == "6 lines in, 5 out"
    assert check_lines(translator, lines).outcome == "broken"
    monkeypatch.setattr(Translator, "search", swap)
    found = check_lines(translator, lines)
    assert found.outcome == "broken"
    assert found.figures["of_other_lines"] == 2


def test_a_blank_line_that_gives_text_is_found(translator: Translator, monkeypatch: Patch) -> None:
    assert check_blank(translator).outcome == "holds"
    monkeypatch.setattr(Translator, "search", lambda _self, lines, **_: [[Translation("so", -1.0)] for _ in lines])
    found = check_blank(translator)
    assert (found.outcome, found.figures["wrong"]) == ("broken", 2 * len(BLANK))


def test_lines_are_drawn_the_same_by_the_same_seed(tmp_path: Path, translator: Translator) -> None:
    file = tmp_path / "lines.en"
    file.write_text("".join(f"line {number}\n" for number in range(40)))
    one, same, other = (given_lines(file, translator.config, count=5, seed=seed) for seed in (1, 1, 2))
    assert one == same
    assert one.texts != other.texts
    assert "5 lines of" in one.origin
    assert given_lines(file, translator.config, count=100, seed=1).texts == tuple(
        f"line {number}" for number in range(40)
    )
    tokenizer = translator.tokenizers.source
    made = made_lines(tokenizer, count=4, seed=1)
    assert made == made_lines(tokenizer, count=4, seed=1)
    assert made.texts != made_lines(tokenizer, count=4, seed=2).texts
    assert "pieces of the model's tokeniser" in made.origin
    table = tmp_path / "pairs.tsv"
    table.write_text("one\teins\ntwo\tzwei\n")
    assert given_lines(table, translator.config, count=9, seed=1).texts == ("one", "two")
    file.write_text("")
    with pytest.raises(DataError, match="is empty"):
        given_lines(file, translator.config, count=5, seed=1)


def test_only_a_run_provides_its_dev_text(tiny: Trained, tmp_path: Path) -> None:
    loaded = load(tiny.model)
    tokenizer = loaded.tokenizers.source
    ask = partial(own_lines, config=loaded.config, tokenizer=tokenizer, count=2, seed=1)
    assert "dev text of the run" in ask(tiny.run).origin
    assert "dev text of the run" in ask(tiny.model).origin  # which lies in its run
    shutil.copytree(tiny.model, tmp_path / "model")
    assert "pieces of the model's tokeniser" in ask(tmp_path / "model").origin
    moved = loaded.config.data.model_copy(update={"dev": ("gone.en", "gone.de")})
    stored = own_lines(tiny.run, loaded.config.model_copy(update={"data": moved}), tokenizer=tokenizer, count=2, seed=1)
    assert "stored dev text" in stored.origin
    assert all(stored.texts)


def test_the_long_line_is_longer_than_the_model_takes(translator: Translator) -> None:
    lines = CheckLines(("A dog sleeps.",), "here").with_hard_ones(translator.tokenizers.source, limit=60)
    assert len(translator.tokenizers.source.encode(lines[-1])) > 60
    assert set(BLANK) | set(HARD) <= set(lines)


# --- batches ---------------------------------------------------------------------------------------------------------


def test_a_model_that_looks_at_the_batch_is_found(bench: CaseMaker, monkeypatch: Patch) -> None:
    assert check_batches(bench).outcome == "holds"

    spoil(monkeypatch, lambda log_probs, sentences: log_probs.flip(1) if sentences > 1 else log_probs)
    found = check_batches(bench)
    assert found.outcome == "broken"
    assert found.figures["changed"] == 3
    assert " differ" in found.sentence


def test_a_score_that_moves_with_the_batch_is_found(bench: CaseMaker, monkeypatch: Patch) -> None:
    spoil(monkeypatch, lambda log_probs, sentences: log_probs - 1e-3 * (sentences > 1))
    found = check_batches(bench)
    assert found.outcome == "broken"
    assert (found.figures["changed"], found.figures["ties"]) == (0, 0)


@pytest.mark.parametrize(("apart", "is_tie"), [(2e-5, True), (2e-3, False)])
def test_ties_are_distinguished_from_changes(apart: float, is_tie: bool) -> None:
    def table(sentences: int) -> Sequence[Sequence[float]]:
        lead = apart if sentences > 1 else -apart
        return [0.0, 0.0, 0.5 + lead / 2, 0.5 - lead / 2], [0.25] * 4, [0.0, 0.9, 0.1, 0.0], [0.0, 0.9, 0.1, 0.0]

    alone, together = case_of(table), case_of(table, sentences=2)
    found = agreement(rows_of([alone]), rows_of([together])[:1], TOY, tie=1e-4)
    assert (len(found.ties), len(found.breaks)) == ((1, 0) if is_tie else (0, 1))
    assert found.widest is not None
    assert found.widest.gap == pytest.approx(2 * apart, rel=0.1)


def test_a_finished_tie_is_measured_by_its_scores() -> None:
    def table(sentences: int) -> Sequence[Sequence[float]]:
        last = 0.9 + (2e-5 if sentences > 1 else -2e-5)
        return [0.0, 0.0, 0.5, 0.5], [0.25] * 4, [0.0, 0.9, 0.1, 0.0], [0.0, last, 1 - last, 0.0]

    wide = TOY.model_copy(update={"beam": 2})
    pair = rows_of([case_of(table)]), rows_of([case_of(table, sentences=2)])[:1]
    found = agreement(*pair, wide, tie=1e-4)
    assert [each.gap < 1e-4 for each in found.ties] == [True]
    assert not found.breaks


def test_eight_bits_are_checked_where_there_are_some(bench: CaseMaker, monkeypatch: Patch) -> None:
    assert check_int8_batches(bench).outcome == "not applicable"
    small = partial(with_int8, least_weights=1)
    for module in (batching, stepping):
        monkeypatch.setattr(module, "with_int8", small)
    found = check_int8_batches(bench)
    assert found.outcome == "holds"
    assert found.figures["matrices_in_8_bits"]
    spoil(monkeypatch, lambda log_probs, sentences: log_probs.flip(1) if sentences > 1 else log_probs)
    assert check_int8_batches(bench).outcome == "broken"


# --- searches --------------------------------------------------------------------------------------------------------


def test_a_greedy_search_that_differs_is_found(bench: CaseMaker, monkeypatch: Patch) -> None:
    assert check_greedy(bench.sorted, bench.settings).outcome == "holds"
    whole = searching.greedy_search

    def other(stepper: Stepper, source: Source, settings: SearchConfig) -> list[Hypothesis]:
        found = whole(stepper, source, settings)
        first = found[0]
        log_probs = (first.token_log_probs[0] - 1.0, *first.token_log_probs[1:])
        return [replace(first, symbols=(5, *first.symbols[1:]), token_log_probs=log_probs), *found[1:]]

    monkeypatch.setattr(searching, "greedy_search", other)
    found = check_greedy(bench.sorted, bench.settings)
    assert found.outcome == "broken"
    assert found.figures["changed"] == 1


def test_a_fast_search_that_differs_is_found(bench: CaseMaker, monkeypatch: Patch) -> None:
    assert check_fast(bench.sorted, bench.settings).outcome == "holds"
    whole = searching.beam_search

    def other(stepper: Stepper, source: Source, settings: SearchConfig) -> list[list[Hypothesis]]:
        return [found[::-1] for found in whole(stepper, source, settings)]

    monkeypatch.setattr(searching, "beam_search", other)
    found = check_fast(bench.sorted, bench.settings)
    assert (found.outcome, found.figures["lists_that_differ"]) == ("broken", 3)


@pytest.mark.parametrize("kind", [DecoderPlan, CompiledStep])
def test_a_plan_that_differs_from_the_layers_is_found(kind: type, bench: CaseMaker, monkeypatch: Patch) -> None:
    assert check_plan(bench).outcome == "holds"
    name = "__call__" if kind is DecoderPlan else "log_probs"
    whole = getattr(kind, name)

    def differs(*given: Any) -> Any:
        found = whole(*given)
        return found + torch.arange(found.shape[1]) / 10

    monkeypatch.setattr(kind, name, differs)
    found = check_plan(bench)
    assert found.outcome == "broken"
    assert "plan and its layers" in found.sentence


def test_a_false_mark_of_completeness_is_found(monkeypatch: Patch) -> None:
    led_astray, sure = case_of(lambda _: SOUND), case_of(lambda _: [[0.0, 0.0, 0.0, 1.0], *SOUND[1:]])
    found = check_complete([led_astray, sure], TOY)
    assert (found.outcome, found.figures["complete"], found.figures["others_improved"]) == ("holds", 1, 1)
    assert check_complete([led_astray], TOY).outcome == "not applicable"
    whole = Case.search

    def mark(self: Case, settings: SearchConfig) -> list[list[Hypothesis]]:
        return [[replace(each, is_complete=True) for each in some] for some in whole(self, settings)]

    monkeypatch.setattr(Case, "search", mark)
    found = check_complete([led_astray, sure], TOY)
    assert found.outcome == "broken"
    assert found.figures["largest_lead"] == pytest.approx(math.log(0.4 / 0.3))


@pytest.mark.parametrize("fault", ["score", "token", "nan"])
def test_terms_that_do_not_add_up_are_found(bench: CaseMaker, monkeypatch: Patch, fault: str) -> None:
    assert check_terms(bench.sorted[:1], bench.settings, source=True).outcome == "holds"
    changes: dict[str, Callable[[Hypothesis], Hypothesis]] = {
        "score": lambda each: replace(each, score=each.score + 1e-6),
        "token": lambda each: replace(each, token_log_probs=each.token_log_probs[1:]),
        "nan": lambda each: replace(each, score=math.nan),
    }
    whole = Case.search

    def search(self: Case, settings: SearchConfig) -> list[list[Hypothesis]]:
        return [[changes[fault](each) for each in some] for some in whole(self, settings)]

    monkeypatch.setattr(Case, "search", search)
    assert check_terms(bench.sorted[:1], bench.settings, source=True).outcome == "broken"


def test_settings_that_make_another_search_are_left_out() -> None:
    given = SearchConfig(beam=8, groups=2, no_repeat=3, alpha=0.9, precision="int8", shortlist=5)
    found = bare_settings(given)
    assert (found.beam, found.alpha) == (8, 0.9)
    assert (found.groups, found.no_repeat, found.precision, found.shortlist) == (1, 0, "float32", 0)


# --- scores and seeds ------------------------------------------------------------------------------------------------


def test_a_score_that_is_not_that_of_the_search_is_found(bench: CaseMaker, monkeypatch: Patch) -> None:
    assert check_score(bench).outcome == "holds"
    whole = Translator.score

    def off(self: Translator, sources: Sequence[str], targets: Sequence[str]) -> list[float | None]:
        return [None if each is None else each + 1e-3 for each in whole(self, sources, targets)]

    monkeypatch.setattr(Translator, "score", off)
    found = check_score(bench)
    assert found.outcome == "broken"
    assert found.figures["largest_difference"] == pytest.approx(1e-3, rel=0.1)


def test_draws_that_do_not_follow_the_seed_are_found(translator: Translator, monkeypatch: Patch) -> None:
    assert check_seed(translator, LINES, seed=1).outcome == "holds"
    whole, calls = Translator.search, iter(range(10))

    def unseeded(self: Translator, lines: Sequence[str], *, search: SearchConfig) -> list[list[Translation]]:
        return whole(self, lines, search=search.model_copy(update={"seed": next(calls)}))

    monkeypatch.setattr(Translator, "search", unseeded)
    assert check_seed(translator, LINES, seed=1).outcome == "broken"


def test_a_seed_without_effect_is_reported() -> None:
    found = judge_draws(["a"], ["a"], ["a"], names=["line"])
    assert found.outcome == "holds"
    assert "leaves nothing to chance" in found.sentence
    assert judge_draws(["a"], ["b"], ["a"], names=["line"]).worst == "'line' gives a and b"


def test_no_lines_to_check_with_are_refused(tiny: Trained) -> None:
    with pytest.raises(UsageError, match="count 0"):
        selfcheck(tiny.run, count=0)
