"""Several right answers per source: the best counts, once, by brute force; and the same in both significance tests."""

import random

import pytest

from seqloom.metrics.answers import BestAnswer, Questions
from seqloom.metrics.error_rate import ErrorRate
from seqloom.metrics.scoring import Bootstrap, approximate_randomisation, paired_bootstrap, score
from seqloom.metrics.translation import Bleu, ExactMatch, metric_named, score_named

SOURCES = ["read", "cat", "read ", "lead", "cat", "lead"]
REFERENCES = ["R EH D", "K AE T", "R IY D", "L EH D", "K AE T", "L IY D"]
OUTPUTS = ["R IY D", "K AE", "Q", "L EH", "K AE T", "Q"]


def test_the_best_answer_counts_once_for_each_source() -> None:
    questions = Questions.of(SOURCES, REFERENCES)
    assert questions is not None
    # A pair that is only repeated stays as many lines as it is.
    assert questions.of_line.tolist() == [0, 1, 0, 2, 3, 2]
    assert questions.answered_often == 2
    exact = score(BestAnswer(ExactMatch(), questions), OUTPUTS, references=REFERENCES, bootstrap=Bootstrap(1, 100))
    assert exact.value == 50  # read and the second cat; the outputs of later lines of a question do not count
    assert exact.signature.startswith("nrefs:best|")
    # read: none of 3, cat: 1 of 3, lead: 1 of 3, cat: none of 3
    rate = BestAnswer(ErrorRate("phone"), questions, is_error=True)
    assert score(rate, OUTPUTS, references=REFERENCES).value == pytest.approx(200 / 12)


def test_sources_without_other_answers_leave_a_metric_as_it_is() -> None:
    assert Questions.of(["a", "b", "a"], ["x", "y", "x "]) is None
    assert metric_named("per", sources=["a", "b"], references=["x", "y"]) == ErrorRate("phone")
    assert metric_named("bleu", sources=SOURCES, references=REFERENCES) == Bleu()


def test_error_rates_equal_a_search_over_all_answers() -> None:
    draw = random.Random(2)
    lines = [(str(draw.randint(0, 30)), " ".join(draw.choices("abc", k=draw.randint(1, 5)))) for _ in range(100)]
    outputs = {source: " ".join(draw.choices("abc", k=draw.randint(0, 5))) for source, _ in lines}
    metric = ErrorRate("phone")
    answers: dict[str, list[str]] = {}
    for source, answer in lines:
        answers.setdefault(source, []).append(answer)
    edits = length = 0
    for source, each in answers.items():
        found = [metric.counts(outputs[source], answer) for answer in (each if len(set(each)) > 1 else each[:1])]
        best = min(found, key=lambda counts: counts.edits / counts.length)
        times = 1 if len(set(each)) > 1 else len(each)
        edits, length = edits + times * best.edits, length + times * best.length
    sources, references = [source for source, _ in lines], [answer for _, answer in lines]
    best_of = metric_named("per", sources=sources, references=references)
    value = score(best_of, [outputs[source] for source in sources], references=references).value
    assert value == pytest.approx(100 * edits / length)
    worst = BestAnswer(metric, best_of.questions, is_error=False)  # type: ignore[attr-defined]
    assert score(worst, [outputs[source] for source in sources], references=references).value > value


def test_two_systems_are_compared_by_questions() -> None:
    metric = metric_named("exact-match", sources=SOURCES, references=REFERENCES)
    for test in (paired_bootstrap, approximate_randomisation):
        found = test(metric, REFERENCES, baseline=["Q"] * 6, system=REFERENCES, seed=1)
        assert (found.baseline, found.system) == (0, 100)
        assert test(metric, REFERENCES, baseline=OUTPUTS, system=OUTPUTS, seed=1).p_value == 1


def test_distinct_is_that_of_the_outputs_beside_that_of_the_references() -> None:
    outputs, references = ["I do not know.", "I do not know."], ["To be, or not to be", "that is it"]
    ours, theirs = score_named(["distinct-2"], outputs, references=references, language="en")
    assert (ours.name, ours.value, ours.interval) == ("distinct-2", 50.0, None)
    assert (theirs.name, theirs.value) == ("distinct-2 of the references", 100 * 7 / 8)
