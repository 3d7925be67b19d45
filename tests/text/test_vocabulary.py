"""Vocabularies: counts as Counter has them, a fixed order of ids, a file that comes back equal."""

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import nasty
from seqloom.core.errors import ConfigError, DataError, ModelError
from seqloom.core.symbols import RESERVED, UNKNOWN
from seqloom.text.vocabulary import Vocabulary, count_tokens, read_foreign_vocabulary

WORDS = st.lists(st.sampled_from(["the", "cat", "sat", "<unk>", "</s>", "zebra", "Ähre", "猫", "a"]))
TOKENS = st.lists(nasty.line(most=2, longest=20).map(lambda text: "".join(text.split())).filter(bool), max_size=6)


@given(st.lists(WORDS))
def test_counts_equal_those_of_counter(lines: list[list[str]]) -> None:
    assert count_tokens(lines) == Counter(word for line in lines for word in line)


def test_ids_follow_count_and_then_code_points() -> None:
    counts = Counter(["the", "the", "the", "cat", "cat", "sat", "on", "on", "mat", "Ähre", "Zoo"])
    vocabulary = Vocabulary.from_counts(counts)
    assert list(vocabulary) == [*RESERVED, "the", "cat", "on", "Zoo", "mat", "sat", "Ähre"]
    assert [vocabulary.id_of(word) for word in ("the", "cat", "dog")] == [4, 5, UNKNOWN]
    assert vocabulary.counts == (3, 2, 2, 1, 1, 1, 1)


@given(WORDS, st.randoms(use_true_random=False))
def test_the_order_of_the_text_changes_no_id(words: list[str], random: object) -> None:
    shuffled = list(words)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert Vocabulary.from_counts(Counter(words)) == Vocabulary.from_counts(Counter(shuffled))


@given(WORDS, st.integers(1, 3), st.integers(5, 12))
def test_rare_tokens_are_removed_and_their_occurrences_counted(words: list[str], minimum: int, size: int) -> None:
    vocabulary = Vocabulary.from_counts(Counter(words), size=size, minimum_count=minimum)
    assert vocabulary.size <= size
    assert all(words.count(token) >= minimum for token in vocabulary.tokens)
    assert vocabulary.unknown == vocabulary.encode(words).count(UNKNOWN)


def test_a_word_that_looks_reserved_has_an_id_of_its_own() -> None:
    vocabulary = Vocabulary.from_counts(Counter(["<unk>", "</s>", "</s>"]))
    assert vocabulary.encode(["</s>", "<unk>", "<pad>"]) == [4, 5, UNKNOWN]
    assert list(vocabulary)[5] == "<unk>"


@given(WORDS)
def test_text_and_back_is_the_same_vocabulary(words: list[str]) -> None:
    vocabulary = Vocabulary.from_counts(Counter(words), minimum_count=2)
    assert Vocabulary.from_text(vocabulary.to_text()) == vocabulary


@given(TOKENS)
def test_any_tokens_come_back_from_text(tokens: list[str]) -> None:
    vocabulary = Vocabulary.from_counts(Counter(tokens))
    found = Vocabulary.from_text(vocabulary.to_text())
    assert found == vocabulary
    assert [list(found)[id] for id in found.encode(tokens)] == tokens


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("<pad>\t0\n<s>\t0\n</s>\t0\n<unk>\t0\nthe", "cut short"),
        ("<pad>\t0\n<s>\t0\n</s>\t0\n<unk>\t0\nthe\n", r"line 5, 'the', is not a token, a tab and a count"),
        ("the\t3\n", "does not begin with"),
        ("<pad>\t0\n<s>\t0\n</s>\t0\n<unk>\t0\na\t1\na\t1\n", r"repeated: \['a'\]"),
    ],
)
def test_damaged_text_is_refused_with_its_fault(content: str, message: str) -> None:
    with pytest.raises((ModelError, DataError), match=message):
        Vocabulary.from_text(content)


def test_a_size_without_room_is_a_config_error() -> None:
    with pytest.raises(ConfigError, match="size 4 has no room"):
        Vocabulary.from_counts({"a": 1}, size=4)


@pytest.mark.parametrize(
    "content",
    [
        "<bos>\n<eos>\n<unk>\nthe\ncat\n",
        "START\nEND\nthe\ncat\n",
        "[PAD]\nthe\n[UNK]\n[CLS]\n[SEP]\ncat",
        "the 120\n<s> 7\n</s> 7\ncat 3\n",
        "the\t120\r\ncat\t3\r\n",
    ],
)
def test_foreign_vocabularies_give_the_same_ids_whatever_they_call_reserved(tmp_path: Path, content: str) -> None:
    path = tmp_path / "foreign.txt"
    path.write_text(content, encoding="utf-8", newline="")
    assert read_foreign_vocabulary(path).tokens == ("the", "cat")


def test_bare_names_are_words_further_down(tmp_path: Path) -> None:
    path = tmp_path / "foreign.txt"
    path.write_text("<s>\n</s>\n<unk>\nthe\nEND\n[EOS]\n", encoding="utf-8")
    assert read_foreign_vocabulary(path).tokens == ("the", "END")


def test_a_foreign_vocabulary_with_repetitions_names_the_lines(tmp_path: Path) -> None:
    path = tmp_path / "foreign.txt"
    path.write_text("the\ncat\nthe\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"foreign\.txt:3: 'the' is a duplicate"):
        read_foreign_vocabulary(path)
    path.write_text("<s>\n", encoding="utf-8")
    with pytest.raises(DataError, match="has no tokens"):
        read_foreign_vocabulary(path)
