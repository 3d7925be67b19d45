"""Translation by CTranslate2. Commands: `float32 N`, `int8 N`, `int8map N` with batches of N tokens; `latency N`.

Answers {"seconds": …, "outputs": [[number, tokens], …]} for its share; tokens go in and come out.
"""

import argparse
import json
import statistics
import time
from pathlib import Path

import ctranslate2
from serving import Line


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--tokens", type=Path, required=True, help="JSON: a list of tokens for each line")
    parser.add_argument("--beam", type=int, required=True)
    parser.add_argument("--share", type=int, nargs=2, required=True)
    parser.add_argument("--threads", type=int, required=True)
    given = parser.parse_args()
    line = Line()
    number, processes = given.share
    mine = dict(list(enumerate(json.loads(given.tokens.read_text(encoding="utf-8"))))[number::processes])
    models = {
        kind: ctranslate2.Translator(
            str(given.model), device="cpu", compute_type=kind, inter_threads=1, intra_threads=given.threads
        )
        for kind in ("float32", "int8_float32")
    }
    line.say({"version": ctranslate2.__version__})
    for name, count in line.commands():
        is_float = name == "float32" or (name == "latency" and count == 0)
        model = models["float32" if is_float else "int8_float32"]
        options = {"beam_size": given.beam, "length_penalty": 0.6, "use_vmap": name == "int8map"}
        if name == "latency":
            line.say({"seconds": latency(model, list(mine.values())[:20], options)})
            continue
        begin = time.perf_counter()
        found = model.translate_batch(list(mine.values()), max_batch_size=count, batch_type="tokens", **options)
        seconds = time.perf_counter() - begin
        line.say(
            {"seconds": seconds, "outputs": [[at, each.hypotheses[0]] for at, each in zip(mine, found, strict=True)]}
        )


def latency(model: ctranslate2.Translator, lines: list[list[str]], options: dict[str, object]) -> float:
    """Seconds for a line that comes alone."""
    times = []
    for each in lines:
        begin = time.perf_counter()
        model.translate_batch([each], **options)
        times.append(time.perf_counter() - begin)
    return statistics.median(times)


if __name__ == "__main__":
    main()
