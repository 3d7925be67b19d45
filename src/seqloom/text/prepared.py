"""Signs that a text was cut into words already, as WikiText and the Penn Treebank are."""

from collections.abc import Iterable, Iterator

from seqloom.core.symbols import RESERVED, UNKNOWN
from seqloom.text.tokenizer import TextConfig

LOOKED_AT = 10_000
"""Lines that tell enough of a text."""

ENOUGH = 20
"""Marks below which nothing is said: a few may stand apart in any text."""


class PreparedSigns:
    """What is seen in passing: marks that stand apart, hyphens as `@-@`, `<unk>` for unknown words."""

    def __init__(self) -> None:
        self._apart = self._marks = self._hyphens = self._unknown = 0

    def looking_at(self, texts: Iterable[str]) -> Iterator[str]:
        """The same texts; the first of them are looked at as they pass."""
        for number, text in enumerate(texts):
            if number < LOOKED_AT:
                self._look(text)
            yield text

    def _look(self, text: str) -> None:
        padded = f" {text} "
        self._apart += padded.count(" , ") + padded.count(" . ")
        self._marks += text.count(",") + text.count(".")
        self._hyphens += padded.count(" @-@ ")
        self._unknown += padded.count(f" {RESERVED[UNKNOWN]} ")

    def advice(self, config: TextConfig) -> list[str]:
        """Which settings such a text wants that `config` does not have, a sentence each."""
        found = []
        # With `space_before_punctuation` it is the setting that has set them apart, not who prepared the text.
        is_apart = self._apart >= ENOUGH and 2 * self._apart > self._marks and not config.space_before_punctuation
        if config.segmentation == "words" and (is_apart or self._hyphens or self._unknown):
            signs = [f"{self._apart:,} times a comma or full stop apart from its word"] if is_apart else []
            signs += [f"{self._hyphens:,} times @-@"] if self._hyphens else []
            signs += [f"{self._unknown:,} times {RESERVED[UNKNOWN]}"] if self._unknown else []
            found.append(
                f"the text looks as if it was cut into words already ({', '.join(signs)}); text.segmentation=spaces "
                "takes its words as they stand"
            )
        if self._unknown and config.unknown_word is None:
            also = "" if config.segmentation == "spaces" else ", with text.segmentation=spaces,"
            found.append(
                f"{RESERVED[UNKNOWN]} is a word of this text like any other; "
                f"'text.unknown_word={RESERVED[UNKNOWN]}'{also} lets it stand for all words that are unknown"
            )
        return found
