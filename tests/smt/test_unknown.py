"""Known words in place of unknown ones: stems and compounds."""

import numpy as np
import pytest

from seqloom.smt.unknown import KnownWords

COUNTS = {
    "Leder": 9,
    "Tasche": 30,
    "Taschen": 8,
    "Papier": 12,
    "Maske": 5,
    "Schneemobil": 3,
    "kalten": 7,
    "kaltes": 2,
    "Müll": 6,
    "Sack": 20,
    "Gebirge": 4,
    "Landschaft": 11,
    "Land": 40,
    "selten": 1,
    "Anna": 0,
}


@pytest.mark.parametrize(
    ("word", "parts"),
    [
        ("Schneemobilen", ["Schneemobil"]),  # another ending
        ("kalter", ["kalten"]),  # of two with the same beginning, the more frequent
        ("Ledertasche", ["Leder", "Tasche"]),
        ("ledertasche", ["Leder", "Tasche"]),
        ("Papiermasken", ["Papier", "Maske"]),  # a compound with another ending
        ("Papiermüllsack", ["Papier", "Müll", "Sack"]),
        ("Gebirgslandschaft", []),  # Gebirgs is not a known word with a filler after it
        ("Gebirgeslandschaft", ["Gebirge", "Landschaft"]),  # but this is
        ("Landsack", ["Land", "Sack"]),
        ("seltensack", []),  # a part that was seen once cuts words by chance
        ("Annasack", []),  # a word that is not to be used
        ("Qwertz", []),
        ("17", []),
        ("", []),
    ],
)
def test_words_are_cut_and_stemmed(word: str, parts: list[str]) -> None:
    vocabulary = ("<pad>", "<s>", "</s>", "<unk>", *COUNTS)
    known = KnownWords(vocabulary, np.array([0, 0, 0, 0, *COUNTS.values()], np.int64))
    assert [vocabulary[number] for number in known.parts(word)] == parts
