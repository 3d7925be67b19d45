"""Lines as they arrive, and what the words of a command line mean."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import nasty
from seqloom.cli.arguments import config_and_overrides, file_names, parse_words
from seqloom.cli.inputs import read_blocks
from seqloom.core.errors import DataError, UsageError


class Trickle:
    """Bytes that arrive in pieces of these sizes."""

    def __init__(self, data: bytes, sizes: list[int]) -> None:
        self._data, self._sizes, self._at = data, sizes, 0

    def read1(self, size: int, /) -> bytes:
        length = self._sizes[self._at % len(self._sizes)]
        self._at += 1
        taken, self._data = self._data[:length], self._data[length:]
        return taken


TEXTS = st.one_of(
    st.text(st.sampled_from("aä字🙂\n\r\u2028\x85 \ufeff"), max_size=40), nasty.texts(most=4, longest=20, without="\0")
)


@given(TEXTS, st.lists(st.integers(1, 7), min_size=1, max_size=5))
def test_lines_do_not_depend_on_how_they_arrive(text: str, sizes: list[int]) -> None:
    found = [line for block in read_blocks(Trickle(text.encode(), sizes), "x") for line in block]
    lines = text.removeprefix("\ufeff").split("\n")
    expected = lines[:-1] if lines[-1] == "" else lines
    assert found == [line.removesuffix("\r") for line in expected]


@given(st.integers(0, 5), st.integers(0, 5), st.integers(1, 9))
def test_a_bad_byte_is_found_wherever_the_pieces_end(before: int, column: int, size: int) -> None:
    data = b"ok\n" * before + "ä".encode() * column + b"\xff\nok\n"
    with pytest.raises(DataError) as caught:
        list(read_blocks(Trickle(data, [size]), "x"))
    (problem,) = caught.value.problems
    assert (problem.line, problem.column) == (before + 1, column + 1)


def test_a_line_is_passed_on_before_the_next_one_arrives() -> None:
    blocks = read_blocks(Trickle(b"one\ntwo\nthree", [4]), "x")
    assert next(blocks) == ["one"]
    assert next(blocks) == ["two"]
    assert next(blocks) == ["three"]


def test_settings_are_distinguished_from_files() -> None:
    words = parse_words(["run.yaml", "model.width=8", "./odd=name.txt", "seed=3", "a b=c"])
    assert words.overrides == ("model.width=8", "seed=3")
    assert words.others == ("run.yaml", "./odd=name.txt", "a b=c")
    assert config_and_overrides(["seed=3", "run.YML"], hint="") == (Path("run.YML"), ("seed=3",))
    with pytest.raises(UsageError, match=r"'x.de' is neither a config file .* use --train"):
        config_and_overrides(["x.de"], hint="use --train")


def test_files_may_be_named_with_commas_unless_a_name_has_one(tmp_path: Path) -> None:
    odd = tmp_path / "a,b.tsv"
    odd.write_text("a\tb\n", encoding="utf-8")
    assert file_names([str(odd)]) == [str(odd)]
    assert file_names(["a.de,a.en", "b.de", "b.en"]) == ["a.de", "a.en", "b.de", "b.en"]
    assert file_names(None) == []
