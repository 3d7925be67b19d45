"""French: elision and contraction, agreement of adjectives and participles, clitics, ne … pas.

    subject  ne  clitics  finite  pas  adverb  participle or infinitive  object  to whom  how  where  when

The participle agrees with the subject after être and with a direct object that precedes it after avoir. With a modal
the clitics stand before the infinitive.
"""

from phrasebook import slots, tree
from phrasebook.concepts import Adjective, Noun, Person, Region
from phrasebook.french_words import (
    ARTICLES,
    AVOIR,
    BEFORE_VOWEL,
    CONTRACTIONS,
    DIRECT,
    ETAIT,
    ETRE,
    INDIRECT,
    REFLEXIVES,
    SERA,
    SUBJECTS,
    TONIC,
    agree,
    begins_with_vowel,
    clock,
    elide,
    is_feminine,
    is_plural,
    person_of,
    sometime,
)
from phrasebook.lexicon import NUMBERS
from phrasebook.notes import NOTES
from phrasebook.tokens import Rendering, Tag, Token, split_spaces
from phrasebook.tree import Determiner, Pronoun, Tense, Wh

QUESTIONS = {
    Wh.WHAT: "qu'est-ce que",
    Wh.WHO: "qui",
    Wh.WHERE: "où est-ce que",
    Wh.WHEN: "quand est-ce que",
    Wh.WHY: "pourquoi est-ce que",
}
LINKS = {"and": "et", "but": "mais", "so": "donc", "because": "parce que", "if": "si"}
# How an object without article is said: as a part (du pain), as a kind (le pain), negated (de pain), or bare.
PART, KIND, NONE, PLAIN = "part", "kind", "none", "plain"


def article(phrase: tree.NounPhrase, bare: str, next_word: str) -> str:
    """The article of a noun phrase; `bare` says what stands where there is none in English."""
    noun, determiner, plural = phrase.noun, phrase.determiner, phrase.plural
    if bare == NONE and determiner in (Determiner.A, Determiner.BARE) and not phrase.number:
        return "de"
    column = 2 if plural else 1 if noun.fr.feminine else 0
    if determiner == Determiner.BARE:
        if phrase.number or bare == PLAIN:
            return ""
        if bare == KIND:
            return ARTICLES[Determiner.THE][column]
        if plural:
            # des becomes de before an adjective: de petits chiens
            return "de" if phrase.adjective is not None and phrase.adjective.fr_precedes else "des"
        return "de l'" if begins_with_vowel(next_word) else "de la" if noun.fr.feminine else "du"
    word = ARTICLES[determiner][column]
    return BEFORE_VOWEL.get(word, word) if begins_with_vowel(next_word) else word


def adjective_form(adjective: Adjective, *, feminine: bool, plural: bool, before: str = "") -> str:
    forms = adjective.fr
    if plural:
        return forms[4] if feminine else forms[3]
    if feminine:
        return forms[2]
    return forms[1] if before and begins_with_vowel(before) else forms[0]


def noun_phrase(phrase: tree.NounPhrase, base: int, bare: str = PART) -> list[Token]:
    place = base << 4
    noun, adjective = phrase.noun.fr, phrase.adjective
    word = noun.plural if phrase.plural else noun.singular
    tokens: list[Token] = [(word, place | slots.HEAD)]
    if adjective is not None:
        precedes = adjective.fr_precedes
        before = word if precedes else ""
        form = adjective_form(adjective, feminine=noun.feminine, plural=phrase.plural, before=before)
        tokens.insert(0 if precedes else 1, (form, place | slots.ADJECTIVE))
    if phrase.number:
        tokens.insert(0, (NUMBERS[phrase.number][1], place | slots.COUNT))
    determiner = article(phrase, bare, tokens[0][0])
    if determiner:
        tokens.insert(0, (determiner, place | slots.DETERMINER))
    if phrase.relative is not None:
        pronoun = "qui" if isinstance(phrase.relative.subject, tree.Gap) else "que"
        tokens.append((pronoun, place | slots.PRONOUN))
        tokens += clause(phrase.relative, place | slots.RELATIVE)
    return tokens


