"""Phrases from two texts without a parallel line: better than the words of the dictionary, one line for each line."""

from seqloom.core.events import Event
from seqloom.data.cipher import cipher_of, cipher_word
from seqloom.data.phrasebook import sample_sentences
from seqloom.metrics.scoring import score
from seqloom.metrics.translation import Bleu
from seqloom.runs.config import DataConfig, RunConfig
from seqloom.runs.phrase_start import translate_both
from seqloom.runs.two_texts import Substitution
from seqloom.smt.dictionary import Dictionary, DictionaryEntry
from seqloom.text.marks import split_words


def test_phrases_choose_and_order_words_better_than_the_dictionary() -> None:
    """Every second word of the dictionary has a wrong translation that is as likely as the right one."""
    lines = sample_sentences("en", count=1600, seed=1)
    hidden, shown = lines[:800], lines[800:]
    words = sorted({word.lower() for line in lines for word in split_words(line) if any(map(str.isalpha, word))})
    entries = [DictionaryEntry(cipher_word(word, 7), word, "", 0.5) for word in words]
    entries += [
        DictionaryEntry(cipher_word(word, 7), other, "", 0.5)
        for word, other in zip(words[::2], words[1::2], strict=False)
    ]
    ways = Substitution.both_ways(Dictionary(tuple(entries)))
    sources, events = [*cipher_of(hidden, 7), ""], list[Event]()
    config = RunConfig(data=DataConfig(source="xx", target="en"))

    there, back = translate_both((sources, shown), ways, config, rounds=1, listener=events.append)

    assert (len(there), len(back), there[-1]) == (801, 800, "")
    by_words = [ways[0](line) for line in sources[:-1]]
    before, after = (score(Bleu(), each, references=hidden).value for each in (by_words, there[:-1]))
    assert after > 1.4 * before
    assert score(Bleu(), back, references=cipher_of(shown, 7)).value > 1.4 * before
    assert [event["what"] for event in events if event.kind == "phase"][1:3] == [
        "phrases from two texts: xx → en, round 1 of 1",
        "phrases from two texts: en → xx, round 1 of 1",
    ]
