"""Languages by their ISO 639-1 codes: name, script, and whether spaces part words."""

import difflib
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from seqloom.core.errors import UsageError


@dataclass(frozen=True)
class Language:
    """What a program needs to know about a language before it sees text in it."""

    code: str
    """ISO 639-1, two letters."""
    name: str
    """In English."""
    script: str
    """The usual script, by its ISO 15924 code."""

    @property
    def is_unspaced(self) -> bool:
        """Whether words are written without spaces between them."""
        return self.script in _UNSPACED


_UNSPACED = frozenset({"Hans", "Jpan", "Thai", "Laoo", "Khmr", "Mymr", "Tibt"})

_BY_SCRIPT = {
    "Latn": (
        "af Afrikaans, az Azerbaijani, bs Bosnian, ca Catalan, cs Czech, cy Welsh, da Danish, de German, en English, "
        "eo Esperanto, es Spanish, et Estonian, eu Basque, fi Finnish, fo Faroese, fr French, ga Irish, gd Gaelic, "
        "gl Galician, ha Hausa, hr Croatian, ht Haitian, hu Hungarian, id Indonesian, ig Igbo, is Icelandic, "
        "it Italian, jv Javanese, la Latin, lb Luxembourgish, lt Lithuanian, lv Latvian, mg Malagasy, mi Maori, "
        "ms Malay, mt Maltese, nb Norwegian Bokmål, nl Dutch, nn Norwegian Nynorsk, no Norwegian, oc Occitan, "
        "pl Polish, pt Portuguese, ro Romanian, rw Kinyarwanda, sk Slovak, sl Slovenian, so Somali, sq Albanian, "
        "st Sotho, su Sundanese, sv Swedish, sw Swahili, tk Turkmen, tl Tagalog, tr Turkish, uz Uzbek, "
        "vi Vietnamese, wo Wolof, xh Xhosa, yo Yoruba, zu Zulu"
    ),
    "Cyrl": (
        "be Belarusian, bg Bulgarian, kk Kazakh, ky Kyrgyz, mk Macedonian, mn Mongolian, ru Russian, sr Serbian, "
        "tg Tajik, tt Tatar, uk Ukrainian"
    ),
    "Arab": "ar Arabic, fa Persian, ku Kurdish, ps Pashto, sd Sindhi, ug Uyghur, ur Urdu",
    "Hebr": "he Hebrew, yi Yiddish",
    "Thaa": "dv Dhivehi",
    "Deva": "hi Hindi, mr Marathi, ne Nepali, sa Sanskrit",
    "Beng": "as Assamese, bn Bengali",
    "Guru": "pa Punjabi",
    "Gujr": "gu Gujarati",
    "Orya": "or Odia",
    "Taml": "ta Tamil",
    "Telu": "te Telugu",
    "Knda": "kn Kannada",
    "Mlym": "ml Malayalam",
    "Sinh": "si Sinhala",
    "Grek": "el Greek",
    "Armn": "hy Armenian",
    "Geor": "ka Georgian",
    "Ethi": "am Amharic, ti Tigrinya",
    "Kore": "ko Korean",
    "Hans": "zh Chinese",
    "Jpan": "ja Japanese",
    "Thai": "th Thai",
    "Laoo": "lo Lao",
    "Khmr": "km Khmer",
    "Mymr": "my Burmese",
    "Tibt": "bo Tibetan",
}

# Codes of ISO 639-3, older codes, and what translation services use for a language of the table.
_OTHER_CODES = {
    "cmn": "zh", "zho": "zh", "zt": "zh", "eng": "en", "deu": "de", "fra": "fr", "spa": "es", "rus": "ru", "jpn": "ja",
    "kor": "ko", "vie": "vi", "arb": "ar", "ara": "ar", "por": "pt", "ita": "it", "nld": "nl", "tgl": "tl",
    "iw": "he", "in": "id", "ji": "yi", "fil": "tl", "pb": "pt", "nob": "nb", "nno": "nn",
}  # fmt: skip


