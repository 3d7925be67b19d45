"""Symbols around texts: where those of the chosen languages are."""

import pytest

from seqloom.core.errors import UsageError
from seqloom.core.symbols import END, PAD
from seqloom.models.frames import FrameConfig


def test_an_instruction_is_that_of_the_chosen_languages() -> None:
    frame = FrameConfig(target_before=(PAD,), scheme="instructions", instructions={"en-de": (9, 8), "en-fr": (9, 7)})
    chosen = frame.model_copy(update={"source": "en", "target": "fr"}).symbols()
    assert (chosen.source_before, chosen.target_before) == ((9, 7), (PAD,))
    assert frame.symbols().source_before == ()  # the text brings its own
    for update, given in (({"source": "de", "target": "en"}, "--from de --to en"), ({"target": "de"}, "--to de")):
        with pytest.raises(UsageError, match=rf"^{given}: this model knows instructions for en-de, en-fr"):
            frame.model_copy(update=update).symbols()


def test_languages_are_before_both_texts_after_the_source_or_named_in_it() -> None:
    languages = {"en": 4, "de": 5}
    frame = FrameConfig(target_before=(END,), scheme="before", languages=languages, source="en", target="de")
    expected = {"before": ((4,), (), (END, 5)), "after": ((), (4,), (END, 5)), "named_in_source": ((5,), (), (END,))}
    for scheme, symbols in expected.items():
        found = frame.model_copy(update={"scheme": scheme}).symbols()
        assert (found.source_before, found.source_after, found.target_before) == symbols
    with pytest.raises(UsageError, match=r"--to dee: this model does not know the language 'dee'; nearest: de"):
        frame.model_copy(update={"target": "dee"}).symbols()
