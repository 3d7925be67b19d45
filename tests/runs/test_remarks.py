"""What is said of a training text: repeated, copied and lopsided pairs, unknown text, other languages."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from seqloom.core.symbols import END, UNKNOWN
from seqloom.data import overview
from seqloom.data.overview import Overview, look_over
from seqloom.data.store import Store, StoreWriter
from seqloom.doctor.repairs import REPAIRS
from seqloom.runs.translation import overview_of, remarks_on, spelling_remarks
from seqloom.text.scripts import Sample, doubts_of_pair
from seqloom.text.tokenizer import TextConfig
from seqloom.text.tokenizer_training import train_tokenizers

ENGLISH = [f"The dog is in the house and the cat of the neighbour number {n} was not with it." for n in range(9)]
GERMAN = [f"Der Hund ist in dem Haus und die Katze von dem Nachbarn {n} war nicht mit ihm da." for n in range(9)]
RUSSIAN = [f"Собака в доме, а кошка соседа номер {n} не была с ней." for n in range(9)]


def stored(folder: Path, pairs: Sequence[tuple[list[int], list[int]]]) -> Store:
    with StoreWriter(folder, symbols=1000) as writer:
        sides = ([[*pair[side], END] for pair in pairs] for side in (0, 1))
        writer.append(*sides, list(range(1, len(pairs) + 1)))
    return Store.open(folder)


@pytest.mark.parametrize("at_once", [1, 3, 1 << 15])
def test_pairs_are_counted_as_by_comparing_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_once: int) -> None:
    monkeypatch.setattr(overview, "PAIRS_PER_CHUNK", at_once)
    generator = np.random.default_rng(3)
    sides = [[generator.integers(4, 7, size=generator.integers(1, 4)).tolist() for _ in range(200)] for _ in range(2)]
    pairs = [*zip(*sides, strict=True), ([5] * 3, [6] * 99), ([5] * 99, [6] * 3), ([5] * 2, [6] * 11)]
    found = look_over(stored(tmp_path / "s", pairs), is_shared=True, unfamiliar=([UNKNOWN], [4, UNKNOWN]))
    assert found.pairs == 203
    assert found.repeated == 203 - len({(tuple(one), tuple(other)) for one, other in pairs})
    assert found.copied == sum(one == other for one, other in pairs)
    assert found.lopsided == 2
    targets = [id for _, target in pairs for id in target]
    assert found.unfamiliar == (0.0, targets.count(4) / len(targets))


def test_pairs_are_lopsided_by_what_is_usual_in_their_text(tmp_path: Path) -> None:
    """Where one side is spelled letter by letter every pair has many times the pieces, and none is at fault."""
    generator = np.random.default_rng(3)
    lengths = generator.integers(4, 12, size=300).tolist()
    pairs = [([5] * length, [6] * (6 * length + int(generator.integers(-3, 4)))) for length in lengths]
    assert look_over(stored(tmp_path / "s", pairs), is_shared=False, unfamiliar=([], [])).lopsided == 0
    pairs[7] = ([5] * 20, [6] * 20)
    assert look_over(stored(tmp_path / "t", pairs), is_shared=False, unfamiliar=([], [])).lopsided == 1


def test_sides_with_vocabularies_of_their_own_are_not_compared(tmp_path: Path) -> None:
    store = stored(tmp_path / "s", [([5], [5]), ([5], [6])])
    assert look_over(store, is_shared=False, unfamiliar=([], [])).copied is None
    assert look_over(store, is_shared=True, unfamiliar=([], [])).copied == 1


def test_only_what_was_counted_is_reported() -> None:
    assert remarks_on(Overview(9, 0, 0, 0, (0.0, 0.2)), "train") == []
    (counts, unknown) = remarks_on(Overview(9_000, 3, 2, 1, (0.934, 0.0)), "train")
    assert counts.startswith(
        "train: of 9,000 pairs 3 repeat an earlier pair, 2 have the same text on both sides, 1 have"
    )
    assert counts.endswith(
        "seqloom doctor judges the text itself, and --fix duplicates,copies,ratios drops what it finds)"
    )
    assert {"duplicates", "copies", "ratios"} <= set(REPAIRS)
    assert unknown.startswith("train: 93% of the source is unknown to the vocabulary")
    assert unknown.endswith("; try text.kind=bpe, or a larger text.size"), "no setting that was not given"
    (borrowed,) = remarks_on(Overview(9, 0, 0, 0, (0.9, 0.0)), "train", borrowed="training.start_from=old")
    assert borrowed.endswith("; leave out training.start_from=old, to learn a tokeniser from this text")


def test_a_side_that_is_spelled_letter_by_letter_is_named(tmp_path: Path) -> None:
    """Chinese characters fill the vocabulary, so that English has its letters alone."""
    chinese = ["".join(chr(0x4E00 + (7 * at + k) % 300) for k in range(8)) for at in range(300)]
    english = [ENGLISH[at % 9] for at in range(300)]
    said: dict[int, list[str]] = {}
    for size in (340, 800):
        tokenizers = train_tokenizers(chinese, english, TextConfig(kind="bpe", size=size))
        sides = tokenizers.source.encode_many(chinese), tokenizers.target.encode_many(english)
        store = stored(tmp_path / str(size), list(zip(*sides, strict=True)))
        said[size] = spelling_remarks(overview_of(store, tokenizers), "train", tokenizers)
    assert said[800] == []
    (remark,) = said[340]
    assert remark.startswith("train: the target is spelled nearly letter by letter: ")
    assert remark.endswith(
        "pieces are single characters, which leaves little room for longer ones; raise text.size (now 340)"
    )


@pytest.mark.parametrize(
    ("lines", "language", "reason"),
    [
        (ENGLISH, "en", None),
        (ENGLISH, None, None),
        (ENGLISH, "xx", None),
        (ENGLISH[:1], "de", None),  # one sentence proves nothing
        (ENGLISH, "de", "its small words are English"),
        (ENGLISH, "pt-BR", "its small words are English"),
        (ENGLISH, "ru", "its letters are Latin"),
        (RUSSIAN, "uk", "its small words are Russian"),
        (RUSSIAN[:3], "uk", None),  # too few words
        (RUSSIAN, "en", "its letters are Cyrillic"),
        (RUSSIAN, "zh", "its letters are Cyrillic"),
        (ENGLISH, "sr", None),  # written in both
        (["12 34 56 :-)"] * 99, "ru", None),
    ],
)
def test_a_text_is_doubted_only_where_its_letters_or_words_are_clear(
    lines: list[str], language: str | None, reason: str | None
) -> None:
    found = Sample(lines).doubt(language)
    assert (found and found.reason) == reason


def test_swapped_files_are_reported_in_one_sentence() -> None:
    swapped = doubts_of_pair(Sample(ENGLISH), Sample(GERMAN), ("de", "en"))
    assert swapped == [
        "source and target look swapped: the source should be German (de), but its small words are English; the target "
        "should be English (en), but its small words are German"
    ]
    assert doubts_of_pair(Sample(RUSSIAN), Sample(GERMAN), ("de", "ru"))[0].startswith("source and target look swapped")
    assert doubts_of_pair(Sample(ENGLISH), Sample(GERMAN), ("en", "de")) == []
    assert doubts_of_pair(Sample(ENGLISH), Sample(ENGLISH), ("en", "de")) == [
        "the target should be German (de), but its small words are English; is this the right text?"
    ]