# Three-letter codes of ISO 639, those of bibliographers included, of the languages above. Of macrolanguages, also the
# code of the one that is meant (`pes`, `lvs`).
_THREE_LETTERS = (
    "afr af, amh am, ara ar, arb ar, asm as, aze az, azj az, bel be, ben bn, bod bo, tib bo, bos bs, bul bg, cat ca, "
    "ces cs, cze cs, cmn zh, zho zh, chi zh, cym cy, wel cy, dan da, deu de, ger de, div dv, ell el, gre el, eng en, "
    "epo eo, est et, ekk et, eus eu, baq eu, fao fo, fas fa, per fa, pes fa, fin fi, fra fr, fre fr, gla gd, gle ga, "
    "glg gl, guj gu, hat ht, hau ha, heb he, hin hi, hrv hr, hun hu, hye hy, arm hy, ibo ig, ind id, isl is, ice is, "
    "ita it, jav jv, jpn ja, kan kn, kat ka, geo ka, kaz kk, khm km, kin rw, kir ky, kor ko, kur ku, kmr ku, lao lo, "
    "lat la, lav lv, lvs lv, lit lt, ltz lb, mal ml, mar mr, mkd mk, mac mk, mlg mg, plt mg, mlt mt, mon mn, khk mn, "
    "mri mi, mao mi, msa ms, may ms, zsm ms, mya my, bur my, nep ne, npi ne, nld nl, dut nl, nno nn, nob nb, nor no, "
    "oci oc, ori or, ory or, pan pa, pol pl, por pt, pus ps, ron ro, rum ro, rus ru, san sa, sin si, slk sk, slo sk, "
    "slv sl, snd sd, som so, sot st, spa es, sqi sq, alb sq, als sq, srp sr, sun su, swa sw, swh sw, swe sv, tam ta, "
    "tat tt, tel te, tgk tg, tgl tl, fil tl, tha th, tir ti, tuk tk, tur tr, uig ug, ukr uk, urd ur, uzb uz, uzn uz, "
    "vie vi, wol wo, xho xh, yid yi, ydd yi, yor yo, zul zu"
)
TWO_LETTERS: Mapping[str, str] = dict(pair.split() for pair in _THREE_LETTERS.split(", "))
"""Codes of two letters by those of three. File names are not read by them: `model.lat` need not be Latin."""

_CODE = re.compile(r"[A-Za-z]{1,8}(?:[-_][A-Za-z0-9]{1,8})*(?:\.[A-Za-z0-9-]+)?(?:@[A-Za-z0-9]+)?")
_MAX_CODE_LENGTH = 35  # as long as BCP 47 asks software to take


_ENTRIES = sorted((*entry.split(" ", 1), script) for script, names in _BY_SCRIPT.items() for entry in names.split(", "))
LANGUAGES: Mapping[str, Language] = MappingProxyType({entry[0]: Language(*entry) for entry in _ENTRIES})
"""All languages of the table by their codes, in the order of the codes."""


def is_language_code(text: str) -> bool:
    """Whether a text has the shape of a code: of BCP 47 (`zh-Hant-TW`) or POSIX (`sr_RS.UTF-8@latin`)."""
    return len(text) <= _MAX_CODE_LENGTH and _CODE.fullmatch(text) is not None


def is_known_language(code: str) -> bool:
    """Whether the table has the language of a code."""
    return is_language_code(code) and _look_up(code) is not None


def find_language(code: str) -> Language:
    """The language of a code; a region or script after it (`pt-BR`, `zh_Hant`) is left aside."""
    found = _look_up(code)
    if found is None:
        names = {language.name.lower(): language.code for language in LANGUAGES.values()}
        near = difflib.get_close_matches(code.lower(), [*names, *LANGUAGES], n=1, cutoff=0.6)
        hint = f"; did you mean {names.get(near[0], near[0])}?" if near else "; codes have two letters, such as de"
        raise UsageError(f"{code!r} is not the code of a language in the table{hint}")
    return found


def language_name(code: str) -> str:
    """The English name of a language, or the code itself where the table does not have it."""
    found = _look_up(code)
    return found.name if found else code


def _look_up(code: str) -> Language | None:
    first = code.replace("_", "-").split("-")[0].lower()
    return LANGUAGES.get(_OTHER_CODES.get(first, first))


# --- the codes of a model --------------------------------------------------------------------------------------------

_USUAL = {"no": "nb", "nb": "no"}
"""The code that is meant where a model does not have the other one."""

_SCRIPT_OF_REGION = {"tw": "hant", "hk": "hant", "mo": "hant", "cn": "hans", "sg": "hans"}


