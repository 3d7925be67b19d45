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
from seqloom.doctor.faults import Fault, Kind, LineRun, counted, grade, numbers_where, touched
from seqloom.doctor.survey import Survey
from seqloom.text.languages import LANGUAGES, find_language
from seqloom.text.scripts import trigrams

# Copies: pairs whose target is the source, or nearly so.
#
# J(x, y) = |T(x) ∩ T(y)| / |T(x) ∪ T(y)| T are the runs of three characters of the lower-cased words

MIN_COPIED_WORDS, FEWEST_LETTERS = 3, 10
"""Shorter copies may be correct translations: names, numbers, `OK`."""

NEAR = 0.7
"""Minimum overlap of a near copy; translations between related languages stay below it."""


def is_copy(source: str, target: str, *, words: tuple[list[str], list[str]]) -> int:
    """0 for a translation, 1 for a copy, 2 for a near copy."""
    one, other = words
    if min(len(one), len(other)) < MIN_COPIED_WORDS:
        return 0
    if one == other:
        return int(sum(map(len, one)) >= FEWEST_LETTERS and any(map(str.isalpha, one)))
    # Near copies share most of their words; this cheap test comes first.
    shared = len(set(one) & set(other))
    if 2 * shared < min(len(one), len(other)):
        return 0
    return 2 if similarity(" ".join(one), " ".join(other)) >= NEAR and source != target else 0


def similarity(one: str, other: str) -> float:
    """The overlap J of the runs of three characters of two texts."""
    first, second = trigrams(one), trigrams(other)
    return len(first & second) / max(1, len(first | second))


def examine_copies(survey: Survey) -> list[Fault]:
    """Pairs that teach a model to copy."""
    lines = numbers_where(survey.copies > 0)
    if len(lines) == 0:
        return []
    near = int((survey.copies == 2).sum())
    parts = f"; {near:,} of them nearly identical" if near else ""
    return [
        Fault(
            "copies",
            grade(len(lines), len(survey), fix=0.001, stop=0.5),
            "Copies instead of translations",
            f"{touched(len(lines), len(survey))} where the target equals the source{parts}",
            "--fix copies drops them; even a few teach a model to copy",
            survey.split,
            lines,
        )
    ]


# Duplicates: pairs that occur again, exactly or except for case, spaces and punctuation.

MANY = 5
"""Number of different translations from which a source is reported."""


FEWEST_WORDS = 4
"""Shorter pairs with another number are not templates: `Chapter 3`."""


def examine_duplicates(survey: Survey) -> list[Fault]:
    """Repeated pairs, and sources with many translations. Blank pairs are not counted."""
    is_full = survey.blank == 0
    is_again = is_repeated(survey.exact) & is_full
    is_near = is_repeated(survey.pairs) & is_full & ~is_again
    is_template = is_repeated(survey.shapes) & (survey.shapes != 0) & is_full & ~is_again & ~is_near
    is_template &= survey.source.words >= FEWEST_WORDS
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
        lines = numbers_where(is_so)
        if len(lines):
            sentence = f"{touched(len(lines), len(survey), 'pair')} that repeat an earlier pair {how}"
            severity = grade(len(lines), len(survey), fix=fix, stop=stop)
            faults.append(Fault(kind, severity, title, sentence, advice, survey.split, lines))
    return faults + _examine_ambiguous(survey)


def _examine_ambiguous(survey: Survey) -> list[Fault]:
    """Sources with many different translations: often menu text or untranslated lines."""
    is_first = ~is_repeated(survey.pairs) & (survey.blank == 0) & (survey.source.words > 0)
    sources = survey.source.keys[is_first]
    keys, counts = np.unique(sources, return_counts=True)
    many = keys[counts >= MANY]
    if len(many) == 0:
        return []
    is_many = np.isin(survey.source.keys, many) & is_first
    lines = numbers_where(is_many)
    return [
        Fault(
            "ambiguous",
            grade(len(lines), len(survey), fix=0.05),
            "One source, many translations",
            f"{counted(len(many), 'source')} with {MANY} or more different translations each (at most "
            f"{int(counts.max()):,}); {touched(len(lines), len(survey))} in total",
            "check them: many translations are normal for short phrases, but suggest misalignment for long ones",
            survey.split,
            lines,
        )
    ]


