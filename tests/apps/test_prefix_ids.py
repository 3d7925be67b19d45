"""A beginning that is given by ids, as the workbench forces it."""

from pathlib import Path

import pytest

from look.test_gradients import loaded_model
from seqloom import Translator
from seqloom.apps.request import ConstraintSet
from seqloom.core.errors import UsageError
from seqloom.core.symbols import BEGIN, END


def test_a_prefix_by_ids_is_kept_and_may_be_the_whole(tmp_path: Path) -> None:
    translator = Translator(loaded_model("transformer", tmp_path / "model"))
    symbols = [translator.tokenizers.target.encode(word)[0] for word in ("C", "A", "C")]
    (found,) = translator.search(["a b c"], constraints=ConstraintSet(prefix_ids=tuple(symbols)))[0]
    assert list(found.hypotheses[0].symbols[:3]) == symbols
    as_text = translator.search(["a b c"], constraints=ConstraintSet(prefix="C A C"))[0][0]
    assert (found.text, found.score) == (as_text.text, as_text.score)
    watched = translator.watch("a b c", constraints=ConstraintSet(prefix_ids=tuple(symbols)))
    assert watched.translations[0].text == found.text
    (whole,) = translator.search(["a b c"], constraints=ConstraintSet(prefix_ids=(*symbols, END)))[0]
    assert list(whole.hypotheses[0].symbols) == symbols
    assert whole.hypotheses[0].is_finished
    (empty,) = translator.search(["a b c"], constraints=ConstraintSet(prefix_ids=(END,)))[0]
    assert empty.hypotheses[0].symbols == ()


def test_ids_that_are_not_pieces_are_refused(tmp_path: Path) -> None:
    translator = Translator(loaded_model("transformer", tmp_path / "model"))
    for wrong in ((BEGIN,), (END, 5), (10**6,), (-1,)):
        with pytest.raises(UsageError, match="cannot be part of prefix_ids"):
            translator.search(["a b c"], constraints=ConstraintSet(prefix_ids=wrong))
    with pytest.raises(UsageError, match="two ways to give one beginning"):
        ConstraintSet(prefix="A", prefix_ids=(5,))
