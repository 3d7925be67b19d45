"""Tokens with the tree nodes they express, and the alignment that follows from them.

A tag names a place in the tree (see `slots`). A token that expresses several places carries a tuple of tags, and 0 is
no place at all.
"""

from typing import NamedTuple, TypeAlias

Tag: TypeAlias = int | tuple[int, ...]
Token: TypeAlias = tuple[str, Tag]


class Rendering(NamedTuple):
    """A sentence of one language: its text, its tokens and the tags of each token."""

    text: str
    tokens: tuple[str, ...]
    tags: tuple[Tag, ...]


def split_spaces(tokens: list[Token]) -> list[Token]:
    """Tokens without spaces: the words of a fixed phrase share its tag."""
    result: list[Token] = []
    for token in tokens:
        word = token[0]
        if " " in word:
            tag = token[1]
            result += [(part, tag) for part in word.split(" ")]
        elif word:
            result.append(token)
    return result


def align(source: tuple[Tag, ...], target: tuple[Tag, ...]) -> tuple[tuple[int, int], ...]:
    """Pairs of positions whose tokens express a common place of the tree."""
    places: dict[int, list[int]] = {}
    for position, tag in enumerate(target):
        for part in tag if isinstance(tag, tuple) else (tag,):
            places.setdefault(part, []).append(position)
    places.pop(0, None)
    pairs: list[tuple[int, int]] = []
    for position, tag in enumerate(source):
        if isinstance(tag, tuple):
            found = {other for part in tag for other in places.get(part, ())}
            pairs += [(position, other) for other in sorted(found)]
        else:
            pairs += [(position, other) for other in places.get(tag, ())]
    return tuple(pairs)
