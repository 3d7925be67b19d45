"""Translation without a server. Commands: `jobs N`: all lines N times with `--jobs 2`; `alone N`: N lines one by one.

`expected` answers with the translation of each line alone; `check` with the lines of a file of JSON that are none of
the equally good best translations of their source.
"""

import argparse
import json
import time
from pathlib import Path

import torch
from serving import Line

from seqloom.apps.processes import ProcessTranslator
from seqloom.apps.request import Request
from seqloom.apps.translator import open_translator

TIE = 1e-4
"""Difference of scores below which two translations are equally good."""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--source", type=Path, required=True)
    parser.add_argument("--setting", action="append", default=[])
    parser.add_argument("--answers", type=Path, required=True)
    parser.add_argument("--jobs", type=int, default=0)
    given = parser.parse_args()
    line = Line()
    torch.set_num_threads(1)
    sources = given.source.read_text(encoding="utf-8").split("\n")[:-1]
    translator = open_translator(given.model, given.setting)
    several = ProcessTranslator(translator, given.setting, jobs=given.jobs) if given.jobs else None
    translator.run(sources[:1], Request())
    line.say({"lines": len(sources)})
    for name, count in line.commands():
        begin, times = time.perf_counter(), []
        if name == "jobs":
            assert several is not None
            several.run(sources * count, Request())
        elif name == "alone":
            for number in range(count):
                start = time.perf_counter()
                translator.run([sources[number % len(sources)]], Request())
                times.append(time.perf_counter() - start)
        elif name == "expected":
            line.say({"texts": [translator.run([each], Request())[0][0].text for each in sources]})
            continue
        elif name == "check":
            line.say({"wrong": wrong(translator, sources, json.loads(given.answers.read_text(encoding="utf-8")))})
            continue
        line.say({"seconds": time.perf_counter() - begin, "times": sorted(times)})


def wrong(translator, sources, answers):  # type: ignore[no-untyped-def]
    """Places whose answer is neither the best translation nor one that ties with it."""
    found = []
    for at, text in answers:
        settings = translator.config.search.model_copy(update={"nbest": translator.config.search.beam})
        best = translator.run([sources[at]], Request(settings))[0]
        good = {each.text for each in best if each.score is None or best[0].score - each.score < TIE}
        if text not in good:
            found.append(at)
    return found


if __name__ == "__main__":
    main()
