"""Chinese: classifiers, aspect instead of tense, 不 and 没, 的 after relative clauses, everything before the verb.

    subject  time  每…都  frequency  不/没/会/能  place  manner  coverb + object  verb  了/过  object

The definite article is 那 with a classifier, plural 那些, except in a place, where the bare noun is definite already:
在厨房里.
"""

from phrasebook import slots, tree
from phrasebook.concepts import Noun, Person, Region, Time
from phrasebook.lexicon import NUMBERS
from phrasebook.notes import NOTES
from phrasebook.tokens import Rendering, Tag, Token, split_spaces
from phrasebook.tree import Determiner, Pronoun, Tense, Wh

PRONOUNS = ("我", "你", "他", "她", "我们", "他们", "")
OWNERS = {
    Determiner.MY: "我",
    Determiner.YOUR: "你",
    Determiner.HIS: "他",
    Determiner.HER: "她",
    Determiner.OUR: "我们",
    Determiner.THEIR: "他们",
}
LINKS = {"and": "", "but": "但是", "so": "所以", "because": "因为", "if": "如果"}
# Adjectives of one syllable that go straight before the noun.
CLOSE = frozenset(("大", "小", "新", "旧"))
# Hats and scarves are worn with another verb than shirts.
WORN_ON_TOP = frozenset(("hat", "scarf"))
# An adjective that has another form in the predicate.
PREDICATIVE = {"年老": "老"}
HOURS = ("", "一", *(row[3] for row in NUMBERS[2:]))


def quantity(phrase: tree.NounPhrase, place: int) -> list[Token]:
    """What stands before adjective and noun: demonstrative, number and classifier, or the owner."""
    noun, determiner, plural, count = phrase.noun, phrase.determiner, phrase.plural, phrase.number
    tag = place | slots.DETERMINER
    classifier = noun.zh[1]
    number: list[Token] = [(NUMBERS[count][3], place | slots.COUNT), (classifier, place | slots.COUNT)] if count else []
    owner = OWNERS.get(determiner)
    if owner is not None:
        tokens: list[Token] = [(owner, tag)] if noun.is_kin else [(owner, tag), ("的", tag)]
        return [*tokens, ("那些", tag)] if plural else tokens
    if determiner in (Determiner.THE, Determiner.THIS):
        word = "那" if determiner == Determiner.THE else "这"
        if count:
            return [(word, tag), *number]
        return [(word + "些", tag)] if plural else [(word, tag), (classifier, tag)]
    if determiner == Determiner.A:
        return [("一", tag), (classifier, tag)]
    if determiner == Determiner.EVERY:
        return [("每", tag), (classifier, tag)]
    if determiner == Determiner.MANY:
        return [("很多", tag)]
    if determiner == Determiner.SOME:
        return [("一些", tag)]
    return number


def noun_phrase(phrase: tree.NounPhrase, base: int, *, bare: bool = False) -> list[Token]:
    """A noun phrase; `bare` leaves out the article of a definite one, as places and negated objects do."""
    place = base << 4
    adjective = phrase.adjective
    tokens: list[Token] = []
    if phrase.relative is not None:
        tokens += clause(phrase.relative, place | slots.RELATIVE)
        tokens.append(("的", place | slots.PRONOUN))
    simple = bare and adjective is None and phrase.determiner in (Determiner.THE, Determiner.A)
    if not simple and not (phrase.noun.is_mass and phrase.determiner == Determiner.THE):
        tokens += quantity(phrase, place)
    if adjective is not None:
        tokens.append((adjective.zh, place | slots.ADJECTIVE))
        if adjective.zh not in CLOSE:
            tokens.append(("的", place | slots.ADJECTIVE))
    tokens.append((phrase.noun.zh[0], place | slots.HEAD))
    return tokens


def nominal(phrase: tree.Nominal, base: int, *, bare: bool = False) -> list[Token]:
    if isinstance(phrase, tree.NounPhrase):
        return noun_phrase(phrase, base, bare=bare)
    if isinstance(phrase, Pronoun):
        return [(PRONOUNS[phrase], base << 4 | slots.HEAD)]
    if isinstance(phrase, Person):
        return [(phrase.zh, base << 4 | slots.HEAD)]
    if isinstance(phrase, tree.Both):
        first = nominal(phrase.first, base << 4 | slots.FIRST)
        return [*first, ("和", base << 4 | slots.AND), *nominal(phrase.second, base << 4 | slots.SECOND)]
    if isinstance(phrase, tree.Echo):
        return [("它们" if phrase.plural else "它", base << 4 | slots.HEAD)]
    return []


