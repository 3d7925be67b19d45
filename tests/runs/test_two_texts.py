"""Translation without parallel text, from two files to a model of both directions."""

import random
from pathlib import Path

import pytest
from safetensors.torch import load_file

from cli.calling import call
from seqloom.apps.translator import Translator
from seqloom.core.errors import DataError, UsageError
from seqloom.core.events import ignore, read_events
from seqloom.runs.model_dir import read_card
from seqloom.runs.train import Trained, resume, train
from seqloom.runs.two_texts import Substitution
from seqloom.smt.dictionary import Dictionary, DictionaryEntry

ENGLISH = {"subject": ["the cat", "a dog", "my friend"], "verb": ["sees", "likes", "hears"], "object": ["it", "us"]}
WORDS = {"the": "lo", "cat": "miro", "a": "un", "dog": "baku", "my": "ka", "friend": "toli", "sees": "vedu",
         "likes": "amora", "hears": "sonu", "it": "ci", "us": "nos"}  # fmt: skip

TINY = [
    "task.kind=unsupervised", "text.kind=word", "model.width=32", "model.heads=2", "model.feed_forward=32",
    "model.encoder_layers=1", "model.decoder_layers=1", "model.dropout_rate=0", "training.learning_rate=0.01",
    "training.warmup=5", "training.average=0", "data.tokens_per_batch=1000", "data.source=xx", "data.target=en",
]  # fmt: skip


def sentence(draw: random.Random) -> str:
    return " ".join(draw.choice(ENGLISH[part]) for part in ("subject", "verb", "object")) + "."


def in_other(line: str) -> str:
    """Other words in another order: the object comes before the verb."""
    *subject, verb, object_ = (WORDS[word] for word in line.removesuffix(".").split())
    return " ".join([*subject, object_, verb]) + "."


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    draw = random.Random(1)
    lines = [sentence(draw) for _ in range(250)]
    (tmp_path / "a.xx").write_text("".join(f"{in_other(line)}\n" for line in lines[:120]))
    (tmp_path / "b.en").write_text("".join(f"{line}\n" for line in lines[120:]))
    (tmp_path / "words.tsv").write_text("".join(f"{other}\t{word}\n" for word, other in WORDS.items()))
    return tmp_path


def run(texts: Path, name: str, *settings: str, steps: int, dictionary: bool = True) -> Trained:
    given = [f"task.dictionary={texts / 'words.tsv'}"] if dictionary else []
    files = [str(texts / "a.xx"), str(texts / "b.en")]
    found = train(None, [*TINY, *given, f"training.steps={steps}", *settings], out=texts / name, train=files)
    assert found is not None
    return found


@pytest.mark.slow
def test_a_model_of_both_directions_is_learned_from_two_texts(texts: Path) -> None:
    settings = ["training.validate_every=25", "training.save_every=25", "task.start_steps=40", "task.mix_steps=30"]
    trained = run(texts, "run", *settings, steps=125)
    checks = [event["round_trip"] for event in read_events(trained.run / "events.jsonl") if event.kind == "validation"]
    assert max(checks) > 80 > checks[0]
    card = read_card(trained.model)
    assert (card.source, card.target, card.trained_on["lines"]) == ("xx", "en", 108 + 117)
    assert card.scores[0]["name"] == "round-trip chrF2"
    lines = [sentence(random.Random(seed)) for seed in range(40, 60)]
    there = Translator.load(trained.model).translate([in_other(line) for line in lines])
    assert sum(found == line for found, line in zip(there, lines, strict=True)) >= 10
    source = "\n".join(lines)
    back = call("translate", str(trained.model), "--from", "en", "--to", "xx", stdin=source.encode())
    assert back.code == 0, back.err
    assert sum(found == in_other(line) for found, line in zip(back.lines, lines, strict=True)) >= 10


@pytest.mark.slow
@pytest.mark.parametrize("method", ["greedy", "sample"])
def test_a_resumed_run_gives_the_same_bits(texts: Path, method: str) -> None:
    settings = [
        "training.validate_every=5", "training.save_every=5", "task.start_steps=2", "task.mix_steps=4",
        "model.dropout_rate=0.1", f"task.back_translation={method}", "training.warmup=5",
    ]  # fmt: skip
    whole = run(texts, "whole", *settings, steps=10)
    run(texts, "parts", *settings, steps=5)
    resumed = resume(texts / "parts", ["training.steps=10"])
    assert resumed is not None
    first, second = (load_file(each.run / "checkpoints/step-10/model.safetensors") for each in (whole, resumed))
    assert all(bool((first[name] == second[name]).all()) for name in first)


def test_a_start_without_a_dictionary_only_restores_text(texts: Path) -> None:
    trained = run(texts, "run", "task.start_steps=2", "task.mix_steps=0", steps=4, dictionary=False)
    assert trained.outcome.step == 4


def test_texts_that_cannot_be_learned_from_are_refused(texts: Path, tmp_path: Path) -> None:
    one, other, empty = texts / "a.xx", texts / "b.en", tmp_path / "empty.en"
    empty.write_text("")
    (tmp_path / "copy.en").write_text(one.read_text())
    (tmp_path / "bad.tsv").write_text("miro\tcat\nbaku dog\n")
    (tmp_path / "foreign.tsv").write_text("chat\tcat2\n")
    cases: list[tuple[list[Path], list[str], type[Exception], str]] = [
        ([one], [], UsageError, "two texts, one of each language, and 1 are given"),
        ([one, one], [], UsageError, r"a\.xx is given as both texts"),
        ([one, empty], [], DataError, r"empty\.en.*empty"),
        ([one, tmp_path / "copy.en"], [], DataError, "hold the same text"),
        ([one, other], [f"task.dictionary={tmp_path / 'bad.tsv'}"], DataError, r"bad\.tsv:2: .*no tab in 'baku dog'"),
        ([one, other], [f"task.dictionary={tmp_path / 'foreign.tsv'}"], DataError, r"translates 0\.0% of the words"),
        ([one, other], ["text.shared=false", "model.tying=output"], UsageError, "one vocabulary for both"),
        ([one, other], ["data.source=en"], UsageError, "languages of the two texts are en and en"),
    ]
    for files, settings, kind, message in cases:
        with pytest.raises(kind, match=message):
            train(None, [*TINY, *settings], out=tmp_path / "run", train=[str(file) for file in files], listener=ignore)
        assert not (tmp_path / "run").exists()


def test_a_dictionary_is_read_both_ways() -> None:
    entries = [("miro", "cat", 0.9), ("gatu", "cat", 0.5), ("baku", "dog", 0.7), ("baku", "hound", 0.8)]
    both = Substitution.both_ways(Dictionary(tuple(DictionaryEntry(a, b, "", score) for a, b, score in entries)))
    assert both[0]("Miro, baku!") == "Cat, hound!"
    assert both[1]("A cat, a dog.") == "A miro, a baku."