def nominal(phrase: tree.Nominal, base: int, forms: tuple[str, ...] = TONIC, bare: str = PART) -> list[Token]:
    if isinstance(phrase, tree.NounPhrase):
        return noun_phrase(phrase, base, bare)
    if isinstance(phrase, Pronoun):
        return [(forms[phrase], base << 4 | slots.HEAD)]
    if isinstance(phrase, Person):
        return [(phrase.fr, base << 4 | slots.HEAD)]
    if isinstance(phrase, tree.Both):
        first = nominal(phrase.first, base << 4 | slots.FIRST)
        return [*first, ("et", base << 4 | slots.AND), *nominal(phrase.second, base << 4 | slots.SECOND)]
    return []


def prepositional(preposition: str, phrase: tree.Nominal, base: int, tag: int) -> list[Token]:
    """A preposition with its phrase: à + le is au, de + les is des."""
    tokens = nominal(phrase, base)
    head, _, last = preposition.rpartition(" ")
    if isinstance(phrase, tree.NounPhrase) and phrase.determiner == Determiner.THE and len(tokens) > 1:
        article_word, following = tokens[0][0], tokens[1][0]
        short = CONTRACTIONS.get((last, article_word))
        if short is not None and not (article_word == "le" and begins_with_vowel(following)):
            whole = f"{head} {short}" if head else short
            return [(whole, (tag, base << 4 | slots.DETERMINER)), *tokens[1:]]
    return [(preposition, tag), *tokens]


def somewhere(place: tree.Somewhere, base: int, origin: bool = False) -> list[Token]:
    tag = base << 4 | slots.PREPOSITION
    if isinstance(place, Region):
        return [(place.fr_from if origin else place.fr_in, tag), (place.fr, base << 4 | slots.HEAD)]
    if isinstance(place, tree.There):
        return []
    return prepositional(place.relation.fr, place.ground, base, tag)


def clitics(value: tree.Clause, place: int) -> list[Token]:
    """Pronouns that stand before the verb."""
    tokens: list[Token] = []
    thing, recipient, verb = value.object, value.recipient, value.verb.fr
    if verb.reflexive:
        tokens.append((REFLEXIVES[person_of(value.subject)], 0))
    if isinstance(thing, Pronoun) and verb.preposition in ("", "à"):
        forms = INDIRECT if verb.preposition else DIRECT
        tokens.append((forms[thing], (place | slots.OBJECT) << 4 | slots.HEAD))
    elif isinstance(thing, tree.Echo):
        word = "les" if thing.plural else "la" if thing.noun.fr.feminine else "le"
        tokens.append((word, (place | slots.OBJECT) << 4 | slots.HEAD))
    if isinstance(recipient, Pronoun):
        tokens.append((INDIRECT[recipient], (place | slots.RECIPIENT) << 4 | slots.HEAD))
    if isinstance(value.goal, tree.There):
        tokens.append(("y", (place | slots.GOAL) << 4 | slots.HEAD))
    return tokens


def participle(value: tree.Clause, preceding: tree.Nominal | None) -> str:
    """The participle, with the agreement that its auxiliary asks for."""
    verb = value.verb.fr
    if verb.etre:
        return agree(verb.participle, value.subject)
    thing = value.object if preceding is None else preceding
    if isinstance(thing, tree.Gap):
        return agree(verb.participle, thing)
    if isinstance(thing, Pronoun | tree.Echo) and not verb.preposition:
        return agree(verb.participle, thing)
    return verb.participle


def predicate_verb(value: tree.Clause, place: int, preceding: tree.Nominal | None) -> list[Token]:
    """Ne, clitics, finite verb, pas, adverb, participle or infinitive."""
    verb, person, tense = value.verb.fr, person_of(value.subject), value.tense
    negation = place | slots.NEGATION
    frequency = value.frequency
    never = frequency is not None and frequency.name == "never"
    before = clitics(value, place)
    rest: list[Token] = []
    main: Tag = place | slots.VERB
    both = (place | slots.VERB, place | slots.TENSE)
    if value.modal is not None:
        finite: Token = (value.modal.fr[person], place | slots.MODAL)
        rest = [*before, (verb.infinitive, main)]
        before = []
    elif tense == Tense.FUTURE:
        finite = (verb.future[person], both)
    elif tense == Tense.PAST and "state" in value.verb.traits:
        finite = (verb.imperfect[person], both)
    elif tense in (Tense.PAST, Tense.PERFECT):
        finite = ((ETRE if verb.etre else AVOIR)[person], place | slots.TENSE)
        rest = [(participle(value, preceding), main)]
    else:
        finite = (verb.present[person], main)
    after: list[Token] = []
    if tense == Tense.PERFECT:
        after = [("jamais", negation) if value.negated else ("déjà", place | slots.DEGREE)]
    elif value.negated:
        after = [("pas", negation)]
    elif frequency is not None:
        after = [(frequency.fr, place | slots.FREQUENCY)]
    ne: list[Token] = []
    if value.negated or never:
        ne = [("ne", negation if value.negated else place | slots.FREQUENCY)]
    return [*ne, *before, finite, *after, *rest]


