"""BLEU, chrF and TER: parity with sacrebleu, its bootstrap and its paired tests."""

import random

import numpy as np
import pytest
import sacrebleu
from hypothesis import given
from hypothesis import settings as effort
from hypothesis import strategies as st
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER
from sacrebleu.significance import PairedTest, _bootstrap_resample

import nasty
from seqloom.core.errors import DataError, UsageError
from seqloom.metrics.scoring import (
    Bootstrap,
    Metric,
    approximate_randomisation,
    paired_bootstrap,
    resampled_sums,
    score,
)
from seqloom.metrics.translation import (
    Bleu,
    Chrf,
    ExactMatch,
    Ter,
    dev_names_for,
    metrics_for,
    names_for,
    score_named,
    tokenize_for,
)

WORDS = (
    "the",
    "a",
    "cat",
    "sat",
    "ran",
    "on",
    "mat",
    "tree",
    ",",
    ".",
    "He",
    "sees",
    "It's",
    "co-op",
    "3.5",
    "%",
    "Über",
)
METRICS: tuple[Metric, ...] = (Bleu(), Chrf(), Chrf(word_order=2), Ter())
ENGINES = (BLEU, CHRF, lambda: CHRF(word_order=2), TER)
SEED = 12345  # sacrebleu's own, which cannot be handed in

lines = st.lists(st.lists(st.sampled_from(WORDS), max_size=9).map(" ".join), min_size=1, max_size=6)


def corpus(count: int, *, seed: int, noise: float) -> tuple[list[str], list[str]]:
    """References, and hypotheses in which some words are others."""
    chance = random.Random(seed)
    references = [[chance.choice(WORDS) for _ in range(chance.randint(3, 14))] for _ in range(count)]
    hypotheses = [[chance.choice(WORDS) if chance.random() < noise else word for word in line] for line in references]
    return [" ".join(line) for line in references], [" ".join(line) for line in hypotheses]


def test_values_and_signatures_are_sacrebleus() -> None:
    references, hypotheses = corpus(50, seed=1, noise=0.3)
    bleu = score(Bleu(), hypotheses, references=references)
    assert bleu.value == sacrebleu.corpus_bleu(hypotheses, [references]).score
    assert bleu.name == "BLEU"
    assert bleu.signature == f"nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:{sacrebleu.__version__}"
    assert bleu.interval is None
    lower = score(Bleu(tokenize="intl", lowercase=True), hypotheses, references=references)
    theirs = sacrebleu.corpus_bleu(hypotheses, [references], tokenize="intl", lowercase=True)
    assert lower.value == theirs.score
    assert "case:lc" in lower.signature
    assert "tok:intl" in lower.signature
    assert (
        score(Chrf(), hypotheses, references=references).value == sacrebleu.corpus_chrf(hypotheses, [references]).score
    )
    plus = score(Chrf(word_order=2), hypotheses, references=references)
    assert plus.value == sacrebleu.corpus_chrf(hypotheses, [references], word_order=2).score
    assert plus.name == "chrF2++"
    assert score(Ter(), hypotheses, references=references).value == sacrebleu.corpus_ter(hypotheses, [references]).score


@given(lines, st.randoms(use_true_random=False))
def test_vectorised_values_equal_sacrebleus_for_one_corpus(hypotheses: list[str], chance: random.Random) -> None:
    """Empty lines, no matches and missing orders included."""
    references = [" ".join(chance.choices(WORDS, k=chance.randint(0, 6))) for _ in hypotheses]
    for metric in METRICS:
        found = metric.statistics(hypotheses, references)
        assert metric.values(found.lines.sum(axis=0)[None])[0] == pytest.approx(found.value, rel=1e-12, abs=1e-12)


@pytest.mark.parametrize(("metric", "engine"), [*zip(METRICS, ENGINES, strict=True)])
def test_bootstrap_resamples_are_sacrebleus(metric: Metric, engine: type[BLEU]) -> None:
    references, hypotheses = corpus(60, seed=2, noise=0.4)
    found = metric.statistics(hypotheses, references)
    ours = metric.values(resampled_sums(found.lines, Bootstrap(SEED, 100)))
    _, theirs = _bootstrap_resample(found.lines.tolist(), engine(), 100)
    np.testing.assert_allclose(ours, [one.score for one in theirs], rtol=1e-6)


def test_the_interval_is_sacrebleus_and_holds_the_value() -> None:
    references, hypotheses = corpus(200, seed=3, noise=0.4)
    ours = score(Bleu(), hypotheses, references=references, bootstrap=Bootstrap(SEED))
    theirs = BLEU().corpus_score(hypotheses, [references], n_bootstrap=1000)
    assert ours.interval is not None
    low, high = ours.interval
    assert low < ours.value < high
    assert (high - low) / 2 == pytest.approx(theirs._ci, rel=1e-5)
    assert ours.signature.endswith("|bs:1000|seed:12345")
    again = score(Bleu(), hypotheses, references=references, bootstrap=Bootstrap(SEED))
    other = score(Bleu(), hypotheses, references=references, bootstrap=Bootstrap(7))
    assert again == ours
    assert other.interval != ours.interval


