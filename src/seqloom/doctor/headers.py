"""Headers: first lines of tables that name the columns, such as `Deutsch` and `Englisch`, or `source` and `target`."""

import re

import numpy as np

from seqloom.core.errors import UsageError
from seqloom.doctor.faults import Fault, counted
from seqloom.doctor.survey import Survey
from seqloom.text.languages import LANGUAGES, find_language

# What speakers of the commonest languages call these, themselves and one another; English names are in the table.
_NAMES = {
    "ar": "العربية arabisch arabe árabe arabo",
    "cs": "čeština česky tschechisch tchèque checo ceco",
    "de": "deutsch allemand alemán alemão tedesco duits tyska niemiecki немецкий almanca 德语 ドイツ語",
    "en": "englisch anglais inglés ingles inglês inglese engels engelska angielski английский ingilizce 英语 英文 英語",
    "es": "español espanol castellano spanisch espagnol espanhol spagnolo spaans hiszpański испанский",
    "fr": "français francais französisch francés francês francese frans franska francuski французский",
    "it": "italiano italienisch italien italiaans włoski итальянский",
    "ja": "日本語 日语 japanisch japonais japonés giapponese",
    "nl": "nederlands niederländisch holländisch néerlandais neerlandés holandés olandese",
    "pl": "polski polnisch polonais polaco polacco",
    "pt": "português portugues portugiesisch portugais portugués portoghese portugees",
    "ru": "русский russisch russe ruso russo rosyjski",
    "sv": "svenska schwedisch suédois sueco svedese",
    "tr": "türkçe türkisch turc turco turks",
    "uk": "українська ukrainisch ukrainien ucraniano ucraino",
    "zh": "中文 汉语 chinesisch chinois chino cinese chinees 中国語",
}
_LANGUAGES = {
    **{language.name.lower(): code for code, language in LANGUAGES.items()},
    **{name: code for code, names in _NAMES.items() for name in names.split()},
}
_ROLES = {
    **dict.fromkeys(["source", "src", "quelle", "quelltext", "ausgangstext", "original"], "source"),
    **dict.fromkeys(
        ["target", "tgt", "trg", "ziel", "zieltext", "translation", "übersetzung", "traduction", "traducción"], "target"
    ),
}
_CODE = re.compile(r"(?:[a-z]{2,3}|[A-Z]{2,3})(?:[-_][A-Za-z]{2,4})?")
_MORE = re.compile(r"[ _-]+(?:text|sentence|segment|language)$|\s*[(\[].*[)\]]$")
"""What may follow a name: `source text`, `German (Germany)`."""


def is_header(source: str, target: str) -> bool:
    """Whether the cells name two languages, or source and target; one language twice is a pair: `German`, `Deutsch`."""
    one, other = _named(source), _named(target)
    if one is None or other is None or one == other:
        return False
    return {one, other} == {"source", "target"} or not {one, other} & {"source", "target"}


def _named(cell: str) -> str | None:
    """The code of the language that a cell names, or `source` or `target`."""
    text = cell.strip().strip("\ufeff\"'")
    name = _MORE.sub("", text.lower())
    if name in _ROLES or name in _LANGUAGES:
        return _ROLES.get(name) or _LANGUAGES[name]
    if not _CODE.fullmatch(text):
        return None
    try:
        return find_language(text).code
    except UsageError:
        return None


def examine_headers(survey: Survey) -> list[Fault]:
    """First lines of files that are column names."""
    if not survey.headers:
        return []
    return [
        Fault(
            "header",
            "note",
            "Header lines among the pairs",
            f"{counted(len(survey.headers), 'line')} at the start of a file that "
            f"{'names' if len(survey.headers) == 1 else 'name'} the columns and would be learned as a pair",
            "--fix header drops such lines",
            survey.split,
            np.array(survey.headers, np.int64),
        )
    ]
