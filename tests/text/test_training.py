"""Learning tokenisers: the same pieces in every process, honest sizes, sentences instead of crashes."""

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import settings as effort
from hypothesis import strategies as st

import nasty
from seqloom.core.errors import DataError
from seqloom.core.events import Event
from seqloom.core.files import read_lines
from seqloom.core.symbols import RESERVED, UNKNOWN
from seqloom.text.marks import SPACE
from seqloom.text.tokenizer import TextConfig
from seqloom.text.tokenizer_training import (
    ALL_WORDS,
    choose_alphabet,
    count_characters,
    count_chunks,
    is_phrase,
    train_tokenizer,
)

# Many pairs that occur equally often, so that any freedom in breaking ties shows.
SCRIPT = """
import sys
from seqloom.text.tokenizer import TextConfig
from seqloom.text.tokenizer_training import train_tokenizer
words = [a + b + c + d for a in "kstm" for b in "aeiou" for c in "nrlp" for d in "aeiou我们"]
lines = [" ".join(words[i::7]) + ", " + str(i) for i in range(7)] * 3
if sys.argv[2] == "reversed":
    lines.reverse()
print(train_tokenizer(lines, TextConfig(kind=sys.argv[1], size=300)).fingerprint)
"""


@pytest.mark.parametrize("kind", ["word", "char", "bpe", "unigram"])
def test_every_process_learns_the_same_pieces(kind: str) -> None:
    found = set()
    for seed, threads, order in (("1", "1", "given"), ("2", "4", "reversed"), ("3", "2", "given")):
        environment = {**os.environ, "PYTHONHASHSEED": seed, "RAYON_NUM_THREADS": threads}
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT, kind, order], capture_output=True, text=True, check=True, env=environment
        )
        assert done.stderr == ""  # the libraries are kept quiet
        found.add(done.stdout)
    assert len(found) == 1


def messages_of(lines: list[str], config: TextConfig) -> tuple[int, list[str]]:
    events: list[Event] = []
    tokenizer = train_tokenizer(lines, config, listener=events.append)
    assert all(event.kind == "notice" for event in events)
    return tokenizer.size, [event["message"] for event in events]


WIKI = ["the <unk> of the <unk> , he said , was old .", "a well @-@ known <unk> , too ."] * 10


def test_the_word_for_unknown_words_is_read_as_the_unknown_symbol() -> None:
    plain = TextConfig(kind="word", segmentation="spaces")
    marked = train_tokenizer(WIKI, TextConfig(kind="word", segmentation="spaces", unknown_word="<unk>"))
    assert "<unk>" not in marked.vocabulary[len(RESERVED) :]
    assert marked.encode("the <unk> of")[1] == UNKNOWN
    assert "<unk>\t30\n" in marked._kind.content.decode()  # counted as what is unknown
    # Without the setting it is a word, and nothing of what is stored has changed.
    ordinary = train_tokenizer(WIKI, plain)
    assert ordinary.encode("the <unk> of")[1] != UNKNOWN
    assert b"unknown_word" not in ordinary._files["text.json"]


def test_a_text_that_was_cut_already_is_told_with_the_settings_for_it() -> None:
    size = ALL_WORDS
    (cut, unknown) = messages_of(WIKI, TextConfig(kind="word", size=size))[1]
    assert "50 times a comma or full stop apart from its word, 10 times @-@, 30 times <unk>" in cut
    assert "text.segmentation=spaces" in cut
    assert "'text.unknown_word=<unk>', with text.segmentation=spaces," in unknown
    assert messages_of(WIKI, TextConfig(kind="word", segmentation="spaces", size=size))[1] == [
        unknown.replace(", with text.segmentation=spaces,", "")
    ]
    prepared = TextConfig(kind="word", segmentation="spaces", unknown_word="<unk>", size=size)
    assert messages_of(WIKI, prepared)[1] == []
    ordinary = ["The old man, he said, was tired."] * 30 + ["an odd one , this ."]
    assert messages_of(ordinary, TextConfig(kind="word", size=size))[1] == []


