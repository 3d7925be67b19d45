"""Tagged sentences: what is read of files, which tags there are, and what a store gives back."""

from pathlib import Path

import numpy as np
import pytest

from seqloom.core.errors import DataError
from seqloom.core.symbols import BEGIN, END, UNKNOWN
from seqloom.data.tokens import (
    MAX_LETTERS,
    TokenCorpus,
    TokenStore,
    encode_tagged,
    hold_out,
    is_filled,
    tags_in,
    values_of,
)
from seqloom.text.tokenizer import TextConfig, Tokenizer, Tokenizers, WordPieces
from seqloom.text.tokenizer_training import train_tokenizer
from seqloom.text.vocabulary import Vocabulary, count_tokens
from tagged_text import sentences, write_conllu, write_spans


def tokenizers_of(corpus: TokenCorpus) -> Tokenizers:
    text = TextConfig(kind="word", segmentation="spaces")
    words = Vocabulary.from_counts(count_tokens(each.forms for each in corpus))
    letters = train_tokenizer({form for each in corpus for form in each.forms}, TextConfig(kind="char"))
    return Tokenizers(letters, Tokenizer(text, WordPieces(words, segmentation="spaces")))


def test_a_corpus_has_the_words_of_its_files_and_neither_ranges_nor_empty_nodes(tmp_path: Path) -> None:
    files = [write_conllu(tmp_path / f"{seed}.conllu", count=5, seed=seed) for seed in (1, 2)]
    corpus = TokenCorpus(files)
    expected = [*sentences(5, seed=1), *sentences(5, seed=2)]
    assert [list(each.forms) for each in corpus] == [[word for word, *_ in each] for each in expected]
    assert [list(each.values["lemma"]) for each in corpus] == [[lemma for _, lemma, *_ in each] for each in expected]
    path, line = corpus.place(corpus.sentences[5].number)
    assert (path, line) == (files[1], 3)  # after a comment and a range
    assert not is_filled(corpus.sentences, "xpos")


def test_a_store_gives_back_words_letters_and_tags(tmp_path: Path) -> None:
    corpus = TokenCorpus([write_conllu(tmp_path / "a.conllu", count=40)])
    tags = {column: tags_in(corpus.sentences, column).tags for column in ("upos", "feats", "lemma")}
    tokenizers = tokenizers_of(TokenCorpus([write_conllu(tmp_path / "few.conllu", count=20)]))
    report = encode_tagged(corpus.sentences, tmp_path / "store", tokenizers=tokenizers, tags=tags)
    sizes = [len(each) for each in tags.values()]
    store = TokenStore.open(tmp_path / "store", tags=sizes, letters=tokenizers.source.size, verify=True)
    picked = np.array([7, 3, 39])
    places, lengths = store.places(picked)
    words, letters, unknown = tokenizers.target, tokenizers.source, 0
    for row, (index, length) in enumerate(zip(picked.tolist(), lengths.tolist(), strict=True)):
        sentence = corpus.sentences[index]
        assert (places[row, length:] == -1).all()
        spelled = store.spelled(store.forms[places[row, :length]])
        for at, form in enumerate(sentence.forms):
            known = words.id_of(form)
            assert spelled.words[at] == (UNKNOWN if known is None else known)
            assert spelled.letters[at, : spelled.lengths[at]].tolist() == [BEGIN, *letters.encode(form), END]
            unknown += known is None
        for place, column in enumerate(tags):
            numbers = store.tags[places[row, :length], place].tolist()
            known_tags = [tag if tag in tags[column] else None for tag in values_of(sentence, column)]
            assert [None if number < 0 else tags[column][number] for number in numbers] == known_tags
    assert unknown > 0
    assert report.unknown == (store.word_ids[store.forms] == UNKNOWN).sum()
    assert store.word_counts(words.size).sum() == report.words == corpus.words