def test_a_thousand_resamples_of_a_large_test_set_are_drawn_alike_in_parts() -> None:
    parts = np.random.default_rng(0).integers(0, 30, size=(5000, 10)).astype(np.float64)
    sums = resampled_sums(parts, Bootstrap(5, 1000))
    drawn = np.random.default_rng(5).choice(5000, size=(1000, 5000))
    np.testing.assert_array_equal(sums[[0, 399, 400, 999]], parts[drawn[[0, 399, 400, 999]]].sum(axis=1))


@pytest.mark.parametrize(("metric", "engine"), [*zip(METRICS, ENGINES, strict=True)])
def test_paired_tests_give_sacrebleus_probabilities(metric: Metric, engine: type[BLEU]) -> None:
    references, baseline = corpus(80, seed=4, noise=0.42)
    _, system = corpus(80, seed=4, noise=0.37)
    for kind, samples in (("bs", 200), ("ar", 200)):
        test = PairedTest([("a", baseline), ("b", system)], {"m": engine()}, [references], kind, n_samples=samples)
        [theirs] = [column for name, column in test()[1].items() if name != "System"]
        if kind == "bs":
            ours = paired_bootstrap(metric, references, baseline=baseline, system=system, seed=SEED, resamples=samples)
        else:
            ours = approximate_randomisation(
                metric, references, baseline=baseline, system=system, seed=SEED, trials=samples
            )
        assert (ours.baseline, ours.system) == (theirs[0].score, theirs[1].score)
        if isinstance(metric, Ter):  # whole numbers of edits: trials that equal the observed difference count here
            assert theirs[1].p_value <= ours.p_value < theirs[1].p_value + 0.1
        else:
            assert 0.01 < ours.p_value < 0.99
            assert ours.p_value == pytest.approx(theirs[1].p_value, abs=1e-12)
        assert f"|{kind}:200|seed:12345" in ours.signature


@effort(max_examples=20)
@given(st.integers(0, 1000))
def test_a_system_compared_with_itself_or_swapped(seed: int) -> None:
    references, one = corpus(12, seed=seed, noise=0.3)
    _, two = corpus(12, seed=seed, noise=0.6)
    same = approximate_randomisation(Bleu(), references, baseline=one, system=one, seed=1, trials=50)
    assert (same.difference, same.p_value) == (0, 1)
    still = paired_bootstrap(Bleu(), references, baseline=one, system=one, seed=1, resamples=50)
    assert (still.interval, still.p_value) == ((0, 0), 1)
    there = approximate_randomisation(Bleu(), references, baseline=one, system=two, seed=1, trials=50)
    back = approximate_randomisation(Bleu(), references, baseline=two, system=one, seed=1, trials=50)
    assert there.difference == -back.difference
    assert there.p_value == back.p_value


def test_a_clear_difference_is_significant_and_noise_is_not() -> None:
    references, good = corpus(150, seed=6, noise=0.1)
    _, bad = corpus(150, seed=6, noise=0.5)
    clear = paired_bootstrap(Chrf(), references, baseline=bad, system=good, seed=0)
    assert clear.p_value < 0.01
    assert clear.interval is not None
    assert 0 < clear.interval[0] < clear.difference < clear.interval[1]
    assert approximate_randomisation(Chrf(), references, baseline=bad, system=good, seed=0, trials=500).p_value < 0.01
    one = [*bad[:60], *good[60:70], *bad[70:]]  # each has ten good lines, but not the same ones
    two = [*bad[:70], *good[70:80], *bad[80:]]
    assert paired_bootstrap(Chrf(), references, baseline=one, system=two, seed=0).p_value > 0.05


def test_counts_are_checked_first() -> None:
    with pytest.raises(DataError, match="2 hypotheses cannot be compared with 1 references"):
        score(Bleu(), ["a", "b"], references=["a"])
    with pytest.raises(DataError, match="nothing to score: 0 hypotheses and 0 references"):
        score(Bleu(), [], references=[])
    with pytest.raises(UsageError, match="hypotheses must be a list of lines, but one string was given: 'a cat'"):
        score(Bleu(), "a cat", references=["a cat"])
    with pytest.raises(DataError, match="system: 1 hypotheses cannot be compared with 2 references"):
        paired_bootstrap(Bleu(), ["a", "b"], baseline=["a", "b"], system=["a"], seed=0)
    with pytest.raises(UsageError, match="10 resamples cannot show"):
        score(Bleu(), ["a"], references=["a"], bootstrap=Bootstrap(0, 10))
    with pytest.raises(UsageError, match="0 trials"):
        approximate_randomisation(Bleu(), ["a"], baseline=["a"], system=["a"], seed=0, trials=0)


