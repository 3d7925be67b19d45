"""Text to text that is not translation: letters to phones with several right answers."""

import random
from pathlib import Path

import pytest

from seqloom.apps.translator import Translator
from seqloom.core.config import resolve
from seqloom.core.errors import ConfigError, DataError, UsageError
from seqloom.core.events import ignore
from seqloom.metrics.brackets import Parse, right_branching
from seqloom.runs.config import RunConfig
from seqloom.runs.train import resume, train
from seqloom.runs.translation import PairData
from seqloom.text.tokenizer import TextConfig, Tokenizers
from seqloom.text.tokenizer_training import train_tokenizers
from tiny_runs import TINY

PHONES = {"a": "AA", "b": "B", "k": "K", "i": "IY", "t": "T", "s": "S"}


def write_words(folder: Path) -> Path:
    """Words with their phones, every fourth with two pronunciations."""
    draw, path = random.Random(4), folder / "words.tsv"
    words = sorted({"".join(draw.choices("abkits", k=draw.randint(3, 7))) for _ in range(160)})
    lines = [f"{word}\t{' '.join(PHONES[letter] for letter in word)}\n" for word in words]
    lines += [line.replace("AA", "AH") for line in lines[::4] if "AA" in line]
    path.write_text("".join(lines), encoding="utf-8")
    return path


def test_words_become_phones_that_stay_whole_and_any_of_several_answers_is_right(tmp_path: Path) -> None:
    words, run = write_words(tmp_path), tmp_path / "run"
    settings = [each for each in TINY if not each.startswith("text.")]
    trained = train(None, settings, out=run, train=[str(words)])
    assert trained is not None
    assert [score.name for score in trained.scores] == ["exact match", "PER"]
    assert all("nrefs:best" in score.signature for score in trained.scores)
    tokenizers = Tokenizers.load(trained.model / "text")
    assert (tokenizers.source.kind, tokenizers.target.kind) == ("char", "word")
    assert tokenizers.target.pieces("K AA T") == ["K", "AA", "T"]
    assert tokenizers.target.decode(tokenizers.target.encode("K AA T")) == "K AA T"
    config = resolve(RunConfig, file=run / "config.yaml")
    data = PairData.load(run, config)
    assert len(set(data.dev_sources())) < len(data.references)  # sources are held out with all of their answers
    with pytest.raises(UsageError, match=r"text\.target is .* cannot become"):
        resume(run, ["text.target.kind=char"], listener=ignore)


def test_settings_of_a_side_override_those_of_both() -> None:
    given = {"kind": "bpe", "size": 300, "source": {"kind": "char"}, "target": {"lowercase": True, "size": 50}}
    text = TextConfig.model_validate(given)
    assert text.side("source") == TextConfig(kind="char", size=1000, shared=False)
    assert text.side("target") == TextConfig(kind="bpe", size=50, shared=False, lowercase=True)
    assert not text.is_joint
    joint = TextConfig(size=300)
    assert joint.side("source") == joint.side("target") == joint
    tokenizers = train_tokenizers(["Abc abc"] * 5, ["Xyz xyz"] * 5, text)
    assert not tokenizers.is_shared
    assert tokenizers.source.pieces("Ab") == ["A", "b"]
    assert tokenizers.target.pieces("Xyz") == ["▁xyz"]


def test_parses_are_well_formed_with_the_words_of_the_source(tmp_path: Path) -> None:
    draw, path = random.Random(5), tmp_path / "parses.tsv"
    words = ["the", "old", "cat", "saw", "a", "dog"]
    sentences = [draw.choices(words, k=draw.randint(1, 6)) for _ in range(120)]
    path.write_text("".join(f"{' '.join(each)}\t{right_branching(each)}\n" for each in sentences), encoding="utf-8")
    text = ["text.kind=word", "text.segmentation=spaces", "evaluation.metrics=[bracket-f1]"]
    trained = train(None, [*TINY, *text], out=tmp_path / "run", train=[str(path)])
    assert trained is not None
    assert [score.name for score in trained.scores] == ["bracket F1"]
    lines = ["the cat saw a dog", "a zebra saw the old old cat", "dog"]

    translator = Translator.load(trained.model)

    def parses(*, brackets: bool) -> list[Parse | None]:
        translated = translator.translate(lines, length_factor=3.0, length_constant=4, brackets=brackets)
        return [Parse.of(line) for line in translated]

    found = parses(brackets=True)
    assert [each and len(each.words) for each in found] == [5, 7, 1]
    assert found[0] is not None
    assert found[0].words == ("the", "cat", "saw", "a", "dog")
    free = parses(brackets=False)  # after six steps, the model alone knows nothing
    assert [each and len(each.words) for each in free] != [5, 7, 1]
    with pytest.raises(DataError, match=r"line 1 has '\(' among its words"):
        translator.translate(["the ( cat )"], brackets=True)


@pytest.mark.parametrize(
    ("settings", "part"),
    [
        (["text.byte_fallback=true", "text.target.kind=word"], "target: byte_fallback is for kind char"),
        (["text.source.kind=char", "model.tying=all"], "text.source and text.target cut each side its own way"),
        (["text.target.kind=char", "task.subword_sampling=0.1"], "task.subword_sampling=0.1 draws other cuts"),
        (["text.source.kind=char", "model.kind=rnn_lm"], "text.source is for sentence pairs"),
        (["text.source.kind=char", "model.copy=true"], "model.copy=true copies symbols of the source"),
        (["task.consistency=1.0", "model.copy=true"], "task.consistency=1 is not supported with model.copy"),
        (["search.brackets=true"], "search.brackets=true needs a joint vocabulary of whole words"),
        (["text.source.kid=char"], "kid"),
    ],
)
def test_sides_that_cannot_be_are_refused(settings: list[str], part: str) -> None:
    with pytest.raises(ConfigError, match=part):
        resolve(RunConfig, overrides=settings)


def test_sides_of_their_own_are_tied_to_one_table_less() -> None:
    assert resolve(RunConfig, overrides=["text.source.kind=char"]).model.tying == "output"  # type: ignore[union-attr]
    chosen = resolve(RunConfig, overrides=["text.source.kind=char", "model.kind=seq2seq", "model.tying=none"])
    assert chosen.model.tying == "none"  # type: ignore[union-attr]
