"""Learning subwords from counted chunks of text: the same pieces from the same text, on every machine.

Chunks are learned from in sorted order and with fixed tie-breaking, so that neither the order of the lines nor the
number of threads nor the hash seed of Python changes a piece.
"""

import io
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import sentencepiece
from tokenizers import Tokenizer as FastTokenizer
from tokenizers import models, pre_tokenizers, trainers

from seqloom.core.errors import DataError
from seqloom.core.symbols import BEGIN, END, PAD, RESERVED, UNKNOWN
from seqloom.text.marks import BYTE_PIECES, SPACE, UNSPACED, mark_spaces, split_chunks
from seqloom.text.tokenizer import BytePairs, Unigram, pre_tokenizer

COVERAGE = 0.9995
"""Characters may fill more than half of a subword vocabulary only as far as this share of the text needs them."""

_MAX_CHUNK_CHARACTERS = 1000
"""Characters after which a chunk is cut for learning: pieces are far shorter, and the learners far from linear."""

_REPEATED = 500
"""Occurrences of a part that are handed to the learner at a time; it holds some hundreds of such texts, taken apart."""

_LONGEST_HAN = 4
"""Chinese characters in a piece: nearly all words have one or two, idioms four."""

_LONGEST_UNSPACED = 12
"""Characters in a piece of the other scripts without spaces: Thai, Lao, Khmer, Burmese, Japanese syllables."""

_has_unspaced = re.compile(f"[{UNSPACED}]").search
_han = re.compile("[\u3005-\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]").findall


def count_chunks(texts: Iterable[str]) -> Counter[str]:
    """How often each chunk occurs in normalised texts."""
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(split_chunks(mark_spaces(text)))
    return counts


def count_characters(chunks: Mapping[str, int]) -> Counter[str]:
    """How often each character occurs in counted chunks."""
    counts: Counter[str] = Counter()
    for chunk, count in chunks.items():
        for character in chunk:
            counts[character] += count
    return counts


@dataclass(frozen=True)
class Alphabet:
    """The characters that become pieces, and what is lost with the others."""

    kept: frozenset[str]
    lost: int
    """How many different characters are left out."""
    lost_rate: float
    """Which share of the text they make up."""


def choose_alphabet(characters: Mapping[str, int], *, room: int, minimum_count: int) -> Alphabet:
    """Keep all frequent enough characters while they fill at most half of the room, else the most frequent ones.

    More than half of the room is used only to cover `COVERAGE` of the text. ▁ is always kept.
    """
    total = sum(characters.values())
    ordered = sorted((-count, character) for character, count in characters.items() if character != SPACE)
    kept, covered = [SPACE], characters.get(SPACE, 0)
    for count, character in ordered:
        is_wanted = len(kept) < room // 2 or covered < COVERAGE * total
        if -count < minimum_count or len(kept) >= room or not is_wanted:
            break
        kept.append(character)
        covered -= count
    lost = len(characters.keys() - set(kept))
    return Alphabet(frozenset(kept), lost, 1 - covered / total if lost else 0.0)


def _known_parts(chunks: Mapping[str, int], alphabet: Alphabet) -> Iterator[tuple[str, int]]:
    """Chunks in sorted order, cut at characters that are left out and where they are too long."""
    parts: Counter[str] = Counter()
    for chunk, count in chunks.items():
        known = chunk
        if not alphabet.kept.issuperset(chunk):
            known = "".join(character if character in alphabet.kept else " " for character in chunk)
        for part in known.split():
            for start in range(0, len(part), _MAX_CHUNK_CHARACTERS):
                parts[part[start : start + _MAX_CHUNK_CHARACTERS]] += count
    yield from sorted(parts.items())


