"""Pairs that should not be learned: copies, duplicates, headers, and sides that are blank, unbalanced or too long.

r = log (target characters + 1) / (source characters + 1)
σ = 1.4826 · median |r − median r|         what the standard deviation of a normal distribution would be
"""

import math
import re
from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, UInt64

from seqloom.core.errors import UsageError
from seqloom.data.overview import DEVIATIONS, usual_ratio
from seqloom.doctor.faults import Fault, Kind, LineRun, counted, find_fault, grade, numbers_where, touched
from seqloom.doctor.survey import Survey
from seqloom.text.languages import LANGUAGES, find_language
from seqloom.text.scripts import trigrams

# Copies: pairs whose target is the source, or nearly so.
#
# J(x, y) = |T(x) ∩ T(y)| / |T(x) ∪ T(y)| T are the runs of three characters of the lower-cased words

MIN_COPIED_WORDS, MIN_COPIED_LETTERS = 3, 10
"""Shorter copies may be correct translations: names, numbers, `OK`."""

MIN_OVERLAP = 0.7
"""Minimum overlap of a near copy; translations between related languages stay below it."""


def is_copy(source: str, target: str, *, words: tuple[list[str], list[str]]) -> int:
    """0 for a translation, 1 for a copy, 2 for a near copy."""
    one, other = words
    if min(len(one), len(other)) < MIN_COPIED_WORDS:
        return 0
    if one == other:
        return int(sum(map(len, one)) >= MIN_COPIED_LETTERS and any(map(str.isalpha, one)))
    # Near copies share most of their words; this cheap test comes first.
    shared = len(set(one) & set(other))
    if 2 * shared < min(len(one), len(other)):
        return 0
    return 2 if similarity(" ".join(one), " ".join(other)) >= MIN_OVERLAP and source != target else 0


def similarity(one: str, other: str) -> float:
    """The overlap J of the runs of three characters of two texts."""
    first, second = trigrams(one), trigrams(other)
    return len(first & second) / max(1, len(first | second))


def examine_copies(survey: Survey) -> list[Fault]:
    """Pairs that teach a model to copy."""
    near = int((survey.copies == 2).sum())
    parts = f"; {near:,} of them nearly identical" if near else ""
    return find_fault(
        survey,
        "copies",
        survey.copies > 0,
        "Copies instead of translations",
        what=f"where the target equals the source{parts}",
        advice="--fix copies drops them; even a few teach a model to copy",
        fix=0.001,
        stop=0.5,
    )


# Duplicates: pairs that occur again, exactly or except for case, spaces and punctuation.

MIN_TRANSLATIONS = 5
"""Number of different translations from which a source is reported."""


MIN_TEMPLATE_WORDS = 4
"""Shorter pairs with another number are not templates: `Chapter 3`."""


def examine_duplicates(survey: Survey) -> list[Fault]:
    """Repeated pairs, and sources with many translations. Blank pairs are not counted."""
    is_full = survey.blank == 0
    is_again = is_repeated(survey.exact) & is_full
    is_near = is_repeated(survey.pairs) & is_full & ~is_again
    is_template = is_repeated(survey.shapes) & (survey.shapes != 0) & is_full & ~is_again & ~is_near
    is_template &= survey.source.words >= MIN_TEMPLATE_WORDS
    found: tuple[tuple[Kind, Bool[np.ndarray, " lines"], float, float, str, str, str], ...] = (
        ("duplicates", is_again, 0.02, 0.95, "Duplicate pairs", "exactly",
         "they get extra weight and leak into held-out data; --fix duplicates keeps the first"),
        ("near-duplicates", is_near, 0.05, 2.0, "Nearly duplicate pairs", "except for case, spaces or punctuation",
         "--fix near-duplicates keeps the first"),
        ("templates", is_template, 0.05, 2.0, "Pairs that differ in numbers only", "with other numbers",
         "a template filled in many times; --fix templates keeps the first"),
    )  # fmt: skip
    faults = []
    for kind, is_so, fix, stop, title, how, advice in found:
        what = f"that repeat an earlier pair {how}"
        faults += find_fault(survey, kind, is_so, title, what=what, advice=advice, fix=fix, stop=stop, noun="pair")
    # Sources with many different translations: often menu text or untranslated lines.
    is_first = ~is_repeated(survey.pairs) & is_full & (survey.source.words > 0)
    keys, counts = np.unique(survey.source.keys[is_first], return_counts=True)
    many = keys[counts >= MIN_TRANSLATIONS]
    if len(many):
        lines = numbers_where(np.isin(survey.source.keys, many) & is_first)
        sentence = (
            f"{counted(len(many), 'source')} with {MIN_TRANSLATIONS} or more different translations each (at most "
            f"{int(counts.max()):,}); {touched(len(lines), len(survey))} in total"
        )
        advice = "check them: many translations are normal for short phrases, but suggest misalignment for long ones"
        severity, title = grade(len(lines), len(survey), fix=0.05), "One source, many translations"
        faults.append(Fault("ambiguous", severity, title, sentence, advice, survey.split, lines))
    return faults