def is_repeated(keys: UInt64[np.ndarray, " lines"]) -> Bool[np.ndarray, " lines"]:
    """True at every occurrence of a key but the first."""
    _, firsts = np.unique(keys, return_index=True)
    found = np.ones(len(keys), bool)
    found[firsts] = False
    return found


LARGEST_RATIO = 2.5
"""Deviations from the usual ratio up to this factor are never reported."""

FEWEST_MORE = 25
"""Minimum difference in characters: "Yes." may become a polite phrase."""

LONGEST_CHARACTERS, LONGEST_WORDS = 1_000, 200
"""Longer lines are rarely one sentence, and training skips lines of more than 256 tokens by default."""


def examine_blanks(survey: Survey) -> list[Fault]:
    """Pairs with an empty side."""
    lines = numbers_where(survey.blank > 0)
    if len(lines) == 0:
        return []
    one = int((survey.blank == 1).sum()), int((survey.blank == 2).sum())
    both = len(lines) - sum(one)
    severity = "stop" if len(lines) == len(survey) else grade(len(lines), len(survey), fix=0.01)
    return [
        Fault(
            "empty",
            severity,
            "Empty lines",
            f"{touched(len(lines), len(survey))} with an empty source "
            f"({one[0]:,}), target ({one[1]:,}) or both ({both:,})",
            "training skips them; where only one side is empty, check whether the lines after it are shifted",
            survey.split,
            lines,
        )
    ]


def examine_ratios(survey: Survey, reference: Survey, *, runs: Sequence[LineRun] = ()) -> list[Fault]:
    """Pairs with one side much longer than the other, relative to the usual ratio of the reference.

    Lines in shifted `runs` are skipped: they are not real pairs.
    """
    usual, border = ratio_border(reference)
    ratios = survey.log_ratios
    # The expected length for a source of this length, minus the actual length.
    missing = np.abs(survey.target.characters - (survey.source.characters + 1) * math.exp(usual))
    is_odd = (np.abs(ratios - usual) > border) & (missing >= FEWEST_MORE) & (survey.blank == 0)
    for run in runs:
        if run.shift is not None:
            is_odd[run.first - 1 : run.last] = False
    lines = numbers_where(is_odd)
    if len(lines) == 0:
        return []
    longer = int((ratios[is_odd] > usual).sum())
    return [
        Fault(
            "ratios",
            grade(len(lines), len(survey), fix=0.002, stop=0.5),
            "One side much longer than the other",
            f"{touched(len(lines), len(survey))} where the target is more than "
            f"{math.exp(border):.1f} times longer ({longer:,}) or shorter ({len(lines) - longer:,}) than usual; "
            f"the usual ratio is {math.exp(usual):.2f} target characters per source character",
            "often a sentence that was split or joined on one side only; --fix ratios drops them",
            survey.split,
            lines,
            describe=_describe_lengths,
        )
    ]


def ratio_border(survey: Survey) -> tuple[float, float]:
    """The median of r over pairs that are not blank, and the distance from it at which a ratio is reported."""
    usual, deviation = usual_ratio(survey.log_ratios[survey.blank == 0])
    return usual, max(math.log(LARGEST_RATIO), DEVIATIONS * deviation)


def examine_long(survey: Survey) -> list[Fault]:
    """Lines too long to be a single sentence."""
    sides = survey.source, survey.target
    is_long = np.zeros(len(survey), bool)
    for side in sides:
        is_long |= (side.characters > LONGEST_CHARACTERS) | (side.words > LONGEST_WORDS)
    lines = numbers_where(is_long)
    if len(lines) == 0:
        return []
    longest = max(int(side.characters.max()) for side in sides)
    return [
        Fault(
            "long",
            grade(len(lines), len(survey), fix=0.01),
            "Very long lines",
            f"{touched(len(lines), len(survey))} with more than "
            f"{LONGEST_CHARACTERS:,} characters or {LONGEST_WORDS} words; the longest has {longest:,} characters",
            "training skips lines longer than data.longest tokens; split them into sentences, or use --fix long",
            survey.split,
            lines,
            describe=_describe_lengths,
        )
    ]


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
