"""ELMo from a text file to a model directory, with a table and with letters, and what can be done with it."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch

from seqloom.apps.contextual import compare, open_contextual, two_senses
from seqloom.apps.language_model import LanguageModel
from seqloom.core.errors import UsageError
from seqloom.core.events import read_events
from seqloom.runs.loading import load
from seqloom.runs.train import train
from tiny_runs import TINY_LM

OF_SENTENCES = [setting for setting in TINY_LM if not setting.startswith("task.")]
BEARS = ["I can't bear this", "This is a bear"]


@pytest.mark.parametrize("words", ["table", "characters"])
def test_a_text_becomes_a_model_with_contextual_vectors(tmp_path: Path, words: str) -> None:
    text = tmp_path / "bears.txt"
    text.write_text("".join(f"{line}\n" for line in two_senses(80, seed=1)), encoding="utf-8")
    settings = ["model.kind=elmo", f"model.input={words}", *OF_SENTENCES]
    trained = train(None, settings, out=tmp_path / "run", train=[str(text)])
    assert trained is not None
    checks = [event for event in read_events(trained.run / "events.jsonl") if event.kind == "validation"]
    assert {"forward_perplexity", "backward_perplexity", "perplexity"} <= checks[-1].values.keys()

    model = open_contextual(trained.run)
    found = compare(model, BEARS, "bear").similarities
    assert found[0, 0, 1] == pytest.approx(1, abs=1e-6)
    assert found[1, 0, 1] < 1 - 1e-4
    again = compare(open_contextual(trained.model), BEARS, "bear").similarities
    assert np.array_equal(found, again)

    # The forward half reads line by line, as it was trained.
    loaded = load(trained.model)
    lines = ["This is a dog", "I can hear it"]
    total = 0.0
    for line in lines:
        ids = loaded.tokenizers.target.encode(line)
        with torch.no_grad():
            both = model.model(torch.tensor([ids]), torch.tensor([len(ids)]))
            total += model.model.output.cross_entropy(both.following, torch.tensor([*ids, 2])).item()
    measured = LanguageModel(loaded).perplexity(lines).all[0]
    assert measured.value == pytest.approx(math.exp(total / measured.count), rel=1e-4)
    assert LanguageModel(loaded).generate(count=2, seed=1)[0].tokens >= 1


def test_other_models_have_no_contextual_vectors(tmp_path: Path) -> None:
    text = tmp_path / "bears.txt"
    text.write_text("".join(f"{line}\n" for line in two_senses(40, seed=1)), encoding="utf-8")
    trained = train(None, ["model.kind=rnn_lm", *TINY_LM], out=tmp_path / "run", train=[str(text)])
    assert trained is not None
    with pytest.raises(UsageError, match=r"is of kind rnn_lm; contextual vectors come from model\.kind=elmo"):
        open_contextual(trained.run)
