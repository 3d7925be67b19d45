"""The first pass over a parallel text, pair by pair."""

import re
from array import array
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Num

from seqloom.data.blocks import Line
from seqloom.doctor.characters import look_at_characters
from seqloom.doctor.headers import is_header
from seqloom.doctor.pairs import is_copy
from seqloom.doctor.survey import SideSurvey, Survey
from seqloom.text.normalise import is_blank
from seqloom.text.scripts import key_of, likeness_of, main_script, scripts_of, words_of

PROGRESS_INTERVAL = 2_000
"""Lines between two progress events."""

_DIGITS = re.compile(r"\d+(?: \d+)*")
Progress = Callable[[int], None]
Keep = Callable[[Line, list[str], list[str]], None]


@dataclass
class _SideColumns:
    characters: "array[int]" = field(default_factory=lambda: array("i"))
    words: "array[int]" = field(default_factory=lambda: array("i"))
    keys: "array[int]" = field(default_factory=lambda: array("Q"))
    scripts: "array[int]" = field(default_factory=lambda: array("B"))
    letters: Counter[str] = field(default_factory=Counter)

    def add(self, text: str, words: list[str], script_numbers: dict[str, int]) -> None:
        self.characters.append(len(text))
        self.words.append(len(words))
        self.keys.append(likeness_of(text, words))
        scripts = scripts_of(text)
        self.letters.update(scripts)
        script = main_script(scripts, words)
        self.scripts.append(script_numbers.setdefault(script, min(len(script_numbers), 255)))

    def finished(self) -> SideSurvey:
        return SideSurvey(
            _column(self.characters, np.int32),
            _column(self.words, np.int32),
            _column(self.keys, np.uint64),
            _column(self.scripts, np.uint8),
            self.letters,
        )


def _column(values: "array[int]", kind: type) -> Num[np.ndarray, " lines"]:
    return np.array(values, dtype=kind)


def _ignore(_done: int) -> None:
    """Default progress callback."""


def survey_lines(
    lines: Iterable[Line],
    *,
    split: str = "train",
    keep: Keep | None = None,
    progress: Progress = _ignore,
) -> Survey:
    """Read a text once. `keep` is called with each line and its words."""
    source, target = _SideColumns(), _SideColumns()
    exact, shapes, odd, copies, blank = array("Q"), array("Q"), array("i"), array("B"), array("B")
    numbers = {"": 0}
    headers, file = list[int](), -1
    for line in lines:
        if line.file != file:
            file = line.file
            headers += [line.number] if is_header(line.source, line.target) else []
        words = words_of(line.source), words_of(line.target)
        source.add(line.source, words[0], numbers)
        target.add(line.target, words[1], numbers)
        exact.append(key_of(f"{line.source}\t{line.target}"))
        shapes.append(_shape(*words))
        odd.append(look_at_characters(line.source, line.target))
        copies.append(is_copy(line.source, line.target, words=words))
        blank.append(_blank(line.source, words[0]) + 2 * _blank(line.target, words[1]))
        if keep is not None:
            keep(line, *words)
        if len(exact) % PROGRESS_INTERVAL == 0:
            progress(len(exact))
    progress(len(exact))
    return Survey(
        split,
        source.finished(),
        target.finished(),
        exact=_column(exact, np.uint64),
        shapes=_column(shapes, np.uint64),
        odd=_column(odd, np.int32),
        copies=_column(copies, np.uint8),
        blank=_column(blank, np.uint8),
        script_names=tuple(numbers),
        headers=tuple(headers),
    )


def _shape(source: list[str], target: list[str]) -> int:
    text = f"{' '.join(source)}\t{' '.join(target)}"
    shape = _DIGITS.sub("0", text)
    return key_of(shape) if _DIGITS.search(text) else 0


def _blank(text: str, words: list[str]) -> int:
    return int(not words and is_blank(text))
