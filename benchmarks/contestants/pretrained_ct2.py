"""Published models by CTranslate2, converted by itself. Commands: `float32 N` and `int8 N` with batches of N tokens.

Outputs have exactly --length symbols: random models never end. Answers {"seconds": …, "outputs": [[number, pieces or
text], …]} for its share; tokens are prepared beforehand.
"""

import argparse
import time
from collections.abc import Callable
from pathlib import Path

import ctranslate2
import transformers
from serving import Line

Outputs = list[tuple[int, list[str]]]
KINDS = {"float32": "float32", "int8": "int8_float32"}


def translate(given: argparse.Namespace, mine: dict[int, str]) -> Callable[[str, int], Outputs]:
    tokenizer = transformers.AutoTokenizer.from_pretrained(given.model)
    tokens = [tokenizer.convert_ids_to_tokens(tokenizer(text).input_ids) for text in mine.values()]
    models = {
        name: ctranslate2.Translator(
            f"{given.model}-ctranslate2", compute_type=kind, inter_threads=1, intra_threads=given.threads
        )
        for name, kind in KINDS.items()
    }

    def run(mode: str, at_once: int) -> Outputs:
        found = models[mode].translate_batch(
            tokens,
            max_batch_size=at_once,
            batch_type="tokens",
            beam_size=given.beam,
            min_decoding_length=given.length,
            max_decoding_length=given.length,
        )
        return [(number, each.hypotheses[0]) for number, each in zip(mine, found, strict=True)]

    return run


def generate(given: argparse.Namespace, mine: dict[int, str]) -> Callable[[str, int], Outputs]:
    tokenizer = transformers.AutoTokenizer.from_pretrained(given.model)
    begins = [
        tokenizer.convert_ids_to_tokens([tokenizer.eos_token_id, *tokenizer(text).input_ids]) for text in mine.values()
    ]
    models = {
        name: ctranslate2.Generator(
            f"{given.model}-ctranslate2", compute_type=kind, inter_threads=1, intra_threads=given.threads
        )
        for name, kind in KINDS.items()
    }

    def run(mode: str, _at_once: int) -> Outputs:
        found: Outputs = []
        for number, begin in zip(mine, begins, strict=True):
            (result,) = models[mode].generate_batch(
                [begin], min_length=given.length, max_length=given.length, include_prompt_in_result=False
            )
            found.append((number, [tokenizer.decode(result.sequences_ids[0])]))
        return found

    return run


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kind", choices=["marian", "gpt2"], required=True)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--source", type=Path, required=True, help="lines of text")
    parser.add_argument("--length", type=int, required=True, help="symbols of each output")
    parser.add_argument("--beam", type=int, required=True)
    parser.add_argument("--share", type=int, nargs=2, required=True)
    parser.add_argument("--threads", type=int, required=True)
    given = parser.parse_args()
    line = Line()
    number, processes = given.share
    every = given.source.read_text(encoding="utf-8").split("\n")[:-1]
    mine = dict(list(enumerate(every))[number::processes])
    run = translate(given, mine) if given.kind == "marian" else generate(given, mine)
    line.say({"version": f"CTranslate2 {ctranslate2.__version__}"})
    for name, count in line.commands():
        begin = time.perf_counter()
        outputs = run(name, count)
        line.say({"seconds": time.perf_counter() - begin, "outputs": outputs})


if __name__ == "__main__":
    main()