def ground(place: tree.Somewhere, base: int) -> list[Token]:
    """A place without preposition: 柏林, 厨房里, 床下面."""
    if isinstance(place, Region):
        return [(place.zh, base << 4 | slots.HEAD)]
    if isinstance(place, tree.There):
        return [("那里", base << 4 | slots.HEAD)]
    tokens = noun_phrase(place.ground, base, bare=True)
    suffix = place.relation.zh
    return [*tokens, (suffix, base << 4 | slots.PREPOSITION)] if suffix else tokens


def sometime(time: tree.Sometime, base: int) -> list[Token]:
    place = base << 4
    if isinstance(time, Time):
        return [(time.zh, place | slots.HEAD)]
    kind, first, second = time
    count: Tag = place | slots.COUNT
    if kind == "date":
        return [(f"{second}月", place | slots.HEAD), (f"{first}日", count)]
    if kind == "ago":
        return [(NUMBERS[first][3], count), ("天", place | slots.HEAD), ("前", place | slots.PREPOSITION)]
    if kind == "year":
        return [(f"{first}年", count)]
    return clock(first, second, place)


def clock(hour: int, half: int, place: int) -> list[Token]:
    tokens: list[Token] = [(HOURS[hour], place | slots.COUNT), ("点", place | slots.HEAD)]
    return [*tokens, ("半", place | slots.UNIT)] if half else tokens


def is_every(subject: tree.Nominal) -> bool:
    return isinstance(subject, tree.NounPhrase) and subject.determiner == Determiner.EVERY


def auxiliaries(value: tree.Clause, place: int, then: bool) -> list[Token]:
    """Negation, frequency, modal and future: what stands before the verb phrase."""
    tokens: list[Token] = []
    negation, tense = place | slots.NEGATION, value.tense
    if is_every(value.subject):
        tokens.append(("都", (place | slots.SUBJECT) << 4 | slots.DETERMINER))
    if then:
        tokens.append(("就", slots.ROOT << 4 | slots.LINK))
    if value.frequency is not None:
        tokens.append((value.frequency.zh, place | slots.FREQUENCY))
    if tense == Tense.PERFECT:
        tokens.append(("从来 没", negation) if value.negated else ("已经", place | slots.DEGREE))
    elif value.negated:
        past = tense in (Tense.PAST, Tense.PROGRESSIVE) and "state" not in value.verb.traits
        tokens.append(("没" if past or "have" in value.verb.traits else "不", negation))
    if value.modal is not None:
        tokens.append((value.modal.zh, place | slots.MODAL))
    elif tense == Tense.FUTURE:
        tokens.append(("会", place | slots.TENSE))
    elif tense == Tense.PROGRESSIVE:
        # 正 before a place, which begins with 在 itself
        tokens.append(("在" if value.place is None else "正" if not value.negated else "", place | slots.TENSE))
    return tokens


def aspect(value: tree.Clause, place: int) -> list[Token]:
    """了 after what is done, 过 after what was never done; nothing in a relative clause for the object."""
    if value.tense == Tense.PERFECT:
        return [("过" if value.negated else "了", place | slots.TENSE)]
    if value.tense == Tense.PAST and not value.negated and "state" not in value.verb.traits:
        return [] if isinstance(value.object, tree.Gap) else [("了", place | slots.TENSE)]
    return []


