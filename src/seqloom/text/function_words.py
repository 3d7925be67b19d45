"""The commonest small words of some languages: enough to tell in which of them a text of some lines is written."""

from collections import Counter
from collections.abc import Mapping

_LISTS = {
    "en": "the of and to in is that it with for on are was this his her you as at by be not an from",
    "de": "der die das und in ist ein eine einer einem einen zu den von mit auf für im dem nicht sich auch es sie ich",
    "fr": "le la les de des du et un une est dans que qui à en pour sur avec il elle pas au ne ce sont",
    "es": "el la los las de y en que un una es por con para se no su al lo del como más pero está",
    "it": "il lo la i gli le di e che un una è in per con non si del della sono nel da ha al",
    "pt": "o a os as de e que um uma em é para com não se do da no na por dos ao mais ele está",
    "nl": "de het een en van in is dat op te met voor niet zijn er aan die om ook naar bij ze hij",
    "sv": "och att det en i är som på för med av den till inte ett har de om var jag han sig",
    "da": "og at det en i er som på for med af den til ikke et har de om var jeg han sig",
    "nb": "og å det en i er som på for med av den til ikke et har de om var jeg han seg",
    "fi": "ja on ei se että oli hän ovat mutta kun myös kuin tai joka niin jos mitä minä ole",
    "pl": "i w na z się nie do to jest że o jak po ale są od przez za dla jego tym który",
    "cs": "a v na je se že s z do o to jako za pro ale by jsou po jeho který od není",
    "hu": "a az és hogy nem is egy van ez meg de azt volt csak már el mint ki még ha",
    "ro": "și în de la a o un pe cu nu este că din să care mai sunt se au pentru",
    "tr": "ve bir bu için da de ile çok ne gibi daha olarak olan kadar sonra ama değil var o",
    "ru": "и в не на что он с как это по но из к а у его за от то все для она",
    "uk": "і в не на що він з як це до та але з у його за від то для вона є",
    "vi": "và của là có không một người trong cho được với các những này đã khi tôi đến ở",
    "id": "dan yang di ke dari untuk dengan ini itu tidak dalam pada adalah akan saya ada juga",
}
FUNCTION_WORDS: Mapping[str, frozenset[str]] = {code: frozenset(words.split()) for code, words in _LISTS.items()}

CLEAR = 0.08
"""The share of small words that a text in a language has at least."""

AHEAD = 1.5
"""How many times more small words of its own language than of another a text has, for us to speak."""


def recognise(words: Mapping[str, int]) -> tuple[str, float] | None:
    """The language whose small words a text uses most, and their share; None if it is none of those known here."""
    shares = shares_of(words)
    best = max(shares, key=lambda code: shares[code])
    return (best, shares[best]) if shares[best] >= CLEAR else None


def shares_of(words: Mapping[str, int]) -> dict[str, float]:
    """The share of a text's words that are small words of each language."""
    total = max(1, sum(words.values()))
    found: Counter[str] = Counter()
    for code, small in FUNCTION_WORDS.items():
        found[code] = sum(words.get(word, 0) for word in small)
    return {code: found[code] / total for code in FUNCTION_WORDS}


def contradicts(words: Mapping[str, int], declared: str) -> str | None:
    """The language of a text, if it is clearly another one than the declared; None if it fits or nobody can tell."""
    code = {"no": "nb", "nn": "nb"}.get(declared, declared)
    if code not in FUNCTION_WORDS:
        return None
    found = recognise(words)
    if found is None or found[0] == code or {found[0], code} <= {"da", "nb", "sv"}:
        return None
    return found[0] if found[1] > AHEAD * shares_of(words)[code] + 0.02 else None
