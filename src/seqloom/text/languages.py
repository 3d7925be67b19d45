"""Languages by their ISO 639-1 codes: name, script, and whether spaces part words."""

import difflib
import re
from collections.abc import Mapping
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


_CODE = re.compile(r"[A-Za-z]{1,8}(?:[-_][A-Za-z0-9]{1,8})*(?:\.[A-Za-z0-9-]+)?(?:@[A-Za-z0-9]+)?")
_LONGEST_CODE = 35  # as long as BCP 47 asks software to take


def _read_table() -> dict[str, Language]:
    entries = [(script, *entry.split(" ", 1)) for script, names in _BY_SCRIPT.items() for entry in names.split(", ")]
    return {code: Language(code, name, script) for script, code, name in sorted(entries, key=lambda entry: entry[1])}


LANGUAGES: Mapping[str, Language] = MappingProxyType(_read_table())
"""All languages of the table by their codes, in the order of the codes."""


def is_language_code(text: str) -> bool:
    """Whether a text has the shape of a code: of BCP 47 (`zh-Hant-TW`) or POSIX (`sr_RS.UTF-8@latin`)."""
    return len(text) <= _LONGEST_CODE and _CODE.fullmatch(text) is not None


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