def test_the_tokeniser_follows_the_target_language() -> None:
    wanted = {"zh": "zh", "zh-Hans": "zh", "zh_TW": "zh", "ja": "char", "th": "char", "de": "13a", None: "13a"}
    assert {language: tokenize_for(language) for language in wanted} == wanted
    bleu, chrf, ter = metrics_for("zh-CN", lowercase=True)
    assert bleu == Bleu(tokenize="zh", lowercase=True)
    assert chrf == Chrf(lowercase=True)
    assert ter == Ter(unspaced=True)


def test_chinese_is_scored_by_character_without_spaces() -> None:
    bleu, _, ter = metrics_for("zh")
    hypotheses, references = ["我爱大妈和你们大家"], ["我爱苹果和你们大家"]
    assert 40 < score(bleu, hypotheses, references=references).value < 60
    assert score(ter, hypotheses, references=references).value == pytest.approx(100 * 2 / 9)
    assert score(Bleu(), hypotheses, references=references).value == 0


@pytest.mark.parametrize("language", [None, "zh", "ja"])
@given(nasty.lines(fewest=1, most=3, longest=40), nasty.lines(fewest=3, most=3, longest=40))
@effort(max_examples=20)
def test_any_text_has_its_scores_and_itself_the_best(language: str | None, first: list[str], other: list[str]) -> None:
    for metric in metrics_for(language):
        value = score(metric, first, references=other[: len(first)]).value
        assert np.isfinite(value)
        assert value >= 0
        same = [*first, "a b c d e f"]
        assert score(metric, same, references=same).value == pytest.approx(0 if isinstance(metric, Ter) else 100)


# --- exact match, and which metrics suit short references -------------------------------------------------------------


def test_exact_match_is_the_share_of_equal_lines() -> None:
    found = ["ran", " ran ", "Ran", "run", "T  AH1 F"]
    wanted = ["ran", "ran", "ran", "ran", "T AH1 F"]
    plain = score(ExactMatch(), found, references=wanted, bootstrap=Bootstrap(SEED, 100))
    assert (plain.name, plain.value) == ("exact match", 60.0)
    assert plain.signature == f"nrefs:1|case:mixed|spaces:collapsed|bs:100|seed:{SEED}"
    assert plain.interval is not None
    assert plain.interval[0] < 60 < plain.interval[1]
    assert score(ExactMatch(lowercase=True), found, references=wanted).value == 80.0


@pytest.mark.parametrize(
    ("references", "language", "names"),
    [
        (["ran", "houses", "well-known"], "en", ["exact match", "chrF2"]),
        (["T AH1 F", "AA0 R D EH1 M AH0", "K"], None, ["exact match", "PER"]),
        (["( ( the cat ) sat )", "( go )"], "en", ["bracket F1", "exact match"]),
        (["ein Hund", "der rote Ball", "drei"], "de", ["chrF2", "exact match"]),
        (["A man rides a bike.", "Two dogs run over the grass."], "en", ["BLEU", "chrF2"]),
        (["今天天气很好。", "你好吗？"], None, ["BLEU", "chrF2"]),
        (["水", "火"], "zh", ["exact match", "chrF2"]),
    ],
)
def test_the_metric_of_dev_text_follows_from_the_length_of_its_targets(
    references: list[str], language: str | None, names: list[str]
) -> None:
    found = score_named(dev_names_for(references), references, references=references, language=language)
    assert [each.name for each in found] == names
    shown = [metric.statistics(references, references).name for metric in metrics_for(language, references=references)]
    if "PER" in names:
        assert shown == ["exact match", "PER", "chrF2"]
    elif "bracket F1" in names:
        assert shown == names
    else:
        assert shown == ([] if "BLEU" in names else ["exact match"]) + ["BLEU", "chrF2", "TER"]


def test_references_far_shorter_than_their_sources_are_summaries() -> None:
    references = ["We train a small model.", "A new parser for English text."]
    sources = [" ".join(["word"] * 40)] * 2
    assert names_for(references, sources) == ("rouge-1", "rouge-2", "rouge-l")
    assert names_for(references, references) == ("bleu", "chrf", "ter")
    found = score_named(names_for(references, sources), sources, references=references, sources=sources, language="en")
    assert [each.name for each in found] == ["ROUGE-1", "ROUGE-2", "ROUGE-L"]
    assert "nrefs:best" in found[0].signature  # both have the same source
