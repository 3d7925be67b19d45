"""Model directories that an earlier version wrote: they still load, and give the same answers."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import seqloom

MODELS = Path(__file__).parent / "models"
EXPECTED = json.loads((MODELS / "expected.json").read_text(encoding="utf-8"))

LINES = ["The dog sleeps.", "Where is my book?", "He reads a long letter to his old friend.", ""]
TARGETS = ["Der Hund schläft.", "Wo ist mein Buch?", "Er liest.", ""]


def answers(path: Path) -> Any:
    """What a model says, by the public interface alone."""
    match path.stem:
        case "transformer" | "seq2seq" | "archive":
            translator = seqloom.Translator.load(path)
            found = translator.search(LINES, beam=4, nbest=2)
            return {
                "translations": [[each.text for each in of_line] for of_line in found],
                "scores": [[each.score for each in of_line] for of_line in found],
                "log_probs": translator.score(LINES, TARGETS),
            }
        case "rnn_lm" | "ngram":
            model = seqloom.LanguageModel.load(path)
            return {
                "log_probs": [each.log_prob for each in model.score(LINES[:3])],
                "generated": [each.text for each in model.generate("The", count=2, seed=5)],
            }
        case _:
            (nearest,) = seqloom.load(path).model.nearest(["the"], count=3)  # type: ignore[union-attr]
            return {"nearest": [each.word for each in nearest], "scores": [each.score for each in nearest]}


def close(found: Any, expected: Any) -> bool:
    """Texts are equal, numbers to rounding: sums are taken in another order on other processors."""
    if isinstance(expected, dict):
        return found.keys() == expected.keys() and all(close(found[key], expected[key]) for key in expected)
    if isinstance(expected, list):
        return len(found) == len(expected) and all(map(close, found, expected))
    if isinstance(expected, float):
        return bool(found == pytest.approx(expected, rel=1e-5))
    return bool(found == expected)


@pytest.mark.parametrize("name", EXPECTED)
def test_a_model_of_an_earlier_version_gives_the_same_answers(name: str) -> None:
    torch.set_num_threads(1)
    assert close(answers(MODELS / name), EXPECTED[name])


def test_other_weights_give_other_answers() -> None:
    """The comparison can fail."""
    assert not close(answers(MODELS / "seq2seq"), EXPECTED["transformer"])
