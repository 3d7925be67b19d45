"""How much of a text a tokeniser has never met."""

from collections.abc import Sequence
from functools import lru_cache

from seqloom.core.symbols import RESERVED, UNKNOWN
from seqloom.text.marks import BYTE_PIECES
from seqloom.text.normalise import is_blank
from seqloom.text.tokenizer import Tokenizer


def unfamiliar_share(tokenizer: Tokenizer, line: str) -> float:
    """The share of a line that its vocabulary does not have: of words by words, otherwise of visible characters.

    Tokens would not do for characters: a run of unknown ones may be one token, or three bytes each.
    """
    if tokenizer.kind == "word":
        ids = tokenizer.encode(line)
        return ids.count(UNKNOWN) / max(1, len(ids))
    known = _characters(tokenizer)
    visible = tokenizer.normaliser(line).replace(" ", "")
    return sum(character not in known for character in visible) / max(1, len(visible))


def are_unknown(tokenizer: Tokenizer, lines: Sequence[str]) -> bool:
    """Whether all that can be seen in some lines is unknown; lines in which nothing can be seen do not count."""
    seen = [line for line in lines if not is_blank(line)]
    return bool(seen) and all(unfamiliar_share(tokenizer, line) == 1 for line in seen)


@lru_cache(maxsize=8)
def _characters(tokenizer: Tokenizer) -> frozenset[str]:
    """All that stand in a piece, but for those that only spell the names of reserved pieces and bytes."""
    named = {*RESERVED, *BYTE_PIECES}
    return frozenset("".join(piece for piece in tokenizer.vocabulary if piece not in named))
