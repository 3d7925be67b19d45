"""The parts of the benchmarks that are arithmetic: statistics, claims, flop counts, scores. Nothing is timed here."""

import json
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

BENCHMARKS = Path(__file__).resolve().parent.parent / "benchmarks"
sys.path[:0] = [str(BENCHMARKS), str(BENCHMARKS / "contestants")]

import peer_loop  # noqa: E402
import plain_torch  # noqa: E402

import beam_width  # noqa: E402
import multi30k_scores  # noqa: E402
import pretraining_pays  # noqa: E402
import run_all  # noqa: E402
from harness import ending, flops, processes, progress, ratios, rounds, sizes, toolkits  # noqa: E402
from seqloom.apps.translator import Translation  # noqa: E402
from seqloom.core.errors import DataError, UsageError  # noqa: E402
from seqloom.metrics.scoring import Bootstrap  # noqa: E402
from seqloom.search.hypothesis import Hypothesis  # noqa: E402
from seqloom.search.settings import SearchConfig  # noqa: E402


def test_claim_is_the_median_of_paired_ratios() -> None:
    peer = [100.0, 50.0, 80.0, 40.0, 200.0, 10.0, 60.0]
    ours = [rate * factor for rate, factor in zip(peer, [1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7], strict=True)]
    found = ratios.claim(ours, peer, goal=1.15, about="x training vs y")
    assert found.ratio == 1.4
    assert 1.1 <= found.low < found.ratio < found.high <= 1.7


def test_interval_of_equal_ratios_is_a_point() -> None:
    found = ratios.claim([12.5] * 7, [10.0] * 7, goal=1.15, about="x")
    assert (found.low, found.ratio, found.high) == (1.25, 1.25, 1.25)


def test_interval_of_the_median_covers_the_true_median_about_19_times_in_20() -> None:
    generator = np.random.default_rng(3)
    hits = 0
    for trial in range(200):
        low, high = ratios.median_interval(generator.normal(1.0, 0.1, size=21), seed=trial)
        hits += low <= 1.0 <= high
    assert 180 <= hits <= 199


@pytest.fixture
def _termination() -> Iterator[None]:
    """What a benchmark does on SIGTERM is for itself alone."""
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


REACHED, MISSED = ratios.Claim(1.2, 1.1, 1.3, 1.15, "fast"), ratios.Claim(1.1, 1.0, 1.2, 1.15, "slow")


