"""Published models by ours, from the same folders. Commands: `float32 N` and `int8 N` with batches of N tokens.

Outputs have exactly --length symbols: random models never end. Answers {"seconds": …, "outputs": [[number, output],
…]} for its share, where an output is pieces, a text or a vector; it goes from text to text, or from text to vectors.
"""

import argparse
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from serving import Line

from seqloom.apps.encoder import Encoder
from seqloom.apps.language_model import LanguageModel
from seqloom.apps.translator import Translator
from seqloom.core.errors import SeqloomWarning
from seqloom.version import __version__

Outputs = list[tuple[int, list[Any]]]


def forced(length: int) -> dict[str, Any]:
    """Search settings with which every output has so many symbols."""
    return {
        "shortest_factor": 0.0,
        "shortest_constant": length + 1,  # with the end symbol, which is beyond the maximum
        "length_factor": 0.0,
        "length_constant": length,
    }


def translate(folder: Path, mine: dict[int, str], *, beam: int, length: int) -> Callable[[str, int], Outputs]:
    translator = Translator.load(folder)
    target = translator.tokenizers.target

    def run(precision: str, tokens: int) -> Outputs:
        settings = {**forced(length), "precision": precision, "tokens_per_batch": tokens}
        found = translator.search(mine.values(), beam=beam, **settings)
        return [
            (number, [target.piece(symbol) for symbol in best.hypotheses[0].symbols])
            for number, (best, *_) in zip(mine, found, strict=True)
        ]

    return run


def generate(folder: Path, mine: dict[int, str], *, length: int) -> Callable[[str, int], Outputs]:
    model = LanguageModel.load(folder)

    def run(_precision: str, _tokens: int) -> Outputs:
        settings = {**forced(length), "method": "beam", "beam": 1}
        return [(number, [model.generate(text, **settings)[0].continuation]) for number, text in mine.items()]

    return run


def embed(folder: Path, mine: dict[int, str]) -> Callable[[str, int], Outputs]:
    encoder = Encoder.load(folder)

    def run(_precision: str, tokens: int) -> Outputs:
        vectors = encoder.encode(mine.values(), tokens_per_batch=tokens)
        return list(zip(mine, vectors.tolist(), strict=True))

    return run


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kind", choices=["marian", "gpt2", "minilm"], required=True)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--source", type=Path, required=True, help="lines of text")
    parser.add_argument("--length", type=int, required=True, help="symbols of each output")
    parser.add_argument("--beam", type=int, required=True)
    parser.add_argument("--share", type=int, nargs=2, required=True)
    parser.add_argument("--threads", type=int, required=True)
    given = parser.parse_args()
    line = Line()
    torch.set_num_threads(given.threads)
    warnings.simplefilter("ignore", SeqloomWarning)  # of outputs that end at the maximum length
    number, processes = given.share
    every = given.source.read_text(encoding="utf-8").split("\n")[:-1]
    mine = dict(list(enumerate(every))[number::processes])
    if given.kind == "marian":
        run = translate(given.model, mine, beam=given.beam, length=given.length)
    elif given.kind == "gpt2":
        run = generate(given.model, mine, length=given.length)
    else:
        run = embed(given.model, mine)
    line.say({"version": f"seqloom {__version__}, torch {torch.__version__}"})
    for name, count in line.commands():
        begin = time.perf_counter()
        outputs = run(name, count)
        line.say({"seconds": time.perf_counter() - begin, "outputs": outputs})


if __name__ == "__main__":
    main()
