"""Published models by their own libraries: `generate` of transformers, sentence-transformers. Command: `float32 N`.

N is the number of lines in a batch, sorted by length. Outputs have exactly --length symbols: random models never end.
Answers {"seconds": …, "outputs": [[number, pieces, text or numbers], …]} for its share; tokens are prepared beforehand.
"""

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import transformers
from serving import Line

Outputs = list[tuple[int, list[Any]]]


def translate(folder: Path, mine: dict[int, str], *, beam: int, length: int) -> Callable[[int], Outputs]:
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
    numbers = sorted(mine, key=lambda number: len(tokenizer(mine[number]).input_ids))

    def run(at_once: int) -> Outputs:
        found: Outputs = []
        for begin in range(0, len(numbers), at_once):
            some = numbers[begin : begin + at_once]
            batch = tokenizer([mine[number] for number in some], return_tensors="pt", padding=True)
            outputs = model.generate(**batch, num_beams=beam, min_new_tokens=length, max_new_tokens=length)
            found += [
                (number, tokenizer.convert_ids_to_tokens(row.tolist()[1:]))
                for number, row in zip(some, outputs, strict=True)
            ]
        return found

    return run


def generate(folder: Path, mine: dict[int, str], *, length: int) -> Callable[[int], Outputs]:
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder).eval()
    begins = {number: [tokenizer.eos_token_id, *tokenizer(text).input_ids] for number, text in mine.items()}
    options = {"do_sample": False, "min_new_tokens": length, "max_new_tokens": length}

    def run(_at_once: int) -> Outputs:
        found: Outputs = []
        for number, begin in begins.items():
            ids = torch.tensor([begin])
            (row,) = model.generate(
                ids, attention_mask=torch.ones_like(ids), pad_token_id=tokenizer.eos_token_id, **options
            )
            found.append((number, [tokenizer.decode(row.tolist()[len(begin) :])]))
        return found

    return run


def embed(folder: Path, mine: dict[int, str]) -> Callable[[int], Outputs]:
    import sentence_transformers  # takes a while

    model = sentence_transformers.SentenceTransformer(str(folder), device="cpu")

    def run(at_once: int) -> Outputs:
        vectors = model.encode(list(mine.values()), batch_size=at_once, show_progress_bar=False)
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
    transformers.logging.set_verbosity_error()
    number, processes = given.share
    every = given.source.read_text(encoding="utf-8").split("\n")[:-1]
    mine = dict(list(enumerate(every))[number::processes])
    if given.kind == "marian":
        run = translate(given.model, mine, beam=given.beam, length=given.length)
    elif given.kind == "gpt2":
        run = generate(given.model, mine, length=given.length)
    else:
        run = embed(given.model, mine)
    line.say({"version": f"transformers {transformers.__version__}, torch {torch.__version__}"})
    for _, count in line.commands():
        begin = time.perf_counter()
        with torch.inference_mode():
            outputs = run(count)
        line.say({"seconds": time.perf_counter() - begin, "outputs": outputs})


if __name__ == "__main__":
    main()
