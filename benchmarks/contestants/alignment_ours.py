"""Word alignment by ours, of text whose words are separated by spaces. Answers {"seconds": …}.

fit       IBM model 1 in one direction
links     from files to links of both directions, by IBM model 1
default   from files to joined links, by the default model
pair      the aligner of `default` saved, loaded ("loading"), and one pair linked with it ("seconds")
"""

import argparse
import statistics
import time
from pathlib import Path

from safetensors.numpy import load_file, save_file
from serving import Line

from seqloom.apps.align import AlignConfig, WordText, read_words
from seqloom.classical.alignment import (
    DEFAULT_ALIGNMENT,
    Bitext,
    Model1Config,
    WordAligner,
    fit_aligner,
    fit_model1,
)
from seqloom.data.corpus import open_corpus
from seqloom.text.formats.pharaoh import format_links
from seqloom.version import __version__

NEW_PAIRS = 200
"""Pairs that are linked one by one; the median counts."""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--text", type=Path, nargs=2, required=True)
    parser.add_argument("--iterations", type=int, required=True, help="of IBM model 1")
    parser.add_argument("--threads", type=int, required=True)
    given = parser.parse_args()
    line = Line()
    model1 = Model1Config(iterations=given.iterations)
    bitext = read(given.text).bitext
    aligner: WordAligner | None = None
    line.say({"version": __version__})
    for name, _ in line.commands():
        begin, answer = time.perf_counter(), {}
        if name == "fit":
            fit_model1(bitext, model1, threads=given.threads)
        elif name == "links":
            choose_both(given.text, model1, threads=given.threads)
        elif name == "default":
            aligner = link_words(given.text, threads=given.threads)
        elif name == "pair":
            answer = link_new_pairs(aligner or link_words(given.text, threads=given.threads), bitext, given.text[0])
        line.say({"seconds": time.perf_counter() - begin, **answer})


def read(paths: list[Path]) -> WordText:
    return read_words(open_corpus(paths), AlignConfig(segmentation="spaces"))


def choose_both(paths: list[Path], config: Model1Config, *, threads: int) -> None:
    """What a user waits for: both files read, both directions fitted, all links written."""
    text = read(paths)
    aligner = fit_aligner(text.bitext, config, threads=threads)
    sides: list[tuple[Bitext, str]] = [(text.bitext, "forward"), (text.bitext.turned(), "backward")]
    for (bitext, name), model in zip(sides, (aligner.forward, aligner.backward), strict=True):
        chosen, starts = model.choose(bitext, threads=threads), bitext.target_starts
        with paths[0].with_suffix(f".{name}").open("w", encoding="utf-8") as file:
            for low, high in zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True):
                places = enumerate(chosen[low:high].tolist())
                file.write(" ".join(f"{i}-{j}" for j, i in places if i >= 0) + "\n")


def link_words(paths: list[Path], *, threads: int) -> WordAligner:
    """The same for joined links."""
    text = read(paths)
    aligner = fit_aligner(text.bitext, DEFAULT_ALIGNMENT, threads=threads)
    with paths[0].with_suffix(".links").open("w", encoding="utf-8") as file:
        for links in aligner.align(text.bitext, threads=threads):
            file.write(format_links(links) + "\n")
    return aligner


def link_new_pairs(aligner: WordAligner, bitext: Bitext, path: Path) -> dict[str, float]:
    """Seconds for loading a saved aligner, and for linking one pair with it."""
    file = path.with_suffix(".aligner")
    save_file(aligner.arrays(), file)
    begin = time.perf_counter()
    restored = WordAligner.restore(aligner.config, load_file(file))
    loading = time.perf_counter() - begin
    seconds = []
    for pair in range(bitext.pairs - min(NEW_PAIRS, bitext.pairs), bitext.pairs):
        one = bitext.between(pair, pair + 1)
        begin = time.perf_counter()
        restored.links(one.sources, one.targets)
        seconds.append(time.perf_counter() - begin)
    return {"loading": loading, "seconds": statistics.median(seconds)}


if __name__ == "__main__":
    main()
