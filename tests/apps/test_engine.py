"""What stands around an engine: lines to ids, ids to lines, and a clear no to what it does not know."""

from collections.abc import Sequence

import pytest

from seqloom.apps.engine import EngineTranslator
from seqloom.apps.request import ConstraintSet, Request
from seqloom.core.errors import UsageError
from seqloom.core.symbols import END
from seqloom.interop.ctranslate2_engine import Found
from seqloom.search.settings import SearchConfig
from seqloom.text.glossary import Glossary
from seqloom.text.tokenizer import TextConfig, Tokenizers
from seqloom.text.tokenizer_training import train_tokenizer


class Echo:
    """An engine that says what it hears, after its prefix."""

    def __init__(self) -> None:
        tokenizer = train_tokenizer(["a b c d e f . x y"], TextConfig(kind="word", size=30))
        self.tokenizers = Tokenizers(tokenizer, tokenizer)

    def translate_ids(
        self,
        sources: Sequence[Sequence[int]],
        settings: SearchConfig,
        *,
        prefixes: Sequence[Sequence[int]] | None = None,
    ) -> list[list[Found]]:
        assert all(ids[-1] == END for ids in sources)
        begun = prefixes or [[] for _ in sources]
        return [
            [Found((*prefix, *ids[:-1]), -1.0 - rank, True) for rank in range(settings.nbest)]
            for ids, prefix in zip(sources, begun, strict=True)
        ]


@pytest.fixture(scope="module")
def translator() -> EngineTranslator:
    return EngineTranslator(Echo(), search=SearchConfig(nbest=2), longest=4)


def test_lines_come_back_in_order_blank_ones_blank_and_long_ones_whole(translator: EngineTranslator) -> None:
    lines = ["a b", "", "a b c d e f", "c"]
    found = translator.run(lines, Request())
    assert [some[0].text for some in found] == lines
    assert [len(some) for some in found] == [2, 1, 1, 2]
    assert found[2][0].score == -2.0
    assert found[1][0].score is None


def test_prefixes_are_passed_on_and_other_constraints_are_refused(translator: EngineTranslator) -> None:
    assert translator.run(["a b"], Request(constraints=[ConstraintSet(prefix="x y")]))[0][0].text == "x y a b"
    with pytest.raises(UsageError, match="forced and forbidden words and stops are not supported"):
        translator.run(["a"], Request(constraints=ConstraintSet(forbidden=("b",))))
    with pytest.raises(UsageError, match="glossaries, dictionaries, tags and alignments are not supported"):
        translator.run(["a"], Request(glossary=Glossary((("a", "b"),))))
