"""Unknown words give way to the dictionary, and then to the source."""

from pathlib import Path

import pytest
import torch

from cli.calling import call
from seqloom.core.symbols import END, UNKNOWN
from seqloom.runs.model_dir import read_card
from seqloom.runs.train import train
from seqloom.runs.translator import Part, attention_of, replace_unknown
from seqloom.search.hypothesis import Hypothesis
from seqloom.text.tokenizer import TextConfig, Tokenizers
from seqloom.text.tokenizer_training import train_tokenizer
from tiny_runs import TINY


def replaced(
    kind: str, source: str, target: str, attention: list[list[float]], dictionary: dict[str, str] | None = None
) -> str:
    tokenizer = train_tokenizer(["the is in big."], TextConfig(kind=kind, size=40))  # type: ignore[arg-type]
    symbols = tuple(tokenizer.encode(target))
    assert UNKNOWN in symbols
    hypothesis = Hypothesis(symbols, False, -1.0, {"log_prob": -1.0}, (), torch.tensor(attention))
    part = Part(0, source, [*tokenizer.encode(source), END], key=0)
    words = attention_of(part, hypothesis, Tokenizers(tokenizer, tokenizer))
    found = replace_unknown(symbols, words, tokenizer, dictionary=dictionary)
    assert "".join(found.target[begin:end] for begin, end in found.target_spans) == found.target.replace(" ", "")
    assert len(found.weights) == len(found.target_spans)
    return found.target


WORDS = [[1.0, 0, 0, 0, 0], [0, 0, 0.9, 0.1, 0], [0, 1, 0, 0, 0], [0, 0, 0, 1, 0]]


@pytest.mark.parametrize(
    ("dictionary", "expected"), [(None, "the Zürich is."), ({"Zürich": "Zurigo"}, "the Zurigo is.")]
)
def test_an_unknown_word_is_what_the_dictionary_says_or_what_it_looked_at(
    dictionary: dict[str, str] | None, expected: str
) -> None:
    assert replaced("word", "the is Zürich.", "the xyz is.", WORDS, dictionary) == expected


def test_a_word_spelled_around_an_unknown_character_is_replaced_whole() -> None:
    source, target = "bég is", "bïg is"
    attention = [[0.0] * 7 for _ in range(6)]
    for at in range(6):
        attention[at][at] = 1.0
    assert replaced("char", source, target, attention) == "bég is"


def test_a_word_that_looked_at_nothing_stays() -> None:
    assert replaced("word", "the is", "the xyz", [[0.0] * 3] * 2) == "the ⁇"


def test_training_measures_its_dev_text_with_unknown_words_replaced(tmp_path: Path) -> None:
    words = ["red", "green", "blue", "black", "white", "brown"]
    for split, count in (("train", 80), ("dev", 8)):
        sources = [" ".join(words[(at + step) % 6] for step in range(3)) for at in range(count)]
        # Target words are rare, and those of the dev text unknown, so the model learns to write the unknown symbol.
        targets = [f"x{at} y{at} z{at}" for at in range(count)] if split == "train" else sources
        for language, lines in (("en", sources), ("de", targets)):
            (tmp_path / f"{split}.{language}").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    names = [[str(tmp_path / f"{split}.{language}") for language in ("en", "de")] for split in ("train", "dev")]
    settings = [
        *TINY,
        "text.kind=word",
        "text.size=14",
        "text.shared=false",
        "model.tying=output",
        "training.learning_rate=0.02",
        "search.shortest_constant=4",
        "search.unknown=copy",
    ]
    trained = train(None, settings, out=tmp_path / "run", train=names[0], dev=names[1])
    assert trained is not None
    measured = {score["name"]: score["value"] for score in read_card(trained.model).scores}

    def evaluated(*overrides: str) -> dict[str, float]:
        files = "--source", names[1][0], "--reference", names[1][1]
        (record,) = call("evaluate", trained.model, *files, "--json", *overrides).records
        return {each["name"]: each["value"] for each in record["systems"][0]["scores"] if each["name"] in measured}

    assert measured == evaluated()
    assert measured["chrF2"] > evaluated("search.unknown=keep")["chrF2"]
