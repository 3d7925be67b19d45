"""Tokenisers of every kind: text comes back, ids are the same however they are asked for, files come back equal."""

import json
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

import nasty
from seqloom.core.errors import DataError, ModelError
from seqloom.core.symbols import BEGIN, END, PAD, RESERVED, UNKNOWN
from seqloom.text.tokenizer import TextConfig, Tokenizer, Tokenizers
from seqloom.text.tokenizer_training import train_tokenizer, train_tokenizers

LINES = [
    'A man says: "Quoi ?" and the dog\'s owner (in a T-shirt) laughs...',
    "Two dogs are running on the beach, and two men are watching the dogs.",
    "Ein Mann und ein Hund laufen am Strand; der Hund läuft schneller!",
    "L'homme et le chien courent sur la plage : 1 984 fois, 3,5 km.",
    "我们 在 海边 看 狗 。",
    "我们在海边看狗，你们在家里看书。",
    "Special: </s> <pad> <unk> <s> <0x41> ▁ ￭ ▅ ⁇",
]

CONFIGS = {
    "word": TextConfig(kind="word", size=1000),
    "spaces": TextConfig(kind="word", size=1000, segmentation="spaces"),
    "char": TextConfig(kind="char", size=1000),
    "char-bytes": TextConfig(kind="char", size=1000, byte_fallback=True),
    "bpe": TextConfig(kind="bpe", size=200),
    "bpe-bytes": TextConfig(kind="bpe", size=500, byte_fallback=True),
    "unigram": TextConfig(kind="unigram", size=180),
    "unigram-bytes": TextConfig(kind="unigram", size=450, byte_fallback=True),
}
ALL = list(CONFIGS)
SPELLING = [name for name in ALL if name.endswith("-bytes")]
SUBWORDS = ["bpe", "bpe-bytes", "unigram", "unigram-bytes"]

NASTY = nasty.texts(most=4, longest=60)


@cache
def tokenizer(name: str) -> Tokenizer:
    return train_tokenizer(LINES, CONFIGS[name])


@pytest.mark.parametrize("name", ALL)
def test_the_text_it_was_learned_from_comes_back(name: str) -> None:
    report = tokenizer(name).round_trip_report(LINES)
    assert (report.count, report.changed, report.unknown, report.unknown_rate) == (len(LINES), 0, 0, 0.0)


@pytest.mark.parametrize("name", SPELLING)
@given(text=NASTY)
def test_any_text_comes_back_where_bytes_spell_the_unknown(name: str, text: str) -> None:
    ours = tokenizer(name)
    ids = ours.encode(text)
    assert UNKNOWN not in ids
    assert ours.decode(ids) == ours.normaliser(text)


@pytest.mark.parametrize("name", ["char", "bpe", "unigram"])
@given(text=st.text(st.sampled_from(sorted({c for line in LINES for c in line if ord(c) > 31}))))
def test_any_text_of_known_characters_comes_back(name: str, text: str) -> None:
    ours = tokenizer(name)
    assert ours.decode(ours.encode(text)) == ours.normaliser(text)


@pytest.mark.parametrize("name", ALL)
@given(lines=st.lists(NASTY, max_size=4))
@settings(max_examples=40)
def test_encoding_many_lines_is_encoding_each(name: str, lines: list[str]) -> None:
    ours = tokenizer(name)
    fresh = Tokenizer(ours.config, ours._kind)
    assert fresh.encode_many(lines) == [ours.encode(line) for line in lines]


@pytest.mark.parametrize("name", ALL)
@given(text=NASTY)
@settings(max_examples=40)
def test_no_text_gives_a_control_id(name: str, text: str) -> None:
    assert not {PAD, BEGIN, END} & set(tokenizer(name).encode(text))


@pytest.mark.parametrize("name", ALL)
@given(st.data())
@settings(max_examples=40)
def test_whatever_a_model_puts_out_is_one_line(name: str, data: st.DataObject) -> None:
    ours = tokenizer(name)
    text = ours.decode(data.draw(st.lists(st.integers(0, ours.size - 1))))
    assert text == " ".join(text.split())
    assert "\0" not in text