def verb_phrase(value: tree.Clause, place: int, asked: list[Token]) -> list[Token]:
    """The verb with its aspect and what follows it; `asked` stands for an object that is asked for."""
    verb, thing, recipient = value.verb.zh, value.object, value.recipient
    negative = value.negated or (value.frequency is not None and value.frequency.name == "never")
    indefinite = isinstance(thing, tree.NounPhrase) and thing.determiner == Determiner.A
    words = asked
    if thing is not None:
        words = nominal(thing, place | slots.OBJECT, bare=negative and indefinite)
    tokens: list[Token] = []
    word = verb.word
    if value.verb.name == "wear" and isinstance(thing, tree.NounPhrase | tree.Gap | tree.Echo):
        word = "戴" if thing.noun.name in WORN_ON_TOP else word
    if verb.coverb:
        if recipient is not None:
            tokens += [(verb.coverb, 0), *nominal(recipient, place | slots.RECIPIENT)]
            recipient = None
        else:
            tokens += [(verb.coverb, place | slots.PREPOSITION), *words]
            words = []
    tokens += [(word, place | slots.VERB), *aspect(value, place)]
    if recipient is not None:
        tokens += nominal(recipient, place | slots.RECIPIENT)
    tokens += words
    if value.goal is not None:
        tokens += ground(value.goal, place | slots.GOAL)
    if value.verb.traits & {"origin", "residence"} and value.place is not None:
        tokens += ground(value.place, place | slots.PLACE)
    if verb.tail:
        tokens.append((verb.tail, place | value.verb.complement))
    return tokens


def clause(
    value: tree.Proposition, base: int, asks: Wh | None = None, *, then: bool = False, asked: list[Token] | None = None
) -> list[Token]:
    """A clause; `asks` puts a question word in its place, `then` adds 就 after a condition."""
    if isinstance(value, tree.Copula):
        return copula(value, base, then=then)
    place = base << 4
    word = slots.ROOT << 4 | slots.ASK
    subject: list[Token] = [("谁", word)] if asks == Wh.WHO else nominal(value.subject, place | slots.SUBJECT)
    time: list[Token] = [] if value.time is None else sometime(value.time, place | slots.TIME)
    if asks == Wh.WHEN:
        time = [("什么 时候", word)]
    elif asks == Wh.WHY:
        time = [("为什么", word)]
    rest = auxiliaries(value, place, then)
    weather = value.subject == Pronoun.WEATHER
    if asks == Wh.WHERE:
        rest += [("在", 0), ("哪里", word)]
    elif value.place is not None and weather:
        subject = ground(value.place, place | slots.PLACE)
    elif value.place is not None and not value.verb.traits & {"origin", "residence"}:
        rest += [("在", (place | slots.PLACE) << 4 | slots.PREPOSITION), *ground(value.place, place | slots.PLACE)]
    if value.manner is not None:
        rest.append((value.manner.zh, place | slots.MANNER))
    what: list[Token] = [("什么", word)] if asks == Wh.WHAT else asked or []
    rest += verb_phrase(value, place, what)
    return [*time, *subject, *rest] if value.fronted else [*subject, *time, *rest]


def copula(value: tree.Copula, base: int, *, then: bool) -> list[Token]:
    place = base << 4
    subject = nominal(value.subject, place | slots.SUBJECT)
    time: list[Token] = [] if value.time is None else sometime(value.time, place | slots.TIME)
    rest: list[Token] = []
    if is_every(value.subject):
        rest.append(("都", (place | slots.SUBJECT) << 4 | slots.DETERMINER))
    if then:
        rest.append(("就", slots.ROOT << 4 | slots.LINK))
    if value.negated:
        rest.append(("不", place | slots.NEGATION))
    if value.tense == Tense.FUTURE:
        rest.append(("会", place | slots.TENSE))
    rest += predicate(value, place)
    return [*time, *subject, *rest] if value.fronted else [*subject, *time, *rest]


def predicate(value: tree.Copula, place: int) -> list[Token]:
    what, verb = value.predicate, place | slots.VERB
    base = place | slots.PREDICATE
    head = base << 4 | slots.HEAD
    if isinstance(what, Noun):
        return [("是", verb), (what.zh[0], head)]
    if isinstance(what, tree.Place):
        return [("在", verb), *ground(what, base)]
    if isinstance(what, tree.Age):
        return [(NUMBERS[what.years][3], base << 4 | slots.COUNT), ("岁", (head, base << 4 | slots.UNIT))]
    if isinstance(what, tree.Comparison):
        than = nominal(what.than, base << 4 | slots.OBJECT)
        return [
            ("比", base << 4 | slots.PREPOSITION),
            *than,
            (PREDICATIVE.get(what.adjective.zh, what.adjective.zh), head),
        ]
    if what.zh.endswith("色"):
        return [("是", verb), (what.zh, head), ("的", head)]
    word: Token = (PREDICATIVE.get(what.zh, what.zh), head)
    if value.very:
        return [("非常", (place | slots.DEGREE, verb)), word]
    return [word] if value.negated else [("很", verb), word]