def bare_use(value: tree.Clause) -> str:
    traits = value.verb.traits
    if "like" in traits:
        return KIND
    if "bare" in traits:
        return PLAIN
    never = value.frequency is not None and value.frequency.name == "never"
    return NONE if value.negated or never else PART


def clause(value: tree.Proposition, base: int, preceding: tree.Nominal | None = None) -> list[Token]:
    """A clause; `preceding` is a direct object that a question has put in front."""
    if isinstance(value, tree.Copula):
        return copula(value, base)
    place = base << 4
    verb = value.verb.fr
    tokens = nominal(value.subject, place | slots.SUBJECT, SUBJECTS)
    tokens += predicate_verb(value, place, preceding)
    if verb.tail:
        tokens.append((verb.tail, place | value.verb.complement))
    thing, recipient = value.object, value.recipient
    if thing is not None:
        if verb.preposition:
            if not isinstance(thing, Pronoun) or verb.preposition != "à":
                tokens += prepositional(verb.preposition, thing, place | slots.OBJECT, place | slots.PREPOSITION)
        elif not isinstance(thing, Pronoun):
            tokens += nominal(thing, place | slots.OBJECT, bare=bare_use(value))
    if recipient is not None and not isinstance(recipient, Pronoun):
        tokens += prepositional("à", recipient, place | slots.RECIPIENT, 0)
    if value.manner is not None:
        tokens.append((value.manner.fr, place | slots.MANNER))
    if value.goal is not None:
        tokens += somewhere(value.goal, place | slots.GOAL)
    if value.place is not None:
        tokens += somewhere(value.place, place | slots.PLACE, origin="origin" in value.verb.traits)
    return with_time(tokens, value.time, base, value.fronted)


def with_time(tokens: list[Token], time: tree.Sometime | None, base: int, fronted: bool) -> list[Token]:
    if time is None:
        return tokens
    words = sometime(time, base << 4 | slots.TIME)
    return [*words, (",", (base << 4 | slots.TIME) << 4 | slots.COMMA), *tokens] if fronted else tokens + words


def copula(value: tree.Copula, base: int) -> list[Token]:
    place, person = base << 4, person_of(value.subject)
    verb: Tag = place | slots.VERB
    both = (place | slots.VERB, place | slots.TENSE)
    if isinstance(value.predicate, tree.Age):
        finite: Token = (AVOIR[person], verb)
    elif value.tense == Tense.FUTURE:
        finite = (SERA[person], both)
    elif value.tense == Tense.PAST:
        finite = (ETAIT[person], both)
    else:
        finite = (ETRE[person], verb)
    tokens = nominal(value.subject, place | slots.SUBJECT, SUBJECTS)
    negation = place | slots.NEGATION
    tokens += [("ne", negation), finite, ("pas", negation)] if value.negated else [finite]
    if value.very:
        tokens.append(("très", place | slots.DEGREE))
    tokens += predicate(value, place | slots.PREDICATE)
    return with_time(tokens, value.time, base, value.fronted)


def predicate(value: tree.Copula, base: int) -> list[Token]:
    place, what, subject = base << 4, value.predicate, value.subject
    if isinstance(what, Noun):
        return [(what.woman[0] if tree.is_woman(subject) else what.fr.singular, place | slots.HEAD)]
    if isinstance(what, tree.Age):
        return [(NUMBERS[what.years][1], place | slots.COUNT), ("ans", (place | slots.HEAD, place | slots.UNIT))]
    if isinstance(what, tree.Place):
        return somewhere(what, base)
    feminine, plural = is_feminine(subject), is_plural(subject)
    if isinstance(what, Adjective):
        return [(adjective_form(what, feminine=feminine, plural=plural), place | slots.HEAD)]
    form = adjective_form(what.adjective, feminine=feminine, plural=plural)
    if what.adjective.name == "good":
        better = "meilleur" + ("e" if feminine else "") + ("s" if plural else "")
        compared: list[Token] = [(better, place | slots.HEAD)]
    else:
        compared = [("plus", place | slots.HEAD), (form, place | slots.HEAD)]
    return [*compared, ("que", place | slots.PREPOSITION), *nominal(what.than, place | slots.OBJECT)]