@pytest.mark.usefixtures("_termination")
@pytest.mark.parametrize(
    ("outcome", "code"),
    [
        (ending.Outcome([REACHED]), 0),
        (ending.Outcome([]), 0),
        (ending.Outcome([REACHED, MISSED]), 1),
        (ending.Outcome([REACHED], is_good=False), 1),
    ],
)
def test_a_benchmark_ends_with_its_claims_and_a_code_that_tells(
    outcome: ending.Outcome, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    folders: list[Path] = []

    def measure(folder: Path) -> ending.Outcome:
        assert not list(folder.iterdir())
        folders.append(folder)
        return outcome

    with pytest.raises(SystemExit) as left:
        ending.measure_and_exit(measure)
    assert left.value.code == code
    assert ratios.read_claims(capsys.readouterr().out) == outcome.claims
    assert not folders[0].exists()


@pytest.mark.usefixtures("_termination")
@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (UsageError("no data"), 2, "no data"),
        (processes.ContestantError("it fell"), 2, "it fell"),
        (subprocess.CalledProcessError(3, ["peer"]), 2, "exit status 3"),
        (KeyboardInterrupt(), 130, ""),
    ],
)
def test_a_benchmark_that_could_not_measure_says_why(
    error: BaseException, code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def measure(folder: Path) -> ending.Outcome:
        raise error

    with pytest.raises(SystemExit) as left:
        ending.measure_and_exit(measure)
    shown = capsys.readouterr()
    assert left.value.code == code
    assert said in shown.err
    assert not shown.out


def test_fewer_than_seven_pairs_claim_nothing() -> None:
    with pytest.raises(ValueError, match="6 pairs are too few"):
        ratios.claim([1.0] * 6, [1.0] * 6, goal=1.0, about="x")
    with pytest.raises(ValueError, match="7 rates of ours and 8 of the peer"):
        ratios.claim([1.0] * 7, [1.0] * 8, goal=1.0, about="x")


@pytest.mark.parametrize(
    ("ratio", "low", "is_reached"),
    [(1.15, 1.01, True), (1.14, 1.10, False), (1.30, 1.00, False), (1.30, 0.99, False), (2.0, 1.9, True)],
)
def test_goal_needs_the_median_at_it_and_the_interval_above_one(ratio: float, low: float, is_reached: bool) -> None:
    assert ratios.Claim(ratio, low, 3.0, 1.15, "x").is_reached is is_reached


@pytest.mark.parametrize(
    ("ratio", "low", "goal", "is_reached"),
    [(0.95, 0.80, 0.95, True), (0.94, 0.93, 0.95, False), (1.0, 0.97, 1.0, True), (0.99, 0.98, 1.0, False)],
)
def test_goal_up_to_one_needs_the_median_alone(ratio: float, low: float, goal: float, is_reached: bool) -> None:
    assert ratios.Claim(ratio, low, 3.0, goal, "x").is_reached is is_reached


@pytest.mark.parametrize(("low", "is_reached"), [(0.96, True), (0.95, False), (0.5, False)])
def test_being_on_a_par_needs_the_whole_interval(low: float, is_reached: bool) -> None:
    assert ratios.Claim(1.3, low, 1.5, 0.95, "x", "low>").is_reached is is_reached
    assert ratios.claim([1.0] * 7, [1.0] * 7, goal=0.95, about="x", sign="low>").is_reached


def test_sizes_are_to_stay_below_their_goal_and_are_never_rounded_down() -> None:
    assert ratios.claim_of_sizes([12.0], [10.0], at_most=1.2, about="x").is_reached
    claim = ratios.claim_of_sizes([12.004, 12.01, 11.0], [10.0, 10.0, 9.0], at_most=1.2, about="x memory vs y")
    assert str(claim) == "ratio 1.21 [1.10, 1.34] goal <=1.2 x memory vs y"
    assert not claim.is_reached
    with pytest.raises(ValueError, match="rates ought to be high"):
        ratios.claim([1.0] * 7, [1.0] * 7, goal=1.2, about="x", sign="<=")


@pytest.mark.parametrize("line", ["goal 0.9", "goal low>0.95", "goal <=1.2", "goal 1.15"])
def test_claims_of_every_form_are_read_back(line: str) -> None:
    (claim,) = ratios.read_claims(f"ratio 1.02 [0.98, 1.05] {line} peephole full 512 vs nn.LSTM")
    assert str(claim) == f"ratio 1.02 [0.98, 1.05] {line} peephole full 512 vs nn.LSTM"
    assert claim.is_reached is (line != "goal 1.15")


def test_claim_line_has_the_agreed_form_and_is_read_back() -> None:
    claim = ratios.Claim(1.27, 1.19, 1.34, 1.15, "transformer-256 training vs transformers")
    assert str(claim) == "ratio 1.27 [1.19, 1.34] goal 1.15 transformer-256 training vs transformers"
    assert ratios.read_claims(f"| a table |\n\n{claim}\nthe end") == [claim]


def test_claims_are_judged_by_what_they_show_and_never_rounded_up() -> None:
    claim = ratios.claim([1.1499] * 7, [1.0] * 7, goal=1.15, about="x")
    assert claim.ratio == 1.14
    assert not claim.is_reached
    assert ratios.read_claims(str(claim)) == [claim]


def test_flops_of_one_pair_by_hand() -> None:
    shape = flops.Shape(width=2, feed_forward=3, encoder_layers=1, decoder_layers=2, symbols=5)
    found = flops.training_flops(shape, np.array([3]), np.array([4]))
    assert found.per_source_token == 6 * ((4 * 4 + 2 * 6) + 2 * (2 * 4))
    assert found.per_target_token == 6 * (2 * (6 * 4 + 2 * 6) + 5 * 2)
    pairs = 1 * 3 * 3 + 2 * (3 * 4 + 4 * 5 / 2)
    assert found.attention_per_target_token == pytest.approx(12 * 2 * pairs / 4)
    whole = found.of(source_tokens=3, target_tokens=4)
    assert whole == pytest.approx(3 * found.per_source_token + 4 * found.per_target_token + 12 * 2 * pairs)


def test_flops_count_every_matrix_of_the_plain_model_once_per_token() -> None:
    size = sizes.SIZES["transformer-128"]
    model = plain_torch.Translator(50, json.loads(size.to_json()))
    matrices = sum(weight.numel() for weight in model.parameters() if weight.dim() == 2)
    found = flops.training_flops(size.shape(50), np.array([1]), np.array([1]))
    assert found.per_source_token + found.per_target_token == 6 * matrices


def test_plain_model_drops_after_embeddings_and_sublayers_only_where_places_are_the_same() -> None:
    same = json.loads(sizes.SIZES["transformer-128"].to_json())
    rates = [module.p for module in plain_torch.Translator(9, same).modules() if isinstance(module, torch.nn.Dropout)]
    layers = same["layers"]
    assert rates.count(0.3) == 1 + 2 * layers + 3 * layers
    assert rates.count(0.0) == 2 * layers
    attentions = [
        module
        for module in plain_torch.Translator(9, same).modules()
        if isinstance(module, torch.nn.MultiheadAttention)
    ]
    assert [attention.dropout for attention in attentions] == [0.0] * 3 * layers


def test_batches_of_the_peers_hold_every_pair_once_and_keep_the_budget() -> None:
    generator = np.random.default_rng(1)
    sides = [[np.ones(int(n), dtype=np.int32) for n in generator.integers(1, 30, 500)] for _ in range(2)]
    pairs = peer_loop.Pairs(*sides)
    batches = pairs.batches(256)
    assert sorted(index for batch in batches for index in batch) == list(range(500))
    for batch in batches:
        source, previous, labels = pairs.tensors(batch)
        assert len(batch) * max(source.shape[1], labels.shape[1]) <= 256
        assert previous.shape == labels.shape
        assert (previous[:, 0] == peer_loop.BEGIN).all()
        assert torch.equal(previous[:, 1:], labels[:, :-1])


@pytest.mark.parametrize(
    ("budget", "steps"), [(0.0, 1), (-5.0, 1), (42.0, 1), (83.9, 1), (84.0, 2), (1e6, rounds.MOST_STEPS)]
)
def test_steps_fit_the_budget(budget: float, steps: int) -> None:
    assert rounds.steps_within(budget, [1.0, 2.0, 3.0], pairs=7) == steps


def test_race_ends_for_each_at_the_loss_or_at_the_last_step() -> None:
    class Fake:
        def __init__(self, name: str, losses: Iterator[float]) -> None:
            self.name, self._losses = name, losses

        def ask(self, command: str) -> dict[str, float]:
            return {"loss": next(self._losses)} if command == "validate" else {"tokens": 100, "seconds": 2.0}

    fast, slow = Fake("fast", iter([5.0, 3.0])), Fake("slow", iter([6.0, 5.5, 5.2, 5.1]))
    first, second = rounds.race([fast, slow], loss=3.6, chunk=10, most_steps=40, tell=lambda _: None)  # type: ignore[list-item]
    assert first == rounds.Arrival("fast", 3.0, steps=20, tokens=200, seconds=4.0, has_arrived=True)
    assert second == rounds.Arrival("slow", 5.1, steps=40, tokens=400, seconds=8.0, has_arrived=False)


def test_rates_of_toolkits_are_the_target_rates_without_the_warm_up() -> None:
    log = (
        "Step 5/20; acc: 3; 1200/1100 tok/s; 9 sec\nStep 10/20; 2011/1894 tok/s; 18 sec\nStep 15/20; 2100/ 1900 tok/s;"
    )
    assert toolkits.reported_rates(log) == [1894.0, 1900.0]


def test_durations_are_readable() -> None:
    assert [progress.duration(seconds) for seconds in (0.4, 59.4, 60, 125)] == [
        "0 s",
        "59 s",
        "1 min 00 s",
        "2 min 05 s",
    ]


def test_contestants_answer_and_end_with_the_context(tmp_path: Path) -> None:
    script = tmp_path / "echo.py"
    script.write_text(
        textwrap.dedent("""
        from serving import Line
        line = Line()
        print("this is no answer")
        line.say({"version": "1"})
        for name, number in line.commands():
            if name == "fail":
                raise RuntimeError("on purpose")
            line.say({"name": name, "number": number})
        """),
        encoding="utf-8",
    )
    start = (
        f"import sys, runpy; sys.path.insert(0, {str(BENCHMARKS / 'contestants')!r}); runpy.run_path({str(script)!r})"
    )
    contestant = processes.Contestant("echo", [sys.executable, "-c", start], threads=1)
    with processes.all_running([contestant]):
        assert contestant.facts == {"version": "1"}
        assert contestant.ask("run 5") == {"name": "run", "number": 5}
        assert contestant.ask("validate") == {"name": "validate", "number": 0}
        with pytest.raises(processes.ContestantError, match=r"(?s)echo ended.*on purpose"):
            contestant.ask("fail")
    assert contestant._process.returncode is not None


def test_page_shows_every_claim_and_says_which_missed() -> None:
    reached = "ratio 1.27 [1.19, 1.34] goal 1.15 one training vs peer"
    missed = "ratio 1.07 [0.99, 1.14] goal 1.3 two training vs peer"
    benchmark = run_all.Benchmark("some.py", "Some speed")
    memory = "ratio 1.10 [1.09, 1.11] goal <=1.2 three peak memory vs peer"
    output = f"### one\n| table |\n\n{reached}\n{missed}\n{memory}\n"
    result = run_all.Result(benchmark, "python benchmarks/some.py", output, 1)
    text = run_all.page([result], quick=True, date="2026-01-02")
    assert "| one training vs peer | 1.27 | 1.19 – 1.34 | 1.15 | reached |" in text
    assert "| two training vs peer | 1.07 | 0.99 – 1.14 | 1.3 | missed |" in text
    assert "| three peak memory vs peer | 1.10 | 1.09 – 1.11 | <=1.2 | reached |" in text
    assert "### one\n| table |" in text
    assert text.count(reached) == text.count(missed) == 1
    assert "date 2026-01-02" in text
    assert not result.is_reached


def test_every_script_that_claims_a_ratio_by_itself_is_in_the_list() -> None:
    listed = {each.script for each in run_all.BENCHMARKS}
    there = {path.name for path in BENCHMARKS.glob("*.py")}
    others = {
        "beam_width.py",
        "decode.py",
        "digits.py",
        "distillation.py",
        "embeddings.py",
        "few_pairs.py",
        "pretraining_pays.py",
        "vector_mapping.py",
        "decode_phrases.py",
        "multi30k_scores.py",
        "page.py",
        "kill_loop.py",
        "run_all.py",
        "serve.py",
        "shakespeare.py",
        "tasks.py",
        "tatoeba_split.py",
    }  # most need a model
    assert listed <= there
    assert there - listed <= others


def test_the_gain_of_pretraining_has_the_interval_of_student() -> None:
    seeds = [{"without": 7.0, "with": value} for value in (10.0, 11.0, 12.0)]
    found = pretraining_pays.mean_gain(seeds, "without", "with", what="gain", goal=3.0)
    assert found.value == 4.0
    assert found.is_reached
    assert found.interval == pytest.approx((4 - 4.303 / 3**0.5, 4 + 4.303 / 3**0.5))
    alone = pretraining_pays.mean_gain(seeds[:1], "without", "with", what="gain", goal=3.5)
    assert (alone.interval, alone.is_reached) == (None, False)


def test_multi30k_score_does_not_depend_on_the_case_or_the_spaces_of_the_hypothesis() -> None:
    references = ["Ein Mann (u.a. Dr. Kahn) fährt Rad.", "Zwei Hunde spielen im Schnee, oder?"] * 2
    bootstrap = Bootstrap(seed=1, resamples=40)
    for hypotheses in (references, [line.lower() for line in references], [f" {line.upper()} " for line in references]):
        found = multi30k_scores.multi30k_bleu(hypotheses, references, language="de", bootstrap=bootstrap)
        assert found.value == pytest.approx(100)
    assert "tok:none" in found.signature


def test_multi30k_words_are_parted_and_nothing_is_escaped() -> None:
    assert multi30k_scores.as_words(['A man\'s "hat" & coat, [red].'], "en") == ['a man \'s " hat " & coat , [ red ] .']


def test_multi30k_score_refuses_texts_that_do_not_fit() -> None:
    bootstrap = Bootstrap(seed=1, resamples=40)
    with pytest.raises(DataError, match="1 hypotheses cannot be compared with 2 references"):
        multi30k_scores.multi30k_bleu(["a"], ["a", "b"], language="de", bootstrap=bootstrap)
    with pytest.raises(DataError, match="1 reference lines are blank, the first is line 2"):
        multi30k_scores.multi30k_bleu(["a", "b"], ["a", " "], language="de", bootstrap=bootstrap)


def test_widths_are_measured_by_words_of_both_sides() -> None:
    asked: list[SearchConfig] = []

    def search(lines: list[str], *, search: SearchConfig) -> list[list[Translation]]:
        asked.append(search)
        hypothesis = Hypothesis((5, 6), True, -1.0, {"log_prob": -1.5}, (-0.5, -1.0))
        return [[Translation("ein Hund schläft.", -1.0, (hypothesis,))] for _ in lines]

    translator = SimpleNamespace(config=SimpleNamespace(search=SearchConfig(alpha=0.7)), search=search)
    found = beam_width.measure(
        translator, ["a", "b"], ["Ein Hund schläft.", "Der Hund schläft heute hier."],
        beam=7, normalisation="none", language="de",
    )  # fmt: skip
    assert (asked[0].beam, asked[0].length_normalisation, asked[0].alpha) == (7, "none", 0.7)
    assert (found.words, found.ratio, found.log_prob) == (4, 8 / 10, -1.5)
    assert 0 < found.bleu < 100
    assert beam_width.table([found]).splitlines()[-1].startswith("| `none` | 7 | ")
