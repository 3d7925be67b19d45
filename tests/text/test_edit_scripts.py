"""Scripts that turn forms into lemmas: exact for every pair, shared by words that change alike."""

import re

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from seqloom.core.errors import DataError
from seqloom.text.edit_scripts import apply_script, edit_script

# Letters whose other case has another length or leads elsewhere, combining characters, and the signs of scripts.
_letters = st.sampled_from([*"abAB", *"ßẞİıſKςΣŉǅǆﬁ", "\u0301", "\u0307", *"|=+->UL0\n"])
_texts = st.one_of(st.text(_letters, max_size=8), st.text(max_size=6))


@given(_texts, _texts)
@example(form="", lemma="")
@example(form="İSTANBUL", lemma="İstanbul")
@example(form="STRASSE", lemma="Straße")
@example(form="e\u0301tait", lemma="être")
@example(form="ab" * 90 + "x", lemma="ba" * 90 + "y" * 120)
@settings(max_examples=200)
def test_a_script_leads_from_its_form_to_its_lemma(form: str, lemma: str) -> None:
    assert apply_script(edit_script(form, lemma), form) == lemma


@given(_texts, _texts, _texts)
@settings(max_examples=100)
def test_a_script_can_be_applied_to_every_form(form: str, lemma: str, other: str) -> None:
    script = edit_script(form, lemma)
    made = apply_script(script, other)
    letters = re.sub(r"\+.", "", script.partition("|")[2], flags=re.DOTALL)
    if script.startswith("="):
        assert made == lemma
    elif letters.count("-") + letters.count(">") > len(other):  # more than there are
        assert made == other
    else:
        assert len(made) - len(other) == len(lemma) - len(form)


@pytest.mark.parametrize(
    ("form", "lemma", "other", "its_lemma", "script"),
    [
        ("walked", "walk", "Talked", "talk", "||--"),
        ("Annas", "Anna", "Peters", "Peter", "U0L1||-"),
        ("sang", "sing", "rang", "ring", "|>-+i|"),
        ("gespielt", "spielen", "geholt", "holen", "|--|-+e+n"),
        ("was", "be", "Were", "be", None),
        ("USA", "USA", "Ibm", "IBM", "U0||"),
        ("eBays", "eBay", "iPads", "iPad", "U1L2||-"),
        ("BERLINER", "BerlinER", "HAMBURGER", "HamburgER", "U0L1U-2||"),
        ("went", "go", "WENT", "go", "=go"),
        ("don't", "don't", "1st", "1st", "||"),
    ],
)
def test_words_that_change_alike_share_a_script(
    form: str, lemma: str, other: str, its_lemma: str, script: str | None
) -> None:
    if script is None:  # was and be share nothing, were and be share an e
        assert edit_script(form, lemma) == "=be" != edit_script(other, its_lemma)
    else:
        assert edit_script(form, lemma) == edit_script(other, its_lemma) == script
    assert apply_script(edit_script(form, lemma), other) == its_lemma


def test_a_form_that_is_too_short_stays_as_it_is_and_no_script_is_refused() -> None:
    assert apply_script(edit_script("walking", "walk"), "At") == "At"
    assert apply_script("|-|-", "X") == "X"
    assert apply_script("|-|-", "XY") == ""
    for script in ("", "||-x", "-", "U||", "|+|", "U0L1|-"):
        with pytest.raises(DataError, match="is not an edit script; a script is casing"):
            apply_script(script, "word")
