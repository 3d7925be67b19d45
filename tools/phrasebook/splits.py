"""The split of a tree: a pure function of the concepts in it.

Trees that come out as the same text in some language differ in features that this language leaves unsaid: number,
definiteness, tense, the gender of a pronoun. So the split looks at concepts only. The sum of their codes does not
depend on their order, and a mixing step spreads it over the splits:

    unseen   some adjective with its noun, or verb with its object, is one of the pairs that are held out
    dev, test, train   otherwise, by the mixed sum
"""

from phrasebook import tree
from phrasebook.concepts import Adjective, Concept, Noun
from seqloom.data.phrasebook import Split

MASK = (1 << 64) - 1
# Odd constants of good avalanche (Steele and others, 2014).
FIRST, SECOND = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
# One pair of concepts in thirty is held out; of the other sentences four in a hundred go to dev and to test each.
HELD_OUT = 30
DEV, TEST, ALL = 4, 8, 100


def mix(number: int) -> int:
    """Spread a number over 64 bits: the finaliser of SplitMix64."""
    number = ((number ^ (number >> 30)) * FIRST) & MASK
    number = ((number ^ (number >> 27)) * SECOND) & MASK
    return number ^ (number >> 31)


def is_held_out(first: Concept, second: Noun) -> bool:
    """Whether this adjective or verb never meets this noun outside of `unseen`."""
    return mix(first.code * 3 + second.code) % HELD_OUT == 0


def pair_in(node: tree.NounPhrase | tree.Clause | tree.Copula | tree.HowMany) -> bool:
    """Whether the node itself joins a pair that is held out."""
    if isinstance(node, tree.NounPhrase):
        return node.adjective is not None and is_held_out(node.adjective, node.noun)
    if isinstance(node, tree.HowMany):
        return is_held_out(node.clause.verb, node.noun)
    if isinstance(node, tree.Clause):
        thing = node.object
        return isinstance(thing, tree.NounPhrase | tree.Gap | tree.Echo) and is_held_out(node.verb, thing.noun)
    predicate = node.predicate
    if isinstance(predicate, tree.Comparison):
        predicate = predicate.adjective
    return (
        isinstance(predicate, Adjective)
        and isinstance(node.subject, tree.NounPhrase)
        and is_held_out(predicate, node.subject.noun)
    )


PAIRED = frozenset((tree.NounPhrase, tree.Clause, tree.Copula, tree.HowMany))


def walk(node: tuple[object, ...]) -> tuple[int, bool]:
    """The sum of the codes below a node, and whether some pair below it is held out."""
    total = 0
    held_out = type(node) in PAIRED and pair_in(node)  # type: ignore[arg-type]
    for part in node:
        if isinstance(part, Concept):
            total += part.code
        elif isinstance(part, tuple):
            below, found = walk(part)
            total += below
            held_out = held_out or found
    return total, held_out


def split_of(sentence: tree.Sentence) -> Split:
    """The one split to which a sentence belongs."""
    if isinstance(sentence, tree.Note):
        return "train"
    if isinstance(sentence, tree.Order) and sentence.object and is_held_out(sentence.verb, sentence.object.noun):
        return "unseen"
    total, held_out = walk(sentence)
    if held_out:
        return "unseen"
    share = mix(total & MASK) % ALL
    return "dev" if share < DEV else "test" if share < TEST else "train"
