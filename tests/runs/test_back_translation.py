"""Back-translation for few pairs: sub-runs, the mark, the mixture, and what is kept."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from seqloom.core.errors import ConfigError, DataError, UsageError
from seqloom.core.events import Event
from seqloom.core.symbols import BEGIN, END
from seqloom.data.phrasebook import sample_sentences
from seqloom.data.store import Store
from seqloom.metrics.scoring import CorpusScore
from seqloom.runs.back_translation import MarkedEncoder, keep_the_better
from seqloom.runs.model_dir import read_card, read_settings
from seqloom.runs.train import Trained, resume, train
from seqloom.text.tokenizer import TextConfig, Tokenizers
from seqloom.text.tokenizer_training import train_tokenizer
from tiny_runs import TINY, write_corpus

# Enough to learn where sentences end: translations that never end are left out.
LONGER = ("training.steps=60", "training.validate_every=30", "training.save_every=30", "training.learning_rate=0.02")


def notices(events: list[Event]) -> str:
    return "\n".join(str(event["message"]) for event in events if event.kind == "notice")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Trained, list[Event]]:
    folder = tmp_path_factory.mktemp("back")
    files, dev = write_corpus(folder, count=40)
    text = folder / "more.de"
    lines = sample_sentences("de", count=60, seed=9)
    text.write_text("".join(f"{line}\n" for line in [*lines, lines[0], ""]))
    events: list[Event] = []
    settings = [*TINY, f"data.monolingual=[{text}]", "data.reverse=same", *LONGER]
    found = train(None, settings, out=folder / "run", train=files, dev=dev, listener=events.append)
    assert found is not None
    return found, events


@pytest.mark.slow
def test_a_run_has_a_baseline_a_reverse_model_and_a_mixture(trained: tuple[Trained, list[Event]]) -> None:
    run = trained[0].run
    assert (read_card(run / "reverse" / "model").source, read_card(run / "baseline" / "model").source) == ("de", "en")
    genuine, mixed = Store.open(run / "data" / "train"), Store.open(run / "data" / "mixed")
    # About half of the mixture is genuine: 40 pairs, once or twice, and up to 60 different lines of text.
    is_synthetic = np.array([mixed.sources[at][0] == BEGIN for at in range(len(mixed))])
    first = int(np.argmax(is_synthetic))
    assert first in (len(genuine), 2 * len(genuine))
    assert is_synthetic[first:].all()
    assert 0 < is_synthetic.sum() <= 60
    parts = sorted((run / "data" / "synthetic").iterdir())
    assert sum(len(part.read_text().splitlines()) for part in parts) == 62
    assert f"training pairs: {len(genuine)} genuine ones, each" in notices(trained[1])
    assert read_card(trained[0].model).trained_on.get("pairs") in (len(mixed), len(genuine))


@pytest.mark.slow
def test_an_interrupted_run_translates_and_trains_nothing_twice(
    trained: tuple[Trained, list[Event]], tmp_path: Path
) -> None:
    run = tmp_path / "run"
    shutil.copytree(trained[0].run, run)
    for name in ("checkpoints", "model", "data/mixed"):  # as if it had been killed after the last translation
        shutil.rmtree(run / name)
    before = Store.open(trained[0].run / "data" / "mixed").fingerprint()
    events: list[Event] = []
    assert resume(run, listener=events.append) is not None
    assert Store.open(run / "data" / "mixed").fingerprint() == before
    assert not any(event.kind == "progress" and event["what"] == "back-translating" for event in events)


def test_few_pairs_are_reversed_by_phrases(tmp_path: Path) -> None:
    """Pairs that are not in UTF-8, and settings that phrases do not have: the sub-runs read files of their own."""
    files, dev = write_corpus(tmp_path, count=60)
    for name in (*files, *dev):
        Path(name).write_bytes(Path(name).read_text(encoding="utf-8").encode("latin-1"))
    text = tmp_path / "more.de"
    text.write_bytes("".join(f"{line}\n" for line in sample_sentences("de", count=30, seed=9)).encode("latin-1"))
    events: list[Event] = []
    settings = [*TINY, f"data.monolingual=[{text}]", "data.encoding=latin-1", "training.steps=4"]
    found = train(None, settings, out=tmp_path / "run", train=files, dev=dev, listener=events.append)
    assert found is not None
    assert read_settings(tmp_path / "run" / "reverse" / "model").model.kind == "phrases"
    assert "genuine ones, each once, and 30 synthetic ones of 30 lines" in notices(events)
    letters = set("".join(Tokenizers.load(tmp_path / "run" / "baseline" / "text").target.vocabulary))
    assert ("ü" in letters, "Ã" in letters) == (True, False)
    impossible = [*settings, "data.reverse=phrases", "data.back_translation=sample"]
    with pytest.raises(ConfigError, match=r"back_translation=sample cannot be combined with data\.reverse=phrases"):
        train(None, impossible, out=tmp_path / "other", train=files, dev=dev)


@pytest.mark.parametrize("gain", [1.0, 0.0, -1.0])
def test_the_model_is_kept_only_if_the_score_gains(tiny: Trained, tmp_path: Path, gain: float) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "new").touch()
    shutil.copytree(tiny.model, tmp_path / "baseline" / "model")
    before = read_card(tiny.model).measured[0]
    events: list[Event] = []
    reached = CorpusScore(before.name, before.value + gain, before.signature)
    scores = keep_the_better(tmp_path, (reached,), listener=events.append)
    assert (tmp_path / "model" / "new").exists() == (gain > 0)
    assert scores[0].value == max(reached.value, before.value)
    assert ("back-translation does not help" in notices(events)) == (gain <= 0)


def test_a_mark_is_before_each_source_that_has_text() -> None:
    tokenizer = train_tokenizer(["a b c"], TextConfig(kind="word"))
    found = MarkedEncoder(tokenizer, BEGIN)(["a b", "", "c"])
    assert [row[:1] == [BEGIN] for row in found.rows()] == [True, False, True]
    assert [row[1:] for row in found.rows()] == [tokenizer.encode("a b"), [], tokenizer.encode("c")]
    assert END not in found.ids


def test_text_that_cannot_be_used_is_refused_before_anything_slow(tmp_path: Path) -> None:
    files, dev = write_corpus(tmp_path, count=40)
    empty = tmp_path / "empty.de"
    empty.write_text("\n\n")
    other = tmp_path / "other.de"
    other.write_text("Ein Hund.\n")
    cases = [
        ([f"data.monolingual=[{empty}]"], DataError, r"empty\.de: 2 lines, all of them blank"),
        ([f"data.monolingual=[{files[1]}]"], UsageError, "is training or dev text and data.monolingual as well"),
        ([f"data.monolingual=[{other}]", "model.kind=dictionary"], ConfigError, "is for translators that are trained"),
        (["data.monolingual=[missing.de]"], UsageError, r"missing\.de"),
    ]
    for settings, kind, message in cases:
        with pytest.raises(kind, match=message):
            train(None, settings, out=tmp_path / "run", train=files, dev=dev)
        assert not (tmp_path / "run").exists()
