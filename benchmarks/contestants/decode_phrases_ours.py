"""Phrase-based translation by ours. `all` and `short` answer {"seconds": …, "outputs": […]} for the lines of that file.

`all` has the search settings of the model, `short` the given beam. Text goes in and comes out.
"""

import argparse
import time
from pathlib import Path

from serving import Line

from seqloom import Translator
from seqloom.core.files import read_lines
from seqloom.version import __version__


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--beam", type=int, required=True)
    given = parser.parse_args()
    line = Line()
    translator = Translator.load(given.model)
    texts = {"all": list(read_lines(given.folder / "lines")), "short": list(read_lines(given.folder / "short"))}
    settings: dict[str, dict[str, int]] = {"all": {}, "short": {"beam": given.beam}}
    line.say({"version": __version__})
    for name, _ in line.commands():
        begin = time.perf_counter()
        outputs = translator.translate(texts[name], **settings[name])
        line.say({"seconds": time.perf_counter() - begin, "outputs": outputs})


if __name__ == "__main__":
    main()