def order_words(value: tree.Order) -> list[Token]:
    place = slots.ROOT << 4
    verb = value.verb.fr
    word = verb.present[1]
    negation = place | slots.NEGATION
    # mange, ouvre, va: no s after e and a
    command: Token = (word.removesuffix("s") if word.endswith(("es", "as")) else word, place | slots.VERB)
    tokens = [("ne", negation), command, ("pas", negation)] if value.negated else [command]
    if value.to_me:
        tokens.append(("-moi", (place | slots.RECIPIENT) << 4))
    if value.object is not None:
        if verb.preposition:
            tokens += prepositional(verb.preposition, value.object, place | slots.OBJECT, place | slots.PREPOSITION)
        else:
            tokens += noun_phrase(value.object, place | slots.OBJECT, NONE if value.negated else PART)
    if value.polite:
        tokens += [(",", 0), ("s' il te plaît", place | slots.DEGREE)]
    return tokens


def joined(value: tree.Joined) -> list[Token]:
    place = slots.ROOT << 4
    first, second = clause(value.first, place | slots.LEFT), clause(value.second, place | slots.RIGHT)
    link: Token = (LINKS[value.link], place | slots.LINK)
    comma: Token = (",", place | slots.COMMA)
    if value.link == "if":
        return [link, *second, comma, *first]
    if value.link in ("because", "and"):
        return [*first, link, *second]
    return [*first, comma, link, *second]


def body(value: tree.Sentence) -> tuple[list[Token], str]:
    """The words of a sentence, and its closing mark."""
    place = slots.ROOT << 4
    match value:
        case tree.Statement(proposition):
            return clause(proposition, place | slots.LEFT), "."
        case tree.Question(proposition):
            return [("est-ce que", 0), *clause(proposition, place | slots.LEFT)], "?"
        case tree.OpenQuestion(asks, proposition):
            return [(QUESTIONS[asks], place | slots.ASK), *clause(proposition, place | slots.LEFT)], "?"
        case tree.Joined():
            return joined(value), "."
        case tree.Reported(subject, verb, proposition):
            main = clause(tree.Clause(subject, verb), place | slots.LEFT)
            return [*main, ("que", place | slots.LINK), *clause(proposition, place | slots.RIGHT)], "."
        case tree.Order():
            return order_words(value), "." if value.polite else "!"
        case tree.Existence(thing, where):
            what = noun_phrase(thing, place | slots.OBJECT)
            return [("il y a", place | slots.VERB), *what, *somewhere(where, place | slots.PLACE)], "."
        case tree.HowMany(noun, proposition):
            asked: list[Token] = [("combien de", place | slots.ASK), (noun.fr.plural, place | slots.OBJECT)]
            act = clause(proposition, place | slots.LEFT, preceding=tree.Gap(noun, True))
            return [*asked, ("est-ce que", 0), *act], "?"
        case tree.WhereIs(thing, polite):
            excuse: list[Token] = [("excusez-moi", place | slots.DEGREE), (",", place | slots.COMMA)]
            asked = [("où", place | slots.ASK), ("sont" if thing.plural else "est", place | slots.VERB)]
            return (excuse if polite else []) + asked + noun_phrase(thing, place | slots.SUBJECT), "?"
        case tree.ClockIs(hour, half):
            return [("il", place | slots.SUBJECT), ("est", place | slots.VERB), *clock(hour, half, place << 4)], "."
        case tree.Note(which):
            words = NOTES[which]["fr"]
            return list(words[:-1]), words[-1][0]


def render(value: tree.Sentence) -> Rendering:
    """A French sentence."""
    tokens, mark = body(value)
    tokens = elide(split_spaces(tokens))
    tokens.append((mark, slots.ROOT << 4 | slots.STOP))
    first = tokens[0]
    tokens[0] = (first[0][0].upper() + first[0][1:], first[1])
    words, tags = zip(*tokens, strict=True)
    text = " ".join(words).replace("' ", "'").replace(" ,", ",").replace(" -", "-")
    return Rendering(text[:-2] + "." if mark == "." else text, words, tags)
