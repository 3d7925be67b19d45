"""The models of a translator as a search sees them: in which precision, with which shortlists, so many at a time."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import cast

from torch import nn

from seqloom.classical.lexicon import Lexicon
from seqloom.core.errors import UsageError
from seqloom.core.stepping import Stepper
from seqloom.models.seq2seq import Seq2Seq
from seqloom.models.transformer import Transformer
from seqloom.nn.int8 import with_int8
from seqloom.nn.shortlist import Shortlister
from seqloom.recipes.lexicon import load_lexicon, offered_symbols, shortlist_of
from seqloom.recipes.load import LoadedModel, require_translator
from seqloom.search.ensemble import Ensemble, Fusion
from seqloom.search.settings import SearchConfig
from seqloom.tasks.translation import TranslationModel

SCORES = 12 << 20
"""Bytes that the scores of one step may take: what fits into a cache is read again at once, and from 32 MiB on, the C
library asks the system for new memory each time and gives it back, which takes longer than filling it."""

LISTED = 32 << 20
"""Bytes that the rows of the output that belong to the shortlists of a batch may take: more would not stay in a cache
from one step to the next."""

LIST = 10
"""Symbols in the shortlist of a sentence, roughly, for each translation of a source symbol that is asked for."""


@dataclass(frozen=True)
class FusedLanguageModel:
    """A language model of the target vocabulary, and its weight λ in log P_model + λ log P_lm."""

    stepper: Stepper
    weight: float


class Steppers:
    """Makes what a search steps through, of one model or of several that decide together.

    All take the lexicon of the first: they share its vocabulary.
    """

    def __init__(self, loaded: Sequence[LoadedModel], *, fused: FusedLanguageModel | None = None) -> None:
        for each in loaded:
            require_translator(each.folder, each.config)
        self._loaded = loaded
        self._fused = fused
        self.is_several = len(loaded) > 1 or fused is not None

    def stepper(self, settings: SearchConfig, *, attention: bool, needed: Sequence[Collection[int]]) -> Stepper:
        """For the next batch; `needed` are symbols that must be in the shortlists of its sentences."""
        models = self._int8_models if settings.precision == "int8" else [each.model for each in self._loaded]
        shortlist = None
        if settings.shortlist:
            lists = shortlist_of(self._lexicon, settings.shortlist)
            shortlist = partial(offered_symbols, lists, needed=needed)
        heads = settings.heads
        steppers = [_stepper(model, attention=attention, heads=heads, shortlist=shortlist) for model in models]
        stepper = steppers[0] if len(steppers) == 1 else Ensemble(steppers)
        return stepper if self._fused is None else Fusion(stepper, self._fused.stepper, weight=self._fused.weight)

    def sentences_at_once(self, settings: SearchConfig) -> int:
        """The most sentences whose scores are cheap to hold, whatever their lengths."""
        symbols = self._loaded[0].tokenizers.target.size
        if settings.shortlist:
            width = cast("TranslationModel", self._loaded[0].model).output.weight.shape[1]
            return max(1, LISTED // (4 * width * min(symbols, LIST * settings.shortlist)))
        rows = settings.beam if settings.method == "beam" else settings.nbest
        return max(1, SCORES // (4 * symbols * rows))

    @cached_property
    def _int8_models(self) -> list[nn.Module]:
        return [with_int8(each.model) for each in self._loaded]

    @cached_property
    def _lexicon(self) -> Lexicon:
        return load_lexicon(self._loaded[0].folder, self._loaded[0].tokenizers)


def _stepper(model: nn.Module, *, attention: bool, heads: str, shortlist: Shortlister | None) -> Stepper:
    if isinstance(model, Transformer):
        return model.stepper(attention=attention, heads=heads, shortlist=shortlist)
    if heads not in ("mean", "max"):
        raise UsageError(f"a {type(model).__name__} has one look, so search.heads={heads} names none; leave it out")
    if isinstance(model, Seq2Seq):
        return model.stepper(attention=attention, shortlist=shortlist)
    if shortlist is not None:
        raise UsageError(f"a {type(model).__name__} scores all its symbols; set search.shortlist=0")
    return cast("TranslationModel", model).stepper(attention=attention)