@pytest.mark.parametrize("name", ALL)
def test_special_tokens_in_a_text_are_ordinary_text(name: str) -> None:
    ours = tokenizer(name)
    for text in ("</s>", "<pad>", "<unk>", "<s>", "<0x41>", "▁", "<unk> <unk>"):
        ids = ours.encode(text)
        assert min(ids, default=-1) >= len(RESERVED), text
        assert ours.decode(ids) == text


@pytest.mark.parametrize("name", ALL)
def test_reserved_ids_are_left_out_and_unknown_is_shown(name: str) -> None:
    ours = tokenizer(name)
    ids = ours.encode("the dog" if name in SUBWORDS or name.startswith("char") else "on the")
    text = ours.decode(ids)
    assert ours.decode([BEGIN, *ids, END, PAD, PAD]) == text
    assert ours.decode([UNKNOWN]) == "⁇"
    assert [ours.piece(number) for number in range(4)] == list(RESERVED)


@pytest.mark.parametrize("name", ["char", "bpe", "unigram", "word"])
def test_unknown_text_is_unknown_and_reported(name: str) -> None:
    report = tokenizer(name).round_trip_report(["Ω", "the  dogs"])
    assert (report.count, report.normalised, report.changed, report.unknown) == (2, 1, 1, 1)
    assert report.examples == (("Ω", "⁇"),)


@pytest.mark.parametrize("name", ALL)
def test_a_saved_tokeniser_comes_back_equal(name: str, tmp_path: Path) -> None:
    ours = tokenizer(name)
    ours.save(tmp_path / "one")
    loaded = Tokenizer.load(tmp_path / "one")
    loaded.save(tmp_path / "two")
    files = sorted(path.name for path in (tmp_path / "one").iterdir())
    assert files == sorted(path.name for path in (tmp_path / "two").iterdir())
    assert all((tmp_path / "one" / f).read_bytes() == (tmp_path / "two" / f).read_bytes() for f in files)
    assert (loaded.fingerprint, loaded.size, loaded.kind) == (ours.fingerprint, ours.size, ours.kind)
    assert (loaded, loaded.config) == (ours, ours.config)
    assert loaded != tokenizer("word" if name != "word" else "char")
    sample = [*LINES, "unseen Ωords, 我 and </s>"]
    assert loaded.encode_many(sample) == ours.encode_many(sample)


