"""`seqloom translate LM --shots`: a language model translates from examples."""

import json
from pathlib import Path

import pytest
import torch

from cli.calling import call
from cli.conftest import Tiny
from search.steppers import History
from seqloom.apps.few_shot import ExamplesStepper, FewShotTranslator
from seqloom.apps.language_model import LanguageModel
from seqloom.apps.request import Request
from seqloom.core.stepping import Source
from seqloom.core.symbols import END
from seqloom.data.phrasebook import sample_pairs

PAIRS = [("Good morning.", "Guten Morgen."), ("The old man reads a book.", "Der alte Mann liest ein Buch.")]
COMMON = ("text.size=200", "training.steps=4", "training.validate_every=2", "training.save_every=2")
RECURRENT = ("model.kind=rnn_lm", "model.width=16", "task.rows=4", "task.length=8", "training.average=0", *COMMON)
GPT = (
    "model.kind=gpt",
    "model.width=16",
    "model.heads=2",
    "model.layers=1",
    "model.longest=150",
    "task.length=32",
    *COMMON,
)
SHORT = ("search.beam=2", "search.length_constant=9")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recurrent model and a Transformer with few positions, a text, and examples."""
    place: Path = tmp_path_factory.mktemp("shots")
    lines = []
    for pair in sample_pairs("en", "de", count=60, seed=1, split="train"):
        lines += [f"English: {pair.source}", f"German: {pair.target}"]
    (place / "text.txt").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    (place / "pairs.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in PAIRS), encoding="utf-8")
    (place / "new.en").write_text("A dog.\n\nThe woman sees the old house.\nA dog sleeps.\n", encoding="utf-8")
    for name, settings in (("recurrent", RECURRENT), ("gpt", GPT)):
        called = call("train", *settings, "--train", place / "text.txt", "--out", place / name)
        assert called.code == 0, called.err
    return place


@pytest.mark.parametrize("name", ["recurrent", "gpt"])
def test_a_language_model_translates_line_by_line(folder: Path, name: str) -> None:
    words = ["translate", folder / name, folder / "new.en", "--shots", folder / "pairs.tsv", *SHORT]
    called = call(*words, "--from", "en", "--to", "de")
    assert called.code == 0, called.err
    lines = called.out.splitlines()
    assert (len(lines), lines[1]) == (4, "")
    both = call(*words, "--nbest", 2, "--from", "en", "--to", "de").out.splitlines()
    assert [line.split(" ||| ")[1] for line in both if line.startswith(("1 ", "3 "))][::2] == [lines[0], lines[2]]
    records = [json.loads(line) for line in call(*words, "--json", "--from", "en", "--to", "de").out.splitlines()]
    assert [record["translations"][0]["text"] for record in records] == lines


def test_it_writes_what_generate_writes_after_the_same_text(folder: Path) -> None:
    model = LanguageModel.load(folder / "recurrent")
    settings = model.config.search.model_copy(
        update={"method": "beam", "beam": 3, "nbest": 3, "length_factor": 0.0, "length_constant": 9}
    )
    few_shot = FewShotTranslator(model, PAIRS, ("en", "de"))
    lines = ["A dog.", "The woman sees the old house.", "A cat."]
    found = few_shot.run(lines, Request(settings))
    for line, translations in zip(lines, found, strict=True):
        rows = [row for a, b in PAIRS for row in (f"English: {a}", f"German: {b}")]
        prompt = "\n".join([*rows, f"English: {line}", "German:"])
        texts = model.generate(prompt, search=settings, count=3)
        assert [each.text for each in translations] == [text.continuation.strip() for text in texts]
        log_probs = [each.hypotheses[0].log_prob for each in translations]
        assert log_probs == pytest.approx([text.log_prob for text in texts], abs=1e-4)
    other = FewShotTranslator(model, PAIRS[:1], ("en", "de")).run(lines, Request(settings))
    assert [each[0].score for each in other] != [each[0].score for each in found]


def test_examples_that_do_not_fit_are_counted(folder: Path) -> None:
    many = folder / "many.tsv"
    many.write_text("".join(f"{a}\t{b}\n" for a, b in PAIRS * 4), encoding="utf-8")
    words = ["translate", folder / "gpt", folder / "new.en", "--shots", many, *SHORT]
    called = call(*words)
    assert called.code == 0, called.err
    assert "reads too few tokens for all 8 examples" in called.err.replace("\n", " ")
    assert "3 lines were translated without the longest ones" in called.err.replace("\n", " ")
    alone = [
        call(*words[:1], folder / "gpt", "--shots", many, *SHORT, stdin=f"{line}\n".encode()).out
        for line in ("A dog.",)
    ]
    assert called.out.splitlines()[0] == alone[0].rstrip("\n")


def test_symbols_of_line_ends_are_the_end() -> None:
    inner, last = History(9, seed=3), torch.tensor([5, 5])
    prompts = torch.tensor([[1, 4, 6, 5], [1, 4, 7, 5]])
    stepper = ExamplesStepper(inner, prompts, [8], frozenset({6}))
    one = torch.ones(2, 1, dtype=torch.long)
    source = Source(one, one[:, 0])
    found = stepper.step(stepper.start(source), last).log_probs
    state = inner.start(source)
    for column in prompts[:, :-1].unbind(1):
        state = inner.step(state, column).state
    plain = inner.step(state, last).log_probs
    assert torch.allclose(found[:, END].exp(), plain[:, END].exp() + plain[:, 8].exp())
    assert torch.equal(found[:, 4:8], plain[:, 4:8])
    closed = stepper.step(stepper.start(source), torch.tensor([6, 5])).log_probs
    assert closed[0, END] == 0
    assert closed[0].isneginf().sum() == len(closed[0]) - 1


def test_other_models_and_options_are_refused(folder: Path, tiny: Tiny) -> None:
    shots = ["--shots", folder / "pairs.tsv"]
    for words, message in (
        ([tiny.run, *shots], "--shots cannot be used with"),
        ([folder / "gpt"], "to translate from examples: seqloom translate MODEL --shots pairs.tsv"),
        ([folder / "gpt", *shots, "--tags"], "--tags cannot be combined with --shots"),
        ([folder / "gpt", *shots, "--jobs", 2], "--jobs cannot be combined with --shots"),
        ([folder / "gpt", "--shots", folder / "new.en"], "has one side only"),
    ):
        called = call("translate", *words, stdin=b"A dog.\n")
        assert called.code == 2
        assert message in called.err.replace("\n", " ")