def test_marks_that_a_setting_sets_apart_are_no_sign_of_a_text_cut_already() -> None:
    ordinary = ["The old man, he said, was tired."] * 30
    size = len(["The", "old", "man", ",", "he", "said", "was", "tired", "."]) + 4
    assert messages_of(ordinary, TextConfig(kind="word", size=size, space_before_punctuation=True))[1] == []
    (cut, _) = messages_of(WIKI, TextConfig(kind="word", size=5, space_before_punctuation=True))[1][:2]
    assert "times @-@" in cut
    assert "apart from its word" not in cut


def test_a_word_for_unknown_words_needs_words_between_spaces() -> None:
    for settings in (
        {"kind": "bpe"},
        {"kind": "word"},
        {"kind": "word", "segmentation": "spaces", "unknown_word": "a b"},
    ):
        with pytest.raises(ValueError, match="unknown_word"):
            TextConfig.model_validate({"unknown_word": "<unk>", **settings})


@pytest.mark.parametrize(("kind", "size"), [("word", 6), ("char", 12), ("bpe", 22), ("unigram", 14)])
def test_more_pieces_than_the_text_gives_is_said_with_the_maximum(kind: str, size: int) -> None:
    found, messages = messages_of(["hello world", "hello world"], TextConfig(kind=kind, size=5000))  # type: ignore[arg-type]
    assert messages == [
        f"text.size=5000 is more than this text gives: the {kind} tokeniser has its maximum, {found} pieces"
    ]
    # Two words; eight characters; eight and five merges in each word; eight and at most the two words.
    assert found == size if kind != "unigram" else found <= size


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
@pytest.mark.parametrize("byte_fallback", [False, True])
def test_a_vocabulary_too_small_for_the_characters_keeps_the_most_frequent(kind: str, byte_fallback: bool) -> None:
    size = 8 + 256 * byte_fallback
    config = TextConfig(kind=kind, size=size, byte_fallback=byte_fallback)  # type: ignore[arg-type]
    text = "aaaaaa bbbbb cccc ddd ee f"
    found, messages = messages_of([text], config)
    assert found == size
    assert len(messages) == 1
    fate = "spelled in bytes" if byte_fallback else "unknown"
    assert messages[0].startswith("3 different characters, 22.22% of the text, get no piece and are " + fate)


def test_rare_words_are_counted_in_a_notice() -> None:
    _, messages = messages_of(["a a a b b c"], TextConfig(kind="word", size=6, minimum_count=2))
    assert messages == [
        "1 different words, 16.67% of the text, get no piece and are unknown (text.size=6, text.minimum_count=2)"
    ]


@pytest.mark.parametrize("kind", ["word", "char", "bpe", "unigram"])
@pytest.mark.parametrize(
    ("lines", "message"),
    [([], "no lines"), (["", " \t", "\x00"], "3 lines, all of them blank")],
)
def test_no_text_is_a_data_error(kind: str, lines: list[str], message: str) -> None:
    with pytest.raises(DataError, match=f"no text to train a tokenizer on: {message}"):
        train_tokenizer(lines, TextConfig(kind=kind))  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["word", "char", "bpe", "unigram"])
def test_a_text_of_which_nothing_is_frequent_enough_is_a_data_error(kind: str) -> None:
    config = TextConfig(kind=kind, minimum_count=9)  # type: ignore[arg-type]
    with pytest.raises(DataError, match=r"gets a piece with text\.size=8000 and text\.minimum_count=9; raise"):
        train_tokenizer(["abc def"], config)


def test_bytes_alone_are_a_tokeniser_too() -> None:
    ours = train_tokenizer(["abc é"], TextConfig(minimum_count=9, byte_fallback=True))
    assert ours.size == len(RESERVED) + 256 + 1
    assert ours.pieces("é") == ["▁", "<0xC3>", "<0xA9>"]