def is_repeated(keys: UInt64[np.ndarray, " lines"]) -> Bool[np.ndarray, " lines"]:
    """True at every occurrence of a key but the first."""
    _, firsts = np.unique(keys, return_index=True)
    found = np.ones(len(keys), bool)
    found[firsts] = False
    return found


MAX_USUAL_RATIO = 2.5
"""Deviations from the usual ratio up to this factor are never reported."""

MIN_DIFFERENCE = 25
"""Minimum difference in characters: "Yes." may become a polite phrase."""

MAX_CHARACTERS, MAX_WORDS = 1_000, 200
"""Longer lines are rarely one sentence, and training skips lines of more than 256 tokens by default."""


def examine_blanks(survey: Survey) -> list[Fault]:
    """Pairs with an empty side."""
    is_empty = survey.blank > 0
    source, target, both = (int((survey.blank == bits).sum()) for bits in (1, 2, 3))
    return find_fault(
        survey,
        "empty",
        is_empty,
        "Empty lines",
        what=f"with an empty source ({source:,}), target ({target:,}) or both ({both:,})",
        advice="training skips them; where only one side is empty, check whether the lines after it are shifted",
        fix=0.01,
        stop=0.0 if is_empty.all() else 2.0,
    )


def examine_ratios(survey: Survey, reference: Survey, *, runs: Sequence[LineRun] = ()) -> list[Fault]:
    """Pairs with one side much longer than the other, relative to the usual ratio of the reference.

    Lines in shifted `runs` are skipped: they are not real pairs.
    """
    usual, border = ratio_border(reference)
    ratios = survey.log_ratios
    # The expected length for a source of this length, minus the actual length.
    missing = np.abs(survey.target.characters - (survey.source.characters + 1) * math.exp(usual))
    is_odd = (np.abs(ratios - usual) > border) & (missing >= MIN_DIFFERENCE) & (survey.blank == 0)
    for run in runs:
        if run.shift is not None:
            is_odd[run.first - 1 : run.last] = False
    longer, shorter = (int((is_odd & side).sum()) for side in (ratios > usual, ratios <= usual))
    return find_fault(
        survey,
        "ratios",
        is_odd,
        "One side much longer than the other",
        what=f"where the target is more than {math.exp(border):.1f} times longer ({longer:,}) or shorter ({shorter:,}) "
        f"than usual; the usual ratio is {math.exp(usual):.2f} target characters per source character",
        advice="often a sentence that was split or joined on one side only; --fix ratios drops them",
        fix=0.002,
        stop=0.5,
        describe=_describe_lengths,
    )


def ratio_border(survey: Survey) -> tuple[float, float]:
    """The median of r over pairs that are not blank, and the distance from it at which a ratio is reported."""
    usual, deviation = usual_ratio(survey.log_ratios[survey.blank == 0])
    return usual, max(math.log(MAX_USUAL_RATIO), DEVIATIONS * deviation)


def examine_long(survey: Survey) -> list[Fault]:
    """Lines too long to be a single sentence."""
    sides = survey.source, survey.target
    is_long = np.zeros(len(survey), bool)
    for side in sides:
        is_long |= (side.characters > MAX_CHARACTERS) | (side.words > MAX_WORDS)
    longest = max(int(side.characters.max(initial=0)) for side in sides)
    return find_fault(
        survey,
        "long",
        is_long,
        "Very long lines",
        what=f"with more than {MAX_CHARACTERS:,} characters or {MAX_WORDS} words; "
        f"the longest has {longest:,} characters",
        advice="training skips lines longer than data.longest tokens; split them into sentences, or use --fix long",
        fix=0.01,
        describe=_describe_lengths,
    )


def _describe_lengths(source: str, target: str) -> str:
    return f"{len(source):,} and {len(target):,} characters"


# Headers: first lines of tables that name the columns, such as `Deutsch` and `Englisch`, or `source` and `target`.

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
    count = len(survey.headers)
    sentence = (
        f"{counted(count, 'line')} at the start of a file that {'names' if count == 1 else 'name'} the columns and "
        "would be learned as a pair"
    )
    title, advice = "Header lines among the pairs", "--fix header drops such lines"
    return [Fault("header", "note", title, sentence, advice, survey.split, np.array(survey.headers, np.int64))]
