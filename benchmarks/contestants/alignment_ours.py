"""Word alignment by ours. `fit` fits IBM model 1 in one direction; `links` goes from files to links of both directions.

Answers {"seconds": …}. Text is what stands between spaces.
"""

import argparse
import time
from pathlib import Path

from serving import Line

from seqloom.apps.align import AlignConfig, WordText, fit_words, read_words
from seqloom.classical.alignment import Bitext, Model1Config, fit_model1
from seqloom.data.corpus import open_corpus
from seqloom.version import __version__


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--text", type=Path, nargs=2, required=True)
    parser.add_argument("--iterations", type=int, required=True)
    parser.add_argument("--threads", type=int, required=True)
    given = parser.parse_args()
    line = Line()
    config = AlignConfig(segmentation="spaces", model=Model1Config(iterations=given.iterations))
    bitext = read(given.text, config).bitext
    line.say({"version": __version__})
    for name, _ in line.commands():
        begin = time.perf_counter()
        if name == "fit":
            fit_model1(bitext, config.model, threads=given.threads)
        else:
            choose_both(given.text, config, threads=given.threads)
        line.say({"seconds": time.perf_counter() - begin})


def read(paths: list[Path], config: AlignConfig) -> WordText:
    return read_words(open_corpus(paths), config)


def choose_both(paths: list[Path], config: AlignConfig, *, threads: int) -> None:
    """What a user waits for: both files read, both directions fitted, all links written."""
    text = read(paths, config)
    aligner = fit_words(text, config, threads=threads)
    sides: list[tuple[Bitext, str]] = [(text.bitext, "forward"), (text.bitext.turned(), "backward")]
    for (bitext, name), model in zip(sides, (aligner.forward, aligner.backward), strict=True):
        chosen, starts = model.choose(bitext, threads=threads), bitext.target_starts
        with paths[0].with_suffix(f".{name}").open("w", encoding="utf-8") as file:
            for low, high in zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True):
                places = enumerate(chosen[low:high].tolist())
                file.write(" ".join(f"{i}-{j}" for j, i in places if i >= 0) + "\n")


if __name__ == "__main__":
    main()