def order_words(value: tree.Order) -> list[Token]:
    place = slots.ROOT << 4
    verb = value.verb.zh
    tokens: list[Token] = [("请", place | slots.DEGREE)] if value.polite else []
    if value.negated:
        tokens.append(("别", place | slots.NEGATION))
    thing = [] if value.object is None else noun_phrase(value.object, place | slots.OBJECT)
    me: list[Token] = [("我", (place | slots.RECIPIENT) << 4)] if value.to_me else []
    if verb.coverb:
        carried, thing = (me, thing) if value.to_me else (thing, [])
        tokens += [(verb.coverb, 0 if value.to_me else place | slots.PREPOSITION), *carried]
        me = []
    tokens += [(verb.word, place | slots.VERB), *me, *thing]
    return [*tokens, (verb.tail, place | value.verb.complement)] if verb.tail else tokens


def joined(value: tree.Joined) -> list[Token]:
    place = slots.ROOT << 4
    first = clause(value.first, place | slots.LEFT, then=value.link == "if")
    second = clause(value.second, place | slots.RIGHT)
    word = LINKS[value.link]
    if isinstance(value.second, tree.Clause) and isinstance(value.second.object, tree.Echo):
        word = "然后"
    comma: Token = ("，", place | slots.COMMA if word else (place | slots.COMMA, place | slots.LINK))
    link: Token = (word, place | slots.LINK)
    return [link, *second, comma, *first] if value.link == "if" else [*first, comma, link, *second]


def body(value: tree.Sentence) -> tuple[list[Token], str]:
    """The words of a sentence, and its closing mark."""
    place = slots.ROOT << 4
    match value:
        case tree.Statement(proposition):
            return clause(proposition, place | slots.LEFT), "。"
        case tree.Question(proposition):
            return [*clause(proposition, place | slots.LEFT), ("吗", slots.ROOT << 4 | slots.STOP)], "？"
        case tree.OpenQuestion(asks, proposition):
            return clause(proposition, place | slots.LEFT, asks), "？"
        case tree.Joined():
            return joined(value), "。"
        case tree.Reported(subject, verb, proposition):
            main = clause(tree.Clause(subject, verb), place | slots.LEFT)
            return main + clause(proposition, place | slots.RIGHT), "。"
        case tree.Order():
            return order_words(value), "。" if value.polite else "！"
        case tree.Existence(thing, where):
            what = noun_phrase(thing, place | slots.OBJECT)
            return [*ground(where, place | slots.PLACE), ("有", place | slots.VERB), *what], "。"
        case tree.HowMany(noun, proposition):
            many: Tag = place | slots.ASK
            asked: list[Token] = [("几", many), (noun.zh[1], many), (noun.zh[0], place | slots.OBJECT)]
            return clause(proposition, place | slots.LEFT, asked=asked), "？"
        case tree.WhereIs(thing, polite):
            excuse: list[Token] = [("请问", place | slots.DEGREE), ("，", place | slots.COMMA)] if polite else []
            what = noun_phrase(thing, place | slots.SUBJECT, bare=True)
            return [*excuse, *what, ("在", place | slots.VERB), ("哪里", place | slots.ASK)], "？"
        case tree.ClockIs(hour, half):
            return [("现在", place | slots.VERB), *clock(hour, half, place << 4)], "。"
        case tree.Note(which):
            words = NOTES[which]["zh"]
            return list(words[:-1]), words[-1][0]


def render(value: tree.Sentence) -> Rendering:
    """A Chinese sentence."""
    tokens, mark = body(value)
    tokens = split_spaces(tokens)
    tokens.append((mark, slots.ROOT << 4 | slots.STOP))
    words, tags = zip(*tokens, strict=True)
    return Rendering("".join(words), words, tags)