def test_tags_that_the_training_text_has_not_are_counted(tmp_path: Path) -> None:
    corpus = TokenCorpus([write_conllu(tmp_path / "a.conllu", count=10)])
    report = encode_tagged(
        corpus.sentences, tmp_path / "store", tokenizers=tokenizers_of(corpus), tags={"upos": ("DET", "NOUN", "VERB")}
    )
    assert report.untagged["upos"] == {"PUNCT": 10}


def test_a_long_word_is_read_at_both_ends(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(f"a{'b' * 100}c X\nb Y\n\nc X\n")
    corpus = TokenCorpus([tmp_path / "a.txt"])
    tokenizers = tokenizers_of(corpus)
    encode_tagged(corpus.sentences, tmp_path / "store", tokenizers=tokenizers, tags={"2": ("X", "Y")})
    store = TokenStore.open(tmp_path / "store", tags=[2], letters=tokenizers.source.size)
    spelled = store.spelled(np.array([0]))
    letters = [tokenizers.source.piece(int(each)) for each in spelled.letters[0, 1:-1]]
    assert "".join(letters) == "a" + "b" * (MAX_LETTERS - 2) + "c"


def test_spans_are_recognised_and_rare_scripts_left_out(tmp_path: Path) -> None:
    spans = TokenCorpus([write_spans(tmp_path / "a.txt", count=10)])
    assert tags_in(spans.sentences, "2").scheme == "bio"
    (tmp_path / "a.conllu").write_text(
        "".join(
            f"1\t{form}\t{lemma}\tX\t_\t_\t_\t_\t_\t_\n\n"
            for form, lemma in (("dogs", "dog"), ("cats", "cat"), ("went", "go"))
        )
    )
    found = tags_in(TokenCorpus([tmp_path / "a.conllu"]).sentences, "lemma")
    assert (found.tags, found.rare) == (("||-",), 1)


def test_held_out_sentences_are_not_trained_on(tmp_path: Path) -> None:
    corpus = TokenCorpus([write_conllu(tmp_path / "a.conllu", count=30)])
    rest, held = hold_out(corpus, 7, seed=5)
    assert len(held) == 7
    assert sorted(each.number for each in (*rest, *held)) == [each.number for each in corpus]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1\ta\ta\tX\t_\t_\t_\t_\t_\n", "a.conllu:1: 9 columns, but CoNLL-U has 10"),
        ("# only a comment\n", "a.conllu: no words"),
        ("", "a.conllu: no words"),
    ],
)
def test_bad_files_are_named(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "a.conllu").write_text(text)
    with pytest.raises(DataError, match=message):
        TokenCorpus([tmp_path / "a.conllu"])


def test_other_columns_than_those_of_the_training_text_are_refused(tmp_path: Path) -> None:
    train = TokenCorpus([write_conllu(tmp_path / "a.conllu", count=3)])
    with pytest.raises(DataError, match=r"b\.txt:1: 2 columns, but the training text has the columns of CoNLL-U"):
        TokenCorpus([write_spans(tmp_path / "b.txt", count=3)], layout=train.layout)


def test_a_damaged_store_is_refused(tmp_path: Path) -> None:
    corpus = TokenCorpus([write_conllu(tmp_path / "a.conllu", count=3)])
    tokenizers, tags = tokenizers_of(corpus), {"upos": tags_in(corpus.sentences, "upos").tags}
    encode_tagged(corpus.sentences, tmp_path / "store", tokenizers=tokenizers, tags=tags)
    with pytest.raises(DataError, match="a tag is not among"):
        TokenStore.open(tmp_path / "store", tags=[2], letters=tokenizers.source.size)
    data = bytearray((tmp_path / "store" / "tags").read_bytes())
    data[0] ^= 1
    (tmp_path / "store" / "tags").write_bytes(data)
    with pytest.raises(DataError, match="not a complete store of tagged sentences"):
        TokenStore.open(tmp_path / "store", tags=[len(tags["upos"])], letters=tokenizers.source.size, verify=True)
