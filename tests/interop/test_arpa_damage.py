"""ARPA files that no program should have written: each is told with its line, or read for what it means."""

import warnings
from pathlib import Path

import numpy as np
import pytest

from seqloom.core.errors import DataError
from seqloom.core.symbols import BEGIN
from seqloom.interop.arpa import read_arpa

SMALL = """\\data\\
ngram 1=5
ngram 2=2

\\1-grams:
-1.0\t<unk>
-99\t<s>\t-0.3
-0.6\t</s>
-0.5\ta\t-0.2
-0.7\tb\t-0.1

\\2-grams:
-0.2\t<s> a
-0.3\ta b

\\end\\
"""


def written(folder: Path, old: str, new: str) -> Path:
    assert old in SMALL
    (folder / "model.arpa").write_text(SMALL.replace(old, new, 1), encoding="utf-8")
    return folder / "model.arpa"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("ngram 2=2", "ngram 2=" + "9" * 5000, ":3: 'ngram 2=9999"),
        ("a\t-0.2", "a\t1e999", ":9: '1e999': a logarithm of a back-off weight is at most 100"),
        ("a\t-0.2", "a\t1e300", ":9: '1e300': a logarithm of a back-off weight is at most 100"),
        ("a b", "a b\t1e300", ":14: a 2-gram cannot be read: a logarithm of a back-off weight is at most 100"),
        ("-0.5\ta", "-0.5\t<pad>", ":9: <pad> fills up rows here and cannot be a word"),
    ],
    ids=["digits", "infinite back-off", "huge back-off", "huge back-off of a 2-gram", "padding"],
)
def test_what_no_model_has_is_told_with_its_line(tmp_path: Path, old: str, new: str, message: str) -> None:
    with pytest.raises(DataError) as caught:
        read_arpa(written(tmp_path, old, new))
    assert message in str(caught.value)


def test_numbers_below_all_others_are_logarithms_of_nothing(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = read_arpa(written(tmp_path, "-0.3\ta b", "-1e300\ta b"))
    row = model.distribution([[list(model.vocabulary).index("a")]])[0]
    assert row[list(model.vocabulary).index("b")] == 0
    assert np.isfinite(row).all()


def test_a_byte_order_mark_at_the_start_changes_nothing(tmp_path: Path) -> None:
    plain = read_arpa(written(tmp_path, "\\data\\", "\\data\\"))
    marked = read_arpa(written(tmp_path, "\\data\\", "\ufeff\\data\\"))
    np.testing.assert_array_equal(marked.distribution([[BEGIN]]), plain.distribution([[BEGIN]]))