@pytest.mark.parametrize("kind", ["word", "char", "bpe", "unigram"])
@pytest.mark.parametrize("line", ["a", "▁", "我", "1", "</s>", "\u0301", "▅", "👨‍👩‍👧"])
def test_the_smallest_texts_are_enough(kind: str, line: str) -> None:
    ours = train_tokenizer([line], TextConfig(kind=kind))  # type: ignore[arg-type]
    assert ours.decode(ours.encode(line)) == line


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_learning_from_a_huge_word_takes_linear_time(kind: str) -> None:
    # A square of it would meet the suite's limit.
    text = ["abcdefgh" * 25_000, "other words"]
    assert train_tokenizer(text, TextConfig(kind=kind, size=60)).size <= 60  # type: ignore[arg-type]


@given(st.lists(st.text("ab ▁我", max_size=20)))
def test_characters_of_chunks_are_those_of_the_text(lines: list[str]) -> None:
    texts = [" ".join(line.split()) for line in lines]
    counts = count_characters(count_chunks(texts))
    assert counts["a"] == Counter("".join(texts))["a"]
    assert counts["\x1a"] == Counter("".join(texts))["▁"]


@given(
    st.dictionaries(st.characters(categories=["L"]), st.integers(1, 1000), min_size=1, max_size=60),
    st.integers(1, 40),
    st.integers(1, 5),
)
def test_the_alphabet_fits_and_no_lost_character_is_more_frequent(
    counts: dict[str, int], room: int, least: int
) -> None:
    alphabet = choose_alphabet(counts, room=room, minimum_count=least)
    assert SPACE in alphabet.kept
    assert len(alphabet.kept) <= max(room, 1)
    lost = counts.keys() - alphabet.kept
    kept = alphabet.kept - {SPACE}
    assert alphabet.lost == len(lost)
    assert alphabet.lost_rate == pytest.approx(sum(counts[c] for c in lost) / sum(counts.values()))
    if lost and kept:
        assert max(counts[c] for c in lost) <= min(counts[c] for c in kept)
    if len(counts) < room // 2:
        assert all(counts[c] < least for c in lost)


def test_clauses_in_scripts_without_spaces_are_phrases_and_words_are_not() -> None:
    assert [is_phrase(piece) for piece in ("我们", "一石二鸟", "コンピューター", "▁internationalisation")] == [
        False
    ] * 4
    assert [is_phrase(piece) for piece in ("我们在海边", "ประเทศไทยรวมเลือด")] == [True] * 2


def test_chinese_byte_pairs_are_words_and_no_clauses() -> None:
    lines = ["我们在海边看狗。", "我们去家里看书。", "昨天我们来海边了，海边有狗，家里没有狗。"] * 5
    ours = train_tokenizer(lines, TextConfig(size=200))
    assert all(len(piece) <= 4 for piece in map(ours.piece, range(len(RESERVED), ours.size)))
    assert ours.pieces("我们看海边。") == ["我们", "看", "海边", "。"]
    assert ours.round_trip_report(lines).changed == 0


# --- real text -------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_multi30k_is_cut_as_finely_as_by_joint_byte_pairs_elsewhere(real_data: Path) -> None:
    english = list(read_lines(real_data / "multi30k" / "train.en.gz"))
    german = list(read_lines(real_data / "multi30k" / "train.de.gz"))
    ours = train_tokenizer([*english, *german], TextConfig())
    ids = ours.encode_many(english)
    assert ours.size == 8000
    assert sum(map(len, ids)) / len(ids) == pytest.approx(14.3, abs=0.5)
    assert ours.round_trip_report([*english[:2000], *german[:2000]]).changed == 0


@pytest.mark.parametrize("kind", ["word", "char", "bpe", "unigram"])
@given(lines=nasty.lines(fewest=1, most=4, longest=30))
@effort(max_examples=20)
def test_any_text_can_be_learned_from_and_comes_back(kind: str, lines: list[str]) -> None:
    config = TextConfig.model_validate({"kind": kind, "size": 1000, "minimum_count": 1})
    learned = train_tokenizer([*lines, "the end"], config)
    for line in lines:
        assert learned.decode(learned.encode(line)) == learned.normaliser(line)
