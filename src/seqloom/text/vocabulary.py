"""Vocabularies: the reserved symbols, then tokens by falling frequency; the same ids from the same text everywhere."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from seqloom.core.errors import ConfigError, DataError, ModelError, Problem
from seqloom.core.files import read_lines
from seqloom.core.symbols import RESERVED, UNKNOWN

ALIASES: Mapping[str, str] = {
    **dict.fromkeys(["<pad>", "<PAD>", "[PAD]", "<blank>", "PAD"], "<pad>"),
    **dict.fromkeys(["<s>", "<S>", "<bos>", "<BOS>", "[BOS]", "[CLS]", "<start>", "<START>", "START", "BOS"], "<s>"),
    **dict.fromkeys(["</s>", "</S>", "<eos>", "<EOS>", "[EOS]", "[SEP]", "<end>", "<END>", "END", "EOS"], "</s>"),
    **dict.fromkeys(["<unk>", "<UNK>", "[UNK]", "<oov>", "<OOV>", "UNK"], "<unk>"),
}
"""How other programs and books write the reserved symbols, and what we call them."""

_COUNT = re.compile(r"[0-9]{1,18}")  # what 64 bits can count
_COUNTED = re.compile(rf"(.+)[\t ]({_COUNT.pattern})")


@dataclass(frozen=True)
class Vocabulary:
    """Tokens with their ids and counts. Ids 0 to 3 are reserved; token n of `tokens` has id n + 4.

    A token that is written like a reserved symbol is an ordinary token with its own id.
    """

    tokens: tuple[str, ...]
    """The ordinary tokens in the order of their ids."""
    counts: tuple[int, ...]
    """How often each of them was seen."""
    unknown: int = 0
    """How many tokens of the counted text are not in the vocabulary."""
    _ids: Mapping[str, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        ids = {token: number for number, token in enumerate(self.tokens, start=len(RESERVED))}
        if len(ids) < len(self.tokens) or len(self.counts) != len(self.tokens):
            repeated = [token for token, count in Counter(self.tokens).items() if count > 1]
            raise DataError(
                f"a vocabulary needs different tokens with a count each; {len(self.tokens)} tokens, "
                f"{len(self.counts)} counts, repeated: {repeated[:5]}"
            )
        object.__setattr__(self, "_ids", ids)

    @staticmethod
    def from_counts(
        counts: Mapping[str, int],
        *,
        size: int | None = None,
        minimum_count: int = 1,
        leading: Sequence[str] = (),
    ) -> "Vocabulary":
        """Order tokens by falling count, equal counts by code points, and keep those that are frequent enough.

        `size` is the most ids there may be, the reserved ones included; `leading` are tokens that come before all
        others whatever their count, such as byte pieces.
        """
        taken = len(RESERVED) + len(leading)
        if size is not None and size <= taken:
            raise ConfigError(f"a vocabulary of size {size} has no room for a token: {taken} ids are reserved")
        first = set(leading)
        ordered = sorted((-count, token) for token, count in counts.items() if token not in first)
        kept = [(token, -count) for count, token in ordered if -count >= minimum_count]
        if size is not None:
            kept = kept[: size - taken]
        unknown = -sum(count for count, _ in ordered) - sum(count for _, count in kept)
        tokens = (*leading, *(token for token, _ in kept))
        return Vocabulary(tokens, tuple(counts.get(token, 0) for token in tokens), unknown)

    @property
    def size(self) -> int:
        """The number of ids, the reserved ones included."""
        return len(RESERVED) + len(self.tokens)

    def __iter__(self) -> Iterator[str]:
        """All tokens in the order of their ids, the reserved ones first."""
        yield from RESERVED
        yield from self.tokens

    def id_of(self, token: str) -> int:
        """The id of a token, or that of `<unk>`."""
        return self._ids.get(token, UNKNOWN)

    def encode(self, tokens: Iterable[str]) -> list[int]:
        """The ids of tokens."""
        known = self._ids
        return [known.get(token, UNKNOWN) for token in tokens]

    def to_text(self) -> str:
        """The file of this vocabulary: a line per id with token, tab and count; `<unk>` has the count of the lost."""
        reserved = [f"{token}\t{self.unknown if number == UNKNOWN else 0}" for number, token in enumerate(RESERVED)]
        ordinary = [f"{token}\t{count}" for token, count in zip(self.tokens, self.counts, strict=True)]
        return "\n".join([*reserved, *ordinary, ""])

    @staticmethod
    def from_text(text: str) -> "Vocabulary":
        """Read what `to_text` wrote."""
        if not text.endswith("\n"):
            raise ModelError("the last line is cut short; restore the file from a copy of the model")
        tokens, counts = [], []
        for number, line in enumerate(text[:-1].split("\n"), start=1):
            token, tab, count = line.rpartition("\t")
            if not tab or not token or not _COUNT.fullmatch(count):
                raise ModelError(f"line {number}, {line[:60]!r}, is not a token, a tab and a count")
            tokens.append(token)
            counts.append(int(count))
        reserved = len(RESERVED)
        if tuple(tokens[:reserved]) != RESERVED:
            raise ModelError(f"it does not begin with {RESERVED} but with {tuple(tokens[:reserved])}")
        return Vocabulary(tuple(tokens[reserved:]), tuple(counts[reserved:]), counts[UNKNOWN])


def count_tokens(lines: Iterable[Iterable[str]]) -> Counter[str]:
    """How often each token occurs in a text, given as the tokens of its lines."""
    counts: Counter[str] = Counter()
    for line in lines:
        counts.update(line)
    return counts


def read_foreign_vocabulary(path: Path, *, encoding: str = "utf-8") -> Vocabulary:
    """Read another program's vocabulary: a token per line, with or without a count after a tab or a space.

    Its reserved symbols may have other names (`ALIASES`) and places; ours come first and the tokens keep their order.
    Names without brackets (`START`, `END`) are words unless they are in the first four lines.
    """
    tokens: dict[str, int] = {}
    problems = []
    for number, line in enumerate(read_lines(path, encoding), start=1):
        match = _COUNTED.fullmatch(line)
        token, count = (match[1], int(match[2])) if match else (line, 0)
        if token in ALIASES and (number <= len(RESERVED) or not token.isalpha()):
            continue
        if not token or token in tokens:
            problems.append(Problem("empty line" if not token else f"{token!r} is a duplicate", str(path), number))
        elif " " in token.strip(" ") or "\t" in token.strip("\t"):
            problems.append(Problem(f"{token[:40]!r} is several words", str(path), number))
        tokens[token] = count
    if not tokens:
        raise DataError(f"{path} has no tokens; a vocabulary has one per line")
    if problems:
        raise DataError("a vocabulary has one token per line, each once; is this a text?", problems=problems)
    return Vocabulary(tuple(tokens), tuple(tokens.values()))
