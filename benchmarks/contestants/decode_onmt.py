"""Translation by OpenNMT-py: `forced` decodes `--length` symbols of each line. Answers {"seconds": …}."""

import argparse
import os
import time
from pathlib import Path

# Its checkpoints are pickles, which torch loads only if it is told to.
os.environ["TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD"] = "1"

from serving import Line

AT_ONCE = 64
"""Sentences in a batch."""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--checkpoint", type=Path, required=True)
    parser.add_argument("--source", type=Path, required=True, help="lines of words that are ids")
    parser.add_argument("--beam", type=int, required=True)
    parser.add_argument("--length", type=int, required=True)
    parser.add_argument("--share", type=int, nargs=2, required=True)
    parser.add_argument("--threads", type=int, required=True)
    given = parser.parse_args()
    line = Line()
    number, processes = given.share
    mine = given.source.read_text(encoding="utf-8").split("\n")[:-1][number::processes]
    # Its iterator does not sort what it is given as a list, and padding is cheaper where lengths are alike.
    mine.sort(key=lambda each: each.count(" "))
    engine = load(given)
    line.say({"version": version()})
    for _ in line.commands():
        begin = time.perf_counter()
        _, found = engine.infer_list(mine)
        seconds = time.perf_counter() - begin
        lengths = {len(each[0].split()) for each in found}
        assert lengths == {given.length}, lengths
        line.say({"seconds": seconds})


def version() -> str:
    from importlib.metadata import version as of

    return of("OpenNMT-py")


def load(given: argparse.Namespace) -> "InferenceEnginePY":  # noqa: F821 - imported where it is needed
    import torch
    from onmt.inference_engine import InferenceEnginePY
    from onmt.opts import translate_opts
    from onmt.utils.parse import ArgumentParser

    torch.set_num_threads(given.threads)
    parser = ArgumentParser()
    translate_opts(parser)
    words = ["-model", given.checkpoint, "-src", given.source, "-output", os.devnull, "-beam_size", given.beam]
    words += ["-min_length", given.length, "-max_length", given.length, "-max_length_ratio", 0]
    words += ["-batch_size", AT_ONCE]
    options = parser.parse_args([str(word) for word in words])
    ArgumentParser.validate_translate_opts(options)
    ArgumentParser._get_all_transform_translate(options)
    ArgumentParser._validate_transforms_opts(options)
    ArgumentParser.validate_translate_opts_dynamic(options)
    return InferenceEnginePY(options)


if __name__ == "__main__":
    main()