def learn_byte_pairs(
    chunks: Mapping[str, int], alphabet: Alphabet, *, size: int, has_bytes: bool, minimum_count: int
) -> BytePairs:
    """Join the most frequent pair of pieces again and again, until there are `size` pieces or no pair occurs twice."""
    leading = [*RESERVED, *(BYTE_PIECES if has_bytes else ())]
    room = size - len(leading)
    learner = FastTokenizer(models.BPE())
    learner.pre_tokenizer = pre_tokenizers.Split("\n", behavior="removed")
    trainer = trainers.BpeTrainer(
        # Where phrases may come up, twice as many are learned, so that enough are left without them.
        vocab_size=2 * room if _has_unspaced("".join(alphabet.kept)) else room,
        # A pair that was seen once says nothing about the next text.
        min_frequency=max(2, minimum_count),
        initial_alphabet=sorted(alphabet.kept),
        special_tokens=[],
        show_progress=False,
    )
    learner.train_from_iterator(_repeated(_unjoinable(_known_parts(chunks, alphabet))), trainer)
    pieces = dict.fromkeys(sorted(alphabet.kept))
    merges = []
    for left, right in json.loads(learner.to_str())["model"]["merges"]:
        if len(pieces) == room:
            break
        if not is_phrase(left + right):
            pieces[left + right] = None
            merges.append((left, right))
    return BytePairs.from_merges([*leading, *pieces], merges)


def _unjoinable(chunks: Iterable[tuple[str, int]]) -> Counter[str]:
    """Parts of chunks inside which pairs may be joined, with their counts."""
    split = pre_tokenizer().pre_tokenize_str
    counts: Counter[str] = Counter()
    for chunk, count in chunks:
        for part, _ in split(chunk):
            counts[part] += count
    return counts


def _repeated(counts: Mapping[str, int]) -> Iterator[str]:
    """Each part as often as it occurs, parted by line ends: the learner takes texts, not counts, and counts again."""
    for part in sorted(counts):
        for begin in range(0, counts[part], _REPEATED):
            yield f"{part}\n" * min(_REPEATED, counts[part] - begin)


def is_phrase(piece: str) -> bool:
    """Whether a piece of a script without spaces is longer than words are there.

    Nothing else keeps byte pairs from joining whole clauses, of which no other sentence can be made.
    """
    return len(piece) > _LONGEST_HAN and (
        len(_han(piece)) > _LONGEST_HAN or (len(piece) > _LONGEST_UNSPACED and _has_unspaced(piece) is not None)
    )


def learn_unigram(chunks: Mapping[str, int], alphabet: Alphabet, *, size: int, has_bytes: bool) -> Unigram:
    """Learn the unigram language model with sentencepiece, on one thread: with more, sums differ in their last bits."""
    content = io.BytesIO()
    rows = [f"{chunk}\t{count}" for chunk, count in _known_parts(chunks, alphabet)]
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(rows),
            input_format="tsv",
            model_writer=content,
            model_type="unigram",
            vocab_size=size,
            hard_vocab_limit=False,
            num_threads=1,
            max_sentence_length=4 * _MAX_CHUNK_CHARACTERS,
            character_coverage=1.0,
            required_chars="".join(sorted(alphabet.kept)),
            byte_fallback=has_bytes,
            split_digits=True,
            # The text comes normalised and marked: sentencepiece must not change it.
            normalization_rule_name="identity",
            add_dummy_prefix=False,
            remove_extra_whitespaces=False,
            pad_id=PAD,
            bos_id=BEGIN,
            eos_id=END,
            unk_id=UNKNOWN,
            pad_piece=RESERVED[PAD],
            bos_piece=RESERVED[BEGIN],
            eos_piece=RESERVED[END],
            unk_piece=RESERVED[UNKNOWN],
            minloglevel=2,
        )
    except RuntimeError as error:
        counted = f"{len(rows)} different words of {len(alphabet.kept)} different characters"
        raise DataError(f"too little text to learn {size} unigram pieces from: {counted}; set text.kind=bpe") from error
    return Unigram(content.getvalue())
