"""However much is wrong with a file, an error lists so much that it can be shown, and counts the rest."""

from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from seqloom.core.errors import MAX_LISTED_PROBLEMS, DataError, Problem, Problems
from seqloom.data.corpus import open_corpus
from seqloom.text.formats.jsonl import read_jsonl, read_pairs
from seqloom.text.formats.pharaoh import read_gold
from seqloom.text.formats.readers import SideReader, split_rows
from seqloom.text.formats.tmx import read_pairs as read_memory
from seqloom.text.formats.tmx import read_tmx
from seqloom.text.glossary import read_glossary

WRONG = MAX_LISTED_PROBLEMS + 7
NAMELESS = "<tu><tuv><seg>a</seg></tuv></tu>\n"


def _rows(path: Path) -> Iterable[object]:
    return split_rows(path.read_text(encoding="utf-8").splitlines(), path)


@pytest.mark.parametrize(
    ("name", "text", "read"),
    [
        ("a.tsv", "one column\n" * WRONG, lambda path: open_corpus([path])),
        ("a.tsv", "a\tb\n" + "one column\n" * WRONG, _rows),
        ("a.jsonl", "no record\n" * WRONG, read_pairs),
        ("a.jsonl", "no record\n" * WRONG, read_jsonl),
        ("a.jsonl", "no record\n" * WRONG, SideReader),
        ("a.tmx", f"<tmx><body>{NAMELESS * WRONG}</body></tmx>", read_memory),
        ("a.tmx", f"<tmx><body>{NAMELESS * WRONG}</body></tmx>", read_tmx),
        ("a.links", "no link\n" * WRONG, lambda path: read_gold(path, WRONG).links),
        ("a.wa", "1 1 1\n" + "no link\n" * WRONG, lambda path: read_gold(path, 1).links),
        ("a.txt", "no term\n" * WRONG, read_glossary),
    ],
)
def test_readers_list_some_problems_and_count_the_rest(
    tmp_path: Path, name: str, text: str, read: Callable[[Path], Iterable[object]]
) -> None:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    with pytest.raises(DataError) as caught:
        list(read(path))
    assert (len(caught.value.problems), caught.value.more) == (MAX_LISTED_PROBLEMS, 7)
    assert f"… and {WRONG - DataError.shown:,} more problems like these" in str(caught.value)


def test_an_error_never_lists_more() -> None:
    error = DataError(problems=[Problem("wrong")] * WRONG, more=3)
    assert (len(error.problems), error.more) == (MAX_LISTED_PROBLEMS, 10)


def test_nothing_wrong_is_no_error() -> None:
    problems = Problems()
    problems.require_none()
    problems.add("wrong", Path("a.txt"), 3)
    with pytest.raises(DataError, match=r"^look\na\.txt:3: wrong$"):
        problems.require_none("look")
