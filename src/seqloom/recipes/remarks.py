"""What is said of a training text once it is encoded: what repeats, what is lopsided, what the vocabulary lacks."""

from seqloom.core.symbols import RESERVED, UNKNOWN
from seqloom.data.overview import LOPSIDED, Overview, look_over
from seqloom.data.store import Store
from seqloom.text.marks import BYTE_PIECES, SPACE, is_unspaced
from seqloom.text.tokenizer import Tokenizer, Tokenizers

MANY_LETTERS = 0.4
"""The share of single letters among subwords from which on a text is spelled rather than cut into pieces of words."""

MANY_UNFAMILIAR = 0.2
"""The share of a text that a vocabulary may lack before it is told."""

NOTHING_FAMILIAR = 0.99
"""The share of a side that is unknown from which on nothing can be learned from it."""


def overview_of(store: Store, tokenizers: Tokenizers) -> Overview:
    """The overview of a store that was made with these tokenisers."""
    unfamiliar = unfamiliar_ids(tokenizers.source), unfamiliar_ids(tokenizers.target)
    letters = letter_ids(tokenizers.source), letter_ids(tokenizers.target)
    return look_over(store, is_shared=tokenizers.is_shared, unfamiliar=unfamiliar, letters=letters)


def letter_ids(tokenizer: Tokenizer) -> list[int]:
    """The ids of subwords that are single letters, with or without a space before them; none where that is usual.

    Chinese characters and the like are no letters here, and a vocabulary that could not be larger is not blamed.
    """
    if tokenizer.kind not in ("bpe", "unigram") or tokenizer.size < tokenizer.config.size:
        return []
    pieces = ((id, piece.removeprefix(SPACE)) for id, piece in enumerate(tokenizer.vocabulary))
    return [id for id, piece in pieces if len(piece) == 1 and piece.isalpha() and not is_unspaced(piece)]


def spelling_remarks(found: Overview, name: str, tokenizers: Tokenizers) -> list[str]:
    """A sentence for each side that is spelled nearly letter by letter."""
    said = []
    sides = zip(("source", "target"), found.letters, found.tokens, (tokenizers.source, tokenizers.target), strict=True)
    for side, share, tokens, tokenizer in sides:
        if share > MANY_LETTERS:
            single = sum(len(piece.removeprefix(SPACE)) == 1 for piece in tokenizer.vocabulary)
            said.append(
                f"{name}: the {side} is spelled nearly letter by letter: {share:.0%} of its {tokens:,} tokens are "
                f"single letters, because {single:,} of the {tokenizer.size:,} pieces are single characters, which "
                f"leaves little room for longer ones; raise text.size (now {tokenizer.config.size})"
            )
    return said


def unfamiliar_ids(tokenizer: Tokenizer) -> list[int]:
    """The ids that stand for what a vocabulary does not have: unknown, and bytes unless it hardly has anything else."""
    bytes_ = {*BYTE_PIECES} if tokenizer.size > len(RESERVED) + 2 * len(BYTE_PIECES) else set()
    return [UNKNOWN, *(id for id, piece in enumerate(tokenizer.vocabulary) if piece in bytes_)]


def remarks_on(found: Overview, name: str, *, borrowed: str | None = None) -> list[str]:
    """A sentence on what repeats and what is lopsided, and one for each side that is hardly known.

    `borrowed` is the setting that names tokenisers which were not learned from this text.
    """
    way_out = "try text.kind=bpe, or a larger text.size"
    if borrowed is not None:
        way_out = f"leave out {borrowed}, to learn a tokeniser from this text"
    counts = (
        (found.repeated, "repeat an earlier pair", "duplicates"),
        (found.copied or 0, "have the same text on both sides", "copies"),
        (found.lopsided, f"have a side with more than {LOPSIDED} times its usual share of the pieces", "ratios"),
    )
    parts = [f"{count:,} {what}" for count, what, _ in counts if count]
    repairs = [repair for count, _, repair in counts if count]
    said = []
    if parts:
        said.append(
            f"{name}: of {found.pairs:,} pairs {', '.join(parts)}; they are kept (counted in pieces of the "
            f"vocabulary; seqloom doctor judges the text itself, and --fix {','.join(repairs)} drops what it finds)"
        )
    for side, share in zip(("source", "target"), found.unfamiliar, strict=True):
        if share > MANY_UNFAMILIAR:
            said.append(
                f"{name}: {share:.0%} of the {side} is unknown to the vocabulary, so little can be learnt from it; "
                f"{way_out}"
            )
    return said
