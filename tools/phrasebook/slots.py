"""Places in a tree, by number: the slots that tags are made of.

A tag is `base << 4 | slot`, where the base of a phrase is the tag of its own place in the phrase above. So every
word of a sentence can say which part of the tree it expresses, in any language, and the tree knows nothing of tags.
"""

ROOT = 1

# A clause. COMPLEMENT is the fixed part of a verb: play "the piano".
VERB, TENSE, NEGATION, MODAL, SUBJECT, OBJECT, RECIPIENT, PLACE = 0, 1, 2, 3, 4, 5, 6, 7
TIME, FREQUENCY, MANNER, PREPOSITION, GOAL, PREDICATE, DEGREE, COMPLEMENT = 8, 9, 10, 11, 12, 13, 14, 15
# A noun phrase, a place or a time.
HEAD, DETERMINER, ADJECTIVE, COUNT, PRONOUN, RELATIVE, FIRST, SECOND, AND, UNIT, COMMA = (
    0,
    1,
    2,
    3,
    4,
    5,
    6,
    7,
    8,
    9,
    10,
)
# A sentence made of clauses; its comma is 10 as well.
LINK, LEFT, RIGHT, STOP, ASK = 1, 2, 3, 12, 13