def choose_code(typed: str, codes: Collection[str]) -> str:
    """The code of a model for a language: by its own code, another one, or the English name of the language.

    `de`, `deu`, `de-AT`, `de_DE`, `deu_Latn` and `German` are one language. A UsageError names what is near, or what
    is meant if it can be several.
    """
    folded = {_folded(code): code for code in codes}
    if typed in codes or _folded(typed) in folded:
        return typed if typed in codes else folded[_folded(typed)]
    fitting = _codes_of(typed, codes)
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        raise UsageError(f"{typed!r} can be {', '.join(fitting)} in this model; choose one of them")
    near = _nearest(typed, codes)
    raise UsageError(f"this model does not know the language {typed!r}; nearest: {', '.join(near)}")


def _folded(code: str) -> str:
    return code.replace("_", "-").lower()


def _language_of(code: str) -> str | None:
    """The code of two letters of a language that is given by any code, or by its name."""
    first = _folded(code).split("-")[0]
    first = TWO_LETTERS.get(first, _OTHER_CODES.get(first, first))
    return first if first in LANGUAGES else _BY_NAME.get(code.strip().lower())


_BY_NAME = {language.name.lower(): code for code, language in LANGUAGES.items()}


def _codes_of(typed: str, codes: Iterable[str]) -> list[str]:
    """The codes that mean what was typed, the script considered."""
    language = _language_of(typed)
    if language is None:
        return []
    found = [code for code in codes if _language_of(code) == language]
    if not found:
        found = [code for code in codes if _language_of(code) == _USUAL.get(language, "")]
    tags = _tags(typed)
    scripts = {_SCRIPT_OF_REGION.get(tag, tag) for tag in tags if len(tag) == 4 or tag in _SCRIPT_OF_REGION}
    if scripts and (written := [code for code in found if any(len(tag) == 4 for tag in _tags(code))]):
        return [code for code in written if _tags(code) & scripts]  # one script is not replaced by another
    usual = LANGUAGES[language].script.lower()
    choices = (
        [code for code in found if _tags(code) & tags],
        [code for code in found if not _tags(code)],
        [code for code in found if usual in _tags(code)],
    )
    return next((fitting for fitting in choices if len(fitting) == 1), found)


def _tags(code: str) -> set[str]:
    """The script and region of a code."""
    return set(_folded(code).split("-")[1:])


def _nearest(typed: str, codes: Collection[str]) -> list[str]:
    """Three codes of the same language, or whose spelling, or the name of whose language, is like what was typed."""
    language = _language_of(typed)
    same = [code for code in codes if language is not None and _language_of(code) == language]
    by_spelling = {_folded(code): code for code in codes}
    by_spelling |= {language_name(known).lower(): code for code in codes if (known := _language_of(code)) is not None}
    near = difflib.get_close_matches(_folded(typed), by_spelling, n=6, cutoff=0.0)
    return list(dict.fromkeys([*same, *(by_spelling[each] for each in near)]))[:3]


# --- guessing the language of a text by its commonest words ----------------------------------------------------------

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

MIN_FUNCTION_WORD_RATE = 0.08
"""The share of small words that a text in a language has at least."""

MIN_LEAD = 1.5
"""A text needs so many times more function words of another language than of its own to be reported."""


def recognise(words: Mapping[str, int]) -> tuple[str, float] | None:
    """The language whose small words a text uses most, and their share; None if it is none of those known here."""
    shares = shares_of(words)
    best = max(shares, key=lambda code: shares[code])
    return (best, shares[best]) if shares[best] >= MIN_FUNCTION_WORD_RATE else None


def shares_of(words: Mapping[str, int]) -> dict[str, float]:
    """The share of a text's words that are small words of each language."""
    total = max(1, sum(words.values()))
    found: Counter[str] = Counter()
    for code, small in FUNCTION_WORDS.items():
        found[code] = sum(words.get(word, 0) for word in small)
    return {code: found[code] / total for code in FUNCTION_WORDS}


def contradicts(words: Mapping[str, int], declared: str) -> str | None:
    """The language of a text, if it is clearly another one than the declared; None if it fits or is not clear."""
    code = {"no": "nb", "nn": "nb"}.get(declared, declared)
    if code not in FUNCTION_WORDS:
        return None
    found = recognise(words)
    if found is None or found[0] == code or {found[0], code} <= {"da", "nb", "sv"}:
        return None
    return found[0] if found[1] > MIN_LEAD * shares_of(words)[code] + 0.02 else None
