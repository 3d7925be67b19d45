"""What a translator searches and scores with: neural networks, step by step, or a fitted model in its own way."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Protocol, cast

import numpy as np
import torch
from torch import nn

from seqloom.apps.lexicon import load_lexicon, offered_symbols, shortlist_of
from seqloom.apps.request import ConstraintSet, Request, constraint_of, required_symbols
from seqloom.classical.lexicon import Lexicon
from seqloom.core.errors import UsageError
from seqloom.core.stepping import Stepper
from seqloom.core.symbols import END
from seqloom.data.batches import PairBatch
from seqloom.models.protocols import TakesShortlist, TranslationModel
from seqloom.models.transformer import TransformerConfig
from seqloom.nn.fast.int8 import with_int8
from seqloom.nn.fast.shortlist import Shortlister
from seqloom.nn.packing import pack, packing_of
from seqloom.runs.config import RunConfig
from seqloom.runs.loading import Loaded, LoadedModel
from seqloom.runs.translator import (
    AttentionReader,
    FittedSearch,
    Part,
    PartSearch,
    batches_by_length,
    model_stepper,
    padded,
    sentences_at_once,
    source_batch,
    source_sentence,
)
from seqloom.search.constraints import Constraint
from seqloom.search.decode import constraints_for
from seqloom.search.driver import Cancellation
from seqloom.search.ensemble import Ensemble, Fusion
from seqloom.search.greedy import forced_search
from seqloom.search.hypothesis import Hypothesis
from seqloom.search.settings import SearchConfig
from seqloom.smt.pairs import FittedTranslator

MAX_SCORED_TOKENS = 5_000
"""Tokens on a side, END included, above which a pair is not scored."""


class Backend(Protocol):
    """Searches for translations of parts of lines, and scores given ones."""

    is_several: bool
    """Whether several models decide together."""

    @property
    def can_attend(self) -> bool:
        """False if nothing of it has attention to the source."""
        ...

    @property
    def max_tokens(self) -> tuple[int, int]:
        """Tokens of the longest source and target that can be scored, each END counted."""
        ...

    def require(self, request: Request, settings: SearchConfig) -> None:
        """Refuse what it cannot do, before anything is searched."""
        ...

    def search(
        self,
        parts: Sequence[Part],
        settings: SearchConfig,
        constraints: Sequence[ConstraintSet | None],
        *,
        on_batch: Callable[[Sequence[int]], None],
        cancellation: Cancellation | None,
    ) -> list[list[Hypothesis]]:
        """The hypotheses of each part, best first; see `PartSearch`."""
        ...

    def attention_reader(self, settings: SearchConfig) -> AttentionReader | None:
        """What adds attention to what a search has found; None if the search gives it."""
        ...

    def scores(self, parts: Sequence[Part], targets: Sequence[list[int]], *, tokens_per_batch: int) -> list[float]:
        """log P of each target (ids without END) given its part, or the score of a model without probabilities."""
        ...


@dataclass(frozen=True)
class FusedLanguageModel:
    """A language model of the target vocabulary, and its weight λ in log P_model + λ log P_lm."""

    stepper: Stepper
    weight: float


class Steppers:
    """Makes the stepper of a search, of one model or of several that decide together, in the precision requested.

    All use the lexicon of the first: they share its vocabulary.
    """

    def __init__(self, loaded: Sequence[LoadedModel], *, fused: FusedLanguageModel | None = None) -> None:
        self._loaded = loaded
        self._fused = fused
        self._made: dict[tuple[int, bool, str], Stepper] = {}
        self.is_several = len(loaded) > 1 or fused is not None

    def stepper(self, settings: SearchConfig, *, attention: bool, required: Sequence[Collection[int]]) -> Stepper:
        """For the next batch; `required` are symbols that must be in the shortlists of its sentences."""
        models = self._int8_models if settings.precision == "int8" else [each.model for each in self._loaded]
        shortlist = None
        if settings.shortlist:
            lists = shortlist_of(self._lexicon, settings.shortlist)
            shortlist = partial(offered_symbols, lists, required=required)
        heads = settings.heads
        steppers = [self._stepper_of(model, attention=attention, heads=heads, shortlist=shortlist) for model in models]
        stepper = steppers[0] if len(steppers) == 1 else Ensemble(steppers)
        return stepper if self._fused is None else Fusion(stepper, self._fused.stepper, weight=self._fused.weight)

    def _stepper_of(self, model: nn.Module, *, attention: bool, heads: str, shortlist: Shortlister | None) -> Stepper:
        """That of one model, made once: weights are packed for it, which takes as long as a line."""
        key = (id(model), attention, heads)
        if key not in self._made:
            self._made[key] = model_stepper(model, attention=attention, heads=heads)
        made = self._made[key]
        if shortlist is None:
            return made
        if isinstance(made, TakesShortlist):
            return made.with_shortlist(shortlist)
        return model_stepper(model, attention=attention, heads=heads, shortlist=shortlist)

    def attention_reader(self, settings: SearchConfig) -> AttentionReader:
        """Adds attention to what a search has found."""
        return AttentionReader([each.model for each in self._loaded], self._loaded[0].device, settings)

    @property
    def can_attend(self) -> bool:
        """False if all models declare that they have no attention."""
        return any(each.config.model.has_attention is not False for each in self._loaded)

    @cached_property
    def _int8_models(self) -> list[nn.Module]:
        return [with_int8(each.model) for each in self._loaded]

    @cached_property
    def _lexicon(self) -> Lexicon:
        return load_lexicon(self._loaded[0].folder, self._loaded[0].tokenizers)


class NetworkBackend:
    """Neural networks, one or several that decide together."""

    def __init__(self, loaded: Sequence[LoadedModel], *, fused: FusedLanguageModel | None = None) -> None:
        self._loaded = loaded[0]
        self.steppers = Steppers(loaded, fused=fused)
        self.is_several = self.steppers.is_several

    @property
    def can_attend(self) -> bool:
        return self.steppers.can_attend

    @property
    def max_tokens(self) -> tuple[int, int]:
        settings = self._loaded.config.model
        if not isinstance(settings, TransformerConfig) or not settings.is_bounded:
            return MAX_SCORED_TOKENS, MAX_SCORED_TOKENS
        frame = settings.frame.symbols()
        around = len(frame.source_before) + len(frame.source_after), len(frame.target_before) - 1
        source, target = (min(MAX_SCORED_TOKENS, max(1, settings.longest - count)) for count in around)
        return source, target

    def require(self, request: Request, settings: SearchConfig) -> None:
        """Nothing: what a search cannot do is found when it is made."""

    def search(
        self,
        parts: Sequence[Part],
        settings: SearchConfig,
        constraints: Sequence[ConstraintSet | None],
        *,
        on_batch: Callable[[Sequence[int]], None],
        cancellation: Cancellation | None,
    ) -> list[list[Hypothesis]]:
        search = self.part_search(settings, constraints)
        bound: list[Constraint | None] = []
        for part, given in zip(parts, constraints, strict=True):
            try:  # one that cannot be met is reported with its line, before anything is searched
                bound.append(constraint_of(given, self._loaded.tokenizers.target))
                if given:
                    source = source_batch([part.ids], self._loaded.device)
                    constraints_for(source, settings, bound[-1:], end=END, show=search.show)
            except UsageError as error:
                raise UsageError(f"line {part.number}: {error}") from error
        return search(parts, constraints=bound, on_batch=on_batch, cancellation=cancellation)

    def part_search(self, settings: SearchConfig, constraints: Sequence[ConstraintSet | None]) -> PartSearch:
        """The search of parts that have these constraints."""
        target = self._loaded.tokenizers.target

        def stepper(places: Sequence[int]) -> Stepper:
            required = [required_symbols(constraints[at], target) for at in places]
            return self.steppers.stepper(settings, attention=settings.coverage > 0, required=required)

        at_once = sentences_at_once(self._loaded, settings)
        return PartSearch(target, self._loaded.device, settings, at_once, stepper)

    def attention_reader(self, settings: SearchConfig) -> AttentionReader:
        return self.steppers.attention_reader(settings)

    def scores(self, parts: Sequence[Part], targets: Sequence[list[int]], *, tokens_per_batch: int) -> list[float]:
        found = [0.0] * len(parts)
        lengths = [max(len(part.ids), len(ids) + 1) for part, ids in zip(parts, targets, strict=True)]
        for batch in batches_by_length(lengths, tokens_per_batch):
            values = self._log_probs([parts[at].ids for at in batch], [[*targets[at], END] for at in batch])
            for at, value in zip(batch, values, strict=True):
                found[at] = value
        return found

    @torch.inference_mode()
    def _log_probs(self, sources: Sequence[list[int]], targets: Sequence[list[int]]) -> list[float]:
        """log P of each target: by one pass of a model, step by step where several decide together."""
        source = source_batch(sources, self._loaded.device)
        if self.steppers.is_several:
            settings = SearchConfig()
            stepper = self.steppers.stepper(settings, attention=False, required=[])
            given = [ids[:-1] for ids in targets]  # it adds the end itself
            return [found.log_prob for found in forced_search(stepper, source, given, settings=settings)]
        model = cast("TranslationModel", self._loaded.model)
        ids, lengths = padded(targets)
        pairs = PairBatch(source, torch.from_numpy(ids), torch.from_numpy(lengths), np.zeros(len(ids), np.int64))
        batch = pairs.to(self._loaded.device)
        features = model(batch.source, batch.previous, batch.target_lengths)  # [tokens, width]
        packing = packing_of(batch.target_lengths, batch.target.shape[1])
        labels = pack(batch.target, packing)  # [tokens]
        chosen = model.output.log_probs(features).gather(1, labels[:, None]).squeeze(1).double()  # [tokens]
        sums = chosen.new_zeros(packing.batch).index_add_(0, packing.flat // packing.longest, chosen)  # [batch]
        return [float(value) for value in sums.tolist()]


class FittedBackend:
    """A model that was fitted to sentence pairs, which has a search of its own."""

    is_several = False
    can_attend = True
    max_tokens = MAX_SCORED_TOKENS, MAX_SCORED_TOKENS

    def __init__(self, loaded: Loaded) -> None:
        self._kind, self._tokenizers = loaded.config.model.kind, loaded.tokenizers
        self._model: FittedTranslator = loaded.model

    def require(self, request: Request, settings: SearchConfig) -> None:
        if problem := settings.problem_of_fitted(self._kind):
            raise UsageError(problem)
        given = request.constraints
        if request.glossary is not None or (any(given) if isinstance(given, Sequence) else given):
            raise UsageError(
                f"constraints and glossaries are not supported by a model of kind {self._kind}, which has a search of "
                "its own; leave them out, or use a model that is trained in steps, such as model.kind=transformer"
            )

    def search(
        self,
        parts: Sequence[Part],
        settings: SearchConfig,
        _constraints: Sequence[ConstraintSet | None],
        *,
        on_batch: Callable[[Sequence[int]], None],
        cancellation: Cancellation | None,
    ) -> list[list[Hypothesis]]:
        return FittedSearch(self._model, self._tokenizers, settings)(
            parts, on_batch=on_batch, cancellation=cancellation
        )

    def attention_reader(self, _settings: SearchConfig) -> None:
        return None

    def scores(self, parts: Sequence[Part], targets: Sequence[list[int]], *, tokens_per_batch: int) -> list[float]:  # noqa: ARG002
        return self._model.score([source_sentence(self._tokenizers.source, part.text) for part in parts], targets)


def backend_for(loaded: Loaded, companions: Sequence[Loaded], fused: FusedLanguageModel | None) -> Backend:
    """What a translator of these models searches with; only networks can decide together."""
    models = [each for each in (loaded, *companions) if isinstance(each, LoadedModel)]
    if len(models) == 1 + len(companions):
        return NetworkBackend(models, fused=fused)
    for each in (loaded, *companions):
        if not isinstance(each, LoadedModel) and (companions or fused is not None):
            raise UsageError(why_alone(each.folder, each.config))
    return FittedBackend(loaded)


def why_alone(folder: Path, config: RunConfig) -> str:
    """Why a fitted model cannot decide together with others."""
    return (
        f"{folder} cannot be combined with other models: one of kind {config.model.kind} has a search of its own; "
        "leave out --with and --fuse"
    )
