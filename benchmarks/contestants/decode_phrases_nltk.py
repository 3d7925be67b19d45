"""nltk's stack decoder on the options of ours. `short` answers {"seconds": …, "outputs": […]}."""

import argparse
import json
import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import nltk
from nltk.translate import PhraseTable
from nltk.translate.stack_decoder import StackDecoder
from serving import Line


class BackoffModel:
    """An n-gram model from an ARPA file, as the decoder calls it: natural logarithms, times a weight."""

    def __init__(self, path: Path, *, order: int, weight: float) -> None:
        self.order, self.scale = order, weight * math.log(10)
        self.log_probs: dict[tuple[str, ...], float] = {}
        self.backoffs: dict[tuple[str, ...], float] = {}
        for row in path.read_text(encoding="utf-8").split("\n"):
            columns = row.split("\t")
            if len(columns) >= 2:
                words = tuple(columns[1].split(" "))
                self.log_probs[words] = float(columns[0])
                self.backoffs[words] = float(columns[2]) if len(columns) > 2 else 0.0

    def probability_change(self, context: Any, phrase: Sequence[str]) -> float:
        """What a phrase adds after a hypothesis."""
        return self._total(["<s>", *context.translation_so_far()], phrase)

    def probability(self, phrase: Sequence[str]) -> float:
        """A phrase by itself."""
        return self._total([], phrase)

    def _total(self, before: list[str], phrase: Sequence[str]) -> float:
        text, total = before[-(self.order - 1) :], 0.0
        for word in phrase:
            total += self._log_prob((*text[-(self.order - 1) :], word))
            text.append(word)
        return total * self.scale

    def _log_prob(self, words: tuple[str, ...]) -> float:
        if words in self.log_probs:
            return self.log_probs[words]
        return -99.0 if len(words) == 1 else self.backoffs.get(words[:-1], 0.0) + self._log_prob(words[1:])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path, required=True)
    given = parser.parse_args()
    line = Line()
    task = json.loads((given.folder / "task.json").read_text(encoding="utf-8"))
    model = BackoffModel(given.folder / "model.arpa", order=task["order"], weight=task["language_model_weight"])
    table = PhraseTable()
    for sentence in task["sentences"]:
        for source, target, score in sentence["options"]:
            table.add(tuple(source), tuple(target), score)
    decoder = StackDecoder(table, model)
    decoder.stack_size = task["beam"]
    decoder.distortion_factor = math.exp(min(0.0, task["distortion_weight"]))
    line.say({"version": nltk.__version__})
    for _ in line.commands():
        begin = time.perf_counter()
        outputs = [" ".join(decoder.translate(sentence["words"])) for sentence in task["sentences"]]
        line.say({"seconds": time.perf_counter() - begin, "outputs": outputs})


if __name__ == "__main__":
    main()
