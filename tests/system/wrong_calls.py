"""Calls of the public Python interface with wrong arguments, each with what it raises, as JSON on standard output.

It is a program of its own, because the test run checks types at each call and would answer in place of the package.
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import seqloom
from seqloom import LanguageModel, SearchConfig, SeqloomError, Translator, WordVectors
from seqloom.apps.request import ConstraintSet
from seqloom.text.glossary import Glossary
from system.small_models import write_small_model, write_small_ngram

NEVER_RIGHT: tuple[Any, ...] = (None, 3, b"x", {"a": 1}, [3], object(), "", "\0", "/no/such/place")
"""Values that are no path of a model, no list of lines, no setting …"""


def calls(folder: Path) -> dict[str, tuple[Callable[[Any], object], tuple[Any, ...]]]:
    """What is called with one argument, and arguments that must be refused."""
    loaded = seqloom.load(write_small_model(folder / "translator"))
    translator = Translator(loaded)
    model = LanguageModel.load(write_small_ngram(folder / "ngram"))
    vectors = WordVectors(("a", "b", "c"), np.eye(3, dtype=np.float32), np.zeros(3, np.int64))
    counts, out, text = (None, "x", b"x", 0, -1, 1.5), folder / "out", folder / "text.txt"
    some = (None, 3, b"x", "x", [3], object())
    return {
        "load": (seqloom.load, NEVER_RIGHT),
        "load device": (lambda value: seqloom.load(loaded.folder, device=value), (3, b"x", "tpu", object())),
        "load model": (lambda value: seqloom.load(loaded.folder, model=value), (3, b"x", {}, object())),
        "Translator.load": (Translator.load, NEVER_RIGHT),
        "LanguageModel.load": (LanguageModel.load, NEVER_RIGHT),
        "LanguageModel.load of a translator": (lambda _: LanguageModel.load(loaded.folder), (0,)),
        "Translator.load of a language model": (lambda _: Translator.load(model.loaded.folder), (0,)),
        "Translator": (Translator, NEVER_RIGHT),
        "Translator, further models": (lambda value: Translator(loaded, value), (*some, loaded)),
        "LanguageModel": (LanguageModel, NEVER_RIGHT),
        "LanguageModel weights": (lambda value: LanguageModel(model.loaded, weights=value), (3, b"x", "x", ["x"], [0])),
        "translate": (translator.translate, (None, 3, b"x", "a cat", {"a": 1}, [3], [b"x"], [None], object())),
        "translate search": (lambda value: translator.translate(["a"], search=value), (3, "beam=8", b"x", [3], {3: 1})),
        "translate beam": (lambda value: translator.translate(["a"], beam=value), (0, "8", 2.5, None, object())),
        "translate beem": (lambda value: translator.translate(["a"], beem=value), (8,)),
        "translate temperature": (lambda value: translator.translate(["a"], temperature=value), (0.5,)),
        "search constraints": (
            lambda value: translator.search(["a"], constraints=value),
            (3, b"x", "x", [3], ["x"], []),
        ),
        "search glossary": (lambda value: translator.search(["a"], glossary=value), (3, "x", {"a": "b"})),
        "search dictionary": (lambda value: translator.search(["a"], dictionary=value), (3, "x", ["a"])),
        "search first": (lambda value: translator.search(["a"], first=value), (None, "x", -1)),
        "search progress": (lambda value: translator.search(["a"], progress=value), (None, 3)),
        "ConstraintSet prefix": (lambda value: ConstraintSet(prefix=value), (None, 3, b"x", ("a",))),
        "ConstraintSet phrases": (lambda value: ConstraintSet(phrases=value), (None, 3, "dog", b"x", (3,))),
        "ConstraintSet stops": (lambda value: ConstraintSet(stops=value), (None, 3, ".", (None,))),
        "Glossary": (Glossary, (None, 3, "dog", {"dog": "Hund"}, ("ab",), (("dog",),), (("dog", 3),), (("dog", ""),))),
        "watch": (translator.watch, (None, 3, b"x", ["a"], "")),
        "score": (lambda value: translator.score(value, ["a"]), (None, 3, b"x", "a", [None], [])),
        "unknown_rate": (translator.unknown_rate, (None, 3, b"x", "a", [3])),
        "encode": (translator.tokenizers.source.encode, (None, 3, b"x", ["a"])),
        "LanguageModel.score": (model.score, (None, 3, b"x", "a", [], [None])),
        "LanguageModel.score context": (lambda value: model.score(["a"], context=value), (3, "lines", b"x", [])),
        "perplexity": (model.perplexity, (None, 3, b"x", "a", [], [None])),
        "tuned": (model.tuned, (None, 3, b"x", "a", [], [None])),
        "generate": (model.generate, (None, 3, b"x", ["a"])),
        "generate count": (lambda value: model.generate("a", count=value), counts),
        "generate seed": (lambda value: model.generate("a", seed=value), ("x", b"x", 1.5)),
        "generate nbest": (lambda value: model.generate("a", nbest=value), (2,)),
        "unknown_in": (model.unknown_in, (None, 3, b"x", ["a"])),
        "nearest": (vectors.nearest, (None, 3, b"x", "a", [None], ["z"])),
        "nearest count": (lambda value: vectors.nearest(["a"], count=value), counts),
        "analogy": (lambda value: vectors.analogy("a", "b", value), (None, 3, b"x", ["a"], "z")),
        "analogy method": (lambda value: vectors.analogy("a", "b", "c", method=value), (None, 3, "plus")),
        "vector": (vectors.vector, (None, 3, b"x", ["a"], "z")),
        "WordVectors": (lambda value: WordVectors(value, np.eye(1), np.zeros(1)), (None, 3, "a", b"x", ("a", "b"))),
        "WordVectors vectors": (lambda value: WordVectors(("a",), value, np.zeros(1)), (None, 3, np.zeros(1))),
        "train out": (lambda value: seqloom.train(out=value, train=[text]), (None, 3, b"x", "", "\0", ["a"])),
        "train config": (lambda value: seqloom.train(value, out=out, train=[text]), NEVER_RIGHT[1:]),
        "train overrides": (lambda value: seqloom.train(None, value, out=out, train=[text]), ("seed=2", 3, [3], {})),
        "train train": (lambda value: seqloom.train(out=out, train=value), (*NEVER_RIGHT, [None], [b"x"])),
        "train listener": (lambda value: seqloom.train(out=out, train=[text], listener=value), (None, 3)),
        "train model": (lambda value: seqloom.train(out=out, train=[text], model=value), (3, "x", {})),
        "SearchConfig beam": (lambda value: SearchConfig(beam=value), (0, "8", b"\xff", None, object())),
        "SearchConfig beem": (lambda value: SearchConfig(beem=value), (8,)),
        "SearchConfig.beam =": (lambda value: setattr(SearchConfig(), "beam", value), (8,)),
    }


def main(folder: Path) -> None:
    """Make every call, and tell what came of those that did not raise an error of the package."""
    others: dict[str, str] = {}
    total = 0
    for name, (call, values) in calls(folder).items():
        for value in values:
            total += 1
            try:
                others[f"{name} {value!r}"] = f"returned {call(value)!r}"[:100]
            except SeqloomError as error:
                if not str(error) or "\n" in str(error):
                    others[f"{name} {value!r}"] = f"no sentence: {error!r}"
            except Exception as error:
                others[f"{name} {value!r}"] = repr(error)[:100]
    sys.stdout.write(json.dumps({"calls": total, "others": others}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