@pytest.mark.parametrize("name", ["word", "char", "bpe", "unigram"])
def test_a_damaged_or_missing_file_is_a_model_error_that_names_it(name: str, tmp_path: Path) -> None:
    tokenizer(name).save(tmp_path)
    for path in sorted(tmp_path.iterdir()):
        whole = path.read_bytes()
        for damaged in (whole[: len(whole) // 2], b"", b"\xff" + whole[1:]):
            path.write_bytes(damaged)
            with pytest.raises(ModelError, match=path.name):
                Tokenizer.load(tmp_path)
        path.unlink()
        with pytest.raises(ModelError, match=f"{path.name} cannot be read: No such file"):
            Tokenizer.load(tmp_path)
        path.write_bytes(whole)


def test_a_newer_format_or_another_size_is_refused(tmp_path: Path) -> None:
    tokenizer("char").save(tmp_path)
    path = tmp_path / "text.json"
    described = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps(described | {"format": 2}), encoding="utf-8")
    with pytest.raises(ModelError, match="has format 2, and this version reads up to 1"):
        Tokenizer.load(tmp_path)
    path.write_text(json.dumps(described | {"size": 7}), encoding="utf-8")
    with pytest.raises(ModelError, match=r"vocabulary\.txt does not fit text\.json: .* but 7 that begin"):
        Tokenizer.load(tmp_path)


def test_an_id_outside_the_vocabulary_is_a_model_error() -> None:
    ours = tokenizer("bpe")
    with pytest.raises(ModelError, match=f"id {ours.size} is outside this bpe tokeniser"):
        ours.decode([5, ours.size])
    with pytest.raises(ModelError, match="id -1 is outside"):
        ours.piece(-1)


@pytest.mark.parametrize("name", ALL)
def test_half_a_surrogate_pair_is_a_data_error(name: str) -> None:
    with pytest.raises(DataError, match=r"U\+D83D"):
        tokenizer(name).encode("a \ud83d b")


@given(st.sampled_from(ALL), nasty.broken_texts(most=2))
def test_half_a_surrogate_pair_is_found_in_any_text(name: str, text: str) -> None:
    with pytest.raises(DataError, match=r"half a surrogate pair, U\+D[89A-F]"):
        tokenizer(name).encode(text)
    with pytest.raises(DataError, match="half a surrogate pair"):
        tokenizer(name).encode_many(["a", text])


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize(
    "text", ["a" * 200_000, "ab " * 70_000, "-" * 200_000, "e\u0301\u0316" * 70_000, "我" * 200_000]
)
def test_long_lines_and_long_words_take_linear_time(name: str, text: str) -> None:
    ids = tokenizer(name).encode(text)  # a square of it would meet the suite's limit
    assert len(ids) <= 4 * len(text)


# --- how each kind cuts ----------------------------------------------------------------------------------------------


def test_words_in_given_segmentation_are_what_spaces_part() -> None:
    ours = tokenizer("spaces")
    assert ours.pieces("我们  看 狗 。") == ["我们", "看", "狗", "。"]
    assert ours.decode(ours.encode("我们  看 狗 。")) == "我们 看 狗 。"


def test_chinese_characters_and_spaces_are_single_pieces() -> None:
    assert tokenizer("char").pieces("我们 看") == ["我", "们", "▁", "看"]


@pytest.mark.parametrize("name", SUBWORDS)
def test_subwords_never_join_words_marks_and_digits(name: str) -> None:
    for piece in tokenizer(name).pieces(" ".join(LINES)):
        core = piece.removeprefix("▁")
        assert "▁" not in core
        if not core.startswith("<0x"):
            sorts = ["digit" if c.isdigit() else "letter" if c.isalpha() else "mark" for c in core if c != "'"]
            assert len(set(sorts)) <= 1, piece
            assert sorts.count("digit") <= 1, piece


def test_byte_pairs_cut_where_the_text_was_counted_by_hand() -> None:
    """Of ▁low four times and ▁lower twice, the pairs ▁l, lo and ow all occur six times.

    The pair of the smallest ids comes first, and ids of characters follow their code points (e l o r w ▁): so l+o,
    then ▁+lo before lo+w, then ▁lo+w; of the pairs that occur twice, e+r comes before ▁low+e.
    """
    ours = train_tokenizer(["low low lower", "low low lower"], TextConfig(size=100))
    pieces = [ours.piece(number) for number in range(ours.size)]
    assert pieces == [*RESERVED, "e", "l", "o", "r", "w", "▁", "lo", "▁lo", "▁low", "er", "▁lower"]
    assert ours.pieces("lower slow") == ["▁lower", "▁", "<unk>", "lo", "w"]


def test_a_shared_vocabulary_is_one_tokeniser_and_separate_ones_are_two(tmp_path: Path) -> None:
    for shared in (True, False):
        config = TextConfig(kind="char", size=60, shared=shared)
        both = train_tokenizers(["abc"], ["xyz"], config)
        assert both.is_shared == (both.source is both.target) == shared
        assert both.target.encode("a") == ([4] if shared else [UNKNOWN])
        both.save(tmp_path / str(shared))
        loaded = Tokenizers.load(tmp_path / str(shared))
        assert (loaded.source.fingerprint, loaded.target.fingerprint, loaded.is_shared) == (
            both.source.fingerprint,
            both.target.fingerprint,
            shared,
        )
    with pytest.raises(ModelError, match="has no tokeniser: neither shared/ nor"):
        Tokenizers.load(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"kind": "word", "byte_fallback": True}, "byte_fallback is for kind char, bpe or unigram"),
        ({"size": 261, "byte_fallback": True}, "size 261 has no room for characters"),
        ({"size": 4}, "greater than 4"),
        ({"minimum_count": 0}, "greater than or equal to 1"),
        ({"vocabulary": 8000}, "Extra inputs"),
    ],
)
def test_settings_that_make_no_sense_are_refused(values: dict[str, object], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        TextConfig.model_validate(values)
