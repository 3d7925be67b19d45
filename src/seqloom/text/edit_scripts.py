"""Lemmas as classes: the short script that turns a form into its lemma is shared by many words.

    walked → walk     ||--         copy, but leave out the last two letters
    Talked → talk     ||--         the same: the lemma is in small letters
    Annas  → Anna     U0L1||-      letter 0 is a capital, from letter 1 on they are small
    sang   → sing     |>-+i|       copy a letter, leave out one, add an i; copy the rest
    went   → go       =go          nothing is shared: the lemma itself

A script is casing|prefix|suffix, or = and the lemma (Chrupała, 2006; UDPipe: Straka, 2018). Form and lemma are compared
in small letters. Between prefix and suffix is their longest common substring; the edits around it are shortest ones:

    >  copy a letter of the form        -  leave out a letter of the form        +x  add the letter x

The casing gives places of the lemma from which letters are capital (U) or small (L); those in its second half are
counted from the end: -1 is the last letter. For all strings, apply_script(edit_script(form, lemma), form) == lemma.
"""

import re
from difflib import SequenceMatcher
from functools import lru_cache

from seqloom.core.errors import DataError

MAX_COMPARED_PAIRS = 1 << 20
"""Letters of the form times letters of the lemma, beyond which no common substring is looked for."""

MAX_EDIT_CELLS = 1 << 14
"""Size of the table in which the shortest edits are found; a larger affix is replaced as a whole."""

_EDITS = r"((?:[->]|\+.)*+)"
_SCRIPT = re.compile(rf"((?:[UL]-?[0-9]{{1,9}})*+)\|{_EDITS}\|{_EDITS}", re.DOTALL)
_CASE = re.compile(r"([UL])(-?[0-9]+)")
_EDIT = re.compile(r"[->]|\+(.)", re.DOTALL)


@lru_cache(maxsize=1 << 16)
def edit_script(form: str, lemma: str) -> str:
    """The script that turns a form into its lemma."""
    source, target = _small(form), _small(lemma)
    if source == target and source:
        return f"{_casing(lemma)}||"
    if len(source) * len(target) > MAX_COMPARED_PAIRS:
        return f"={lemma}"
    shared = SequenceMatcher(None, source, target, autojunk=False).find_longest_match()
    if not shared.size:
        return f"={lemma}"
    prefix = _edits(source[: shared.a], target[: shared.b])
    suffix = _edits(source[shared.a + shared.size :], target[shared.b + shared.size :])
    return f"{_casing(lemma)}|{prefix}|{suffix}"


@lru_cache(maxsize=1 << 16)
def apply_script(script: str, form: str) -> str:
    """The lemma that a script makes of a form; a form that is too short for the script stays as it is."""
    if script.startswith("="):
        return script[1:]
    found = _SCRIPT.fullmatch(script)
    if found is None:
        raise DataError(f"{script!r} is not an edit script; a script is casing|prefix|suffix or =lemma")
    casing, prefix, suffix = found.groups()
    begin, left = (sum(edit[1] is None for edit in _EDIT.finditer(edits)) for edits in (prefix, suffix))
    if begin + left > len(form):
        return form
    small = _small(form)
    end = len(small) - left
    made = _edited(prefix, small[:begin]) + small[begin:end] + _edited(suffix, small[end:])
    letters = list(made)
    for kind, given in _CASE.findall(casing):
        place = int(given) if given[0] != "-" else max(0, len(made) + int(given))
        letters[place:] = map(_capital_letter, made[place:]) if kind == "U" else made[place:]
    return "".join(letters)


# Casing. Only letters count whose other form is a single character that leads back to them: the others, such as ß, İ, ŉ
# and ς, are the same in small letters, so that the comparison keeps all lengths and loses nothing.


@lru_cache(maxsize=1 << 12)
def _small_letter(character: str) -> str:
    small = character.lower()
    return small if len(small) == 1 and small.upper() == character else character


@lru_cache(maxsize=1 << 12)
def _capital_letter(character: str) -> str:
    capital = character.upper()
    return capital if len(capital) == 1 and _small_letter(capital) == character else character


def _small(text: str) -> str:
    return "".join(map(_small_letter, text))


def _casing(lemma: str) -> str:
    """Where capital letters begin, and where small ones; characters without case change nothing."""
    written, is_capital = [], False
    for place, character in enumerate(lemma):
        small = _small_letter(character)
        if _capital_letter(small) == small or (small != character) == is_capital:
            continue
        is_capital = not is_capital
        written.append(f"{'U' if is_capital else 'L'}{place if 2 * place <= len(lemma) else place - len(lemma)}")
    return "".join(written)


# Edits.


def _edits(source: str, target: str) -> str:
    """The shortest way from one text to the other; letters are left out before others are added."""
    if not source or not target or (len(source) + 1) * (len(target) + 1) > MAX_EDIT_CELLS:
        return "-" * len(source) + "".join(f"+{letter}" for letter in target)
    # costs[i][j]: letters left out and added on the way from source[i:] to target[j:].
    costs = [[0] * (len(target) + 1) for _ in range(len(source) + 1)]
    for i in range(len(source), -1, -1):
        for j in range(len(target), -1, -1):
            if i == len(source) or j == len(target):
                costs[i][j] = len(source) - i + len(target) - j
            elif source[i] == target[j]:
                costs[i][j] = costs[i + 1][j + 1]
            else:
                costs[i][j] = 1 + min(costs[i + 1][j], costs[i][j + 1])
    written, i, j = [], 0, 0
    while i < len(source) or j < len(target):
        if i < len(source) and j < len(target) and source[i] == target[j]:
            written.append(">")
            i, j = i + 1, j + 1
        elif i < len(source) and costs[i][j] == 1 + costs[i + 1][j]:
            written.append("-")
            i += 1
        else:
            written.append(f"+{target[j]}")
            j += 1
    return "".join(written)


def _edited(edits: str, source: str) -> str:
    letters, written = iter(source), []
    for edit in _EDIT.finditer(edits):
        if edit[1] is not None:
            written.append(edit[1])
            continue
        letter = next(letters)
        if edit[0] == ">":
            written.append(letter)
    return "".join(written)
