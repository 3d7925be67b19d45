"""Fitting as a line of work: models with a loop of their own, such as n-grams and word vectors."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any

from seqloom.core.errors import UsageError
from seqloom.core.events import Event, Listener, notice
from seqloom.core.seeds import seed_for
from seqloom.metrics.translation import Score
from seqloom.runs import plain_text
from seqloom.runs.config import FitsText, FittedModel, RunConfig
from seqloom.runs.loading import LoadedFitted
from seqloom.runs.model_dir import Card, save_fitted
from seqloom.runs.pipeline import Choice
from seqloom.runs.plain_text import OfPlainText, PreparedText, measure_dev
from seqloom.runs.sizing import EXTREMES, choose_fitted_sizes, settled, text_facts, too_small
from seqloom.text.tokenizer import EncodedText
from seqloom.training.progress import Outcome
from seqloom.training.run_guard import locked, remove_leftovers


@dataclass(frozen=True)
class FittingWork(OfPlainText):
    """Models that are fitted to a text. See `Work` for what each method is for."""

    needs_dev: bool
    files: str = "--train TEXT"
    fixed: tuple[str, ...] = ()

    def settled(self, first: RunConfig) -> Mapping[str, Any]:
        return settled(choose_fitted_sizes(facts, first.model, pieces=first.text.kind) for facts in EXTREMES)

    def choose(self, first: RunConfig, files: Sequence[Path], *, steps: int | None) -> Choice:  # noqa: ARG002
        if first.training.start_from is not None:
            raise UsageError(
                f"training.start_from={first.training.start_from} is for models that are trained step by step; one of "
                f"kind {first.model.kind} is fitted to its text as a whole"
            )
        corpus = plain_text.open_corpus(first.data, tuple(map(str, files)))
        if self.needs_dev:
            plain_text.held_out(first.data, len(corpus))
        facts = text_facts(corpus, segmentation=first.text.segmentation)
        return Choice(choose_fitted_sizes(facts, first.model, pieces=first.text.kind))


@dataclass(frozen=True)
class FittedRun:
    """What a fitting gives."""

    folder: Path
    outcome: Outcome
    scores: tuple[Score, ...]


def fit(run: Path, config: RunConfig, *, work: FittingWork, listener: Listener) -> FittedRun:
    """Fit the model of a run to its stored text, measure it and write its directory."""
    settings = config.model
    assert isinstance(settings, FitsText)
    prepared = work.open_prepared(run)
    tokenizer = prepared.tokenizer
    text = EncodedText(prepared.train.ids, tokenizer.vocabulary)
    if config.purpose == "word vectors" and (doubt := too_small(prepared.train.tokens)):
        notice(listener, doubt)
    listener(Event("phase", {"what": f"fitting {config.model.kind} to {prepared.train.tokens:,} tokens"}))
    began = monotonic()
    with locked(run):
        remove_leftovers(run, listener=listener)
        model = settings.fit(text, seed=seed_for(config.seed, "weights"), listener=listener)
        seconds = monotonic() - began
        arrays = model.arrays()
        card = Card(
            source=None,
            target=config.data.target,
            parameters=sum(array.size for array in arrays.values()),
            trained_on=_trained_on(config, prepared, seconds=seconds),
        )
        folder = run / "model"
        scores = _measure(model, config, prepared=prepared, card=card, folder=folder, listener=listener)
        card = card.with_scores(scores, lines=len(prepared.dev_lines))
        save_fitted(folder, config, tokenizers=prepared.tokenizers, arrays=arrays, card=card)
    outcome = Outcome(
        reason="fitted",
        message=f"fitted to {prepared.train.tokens:,} tokens",
        step=0,
        best_loss=None,
        best_step=None,
        tokens=prepared.train.tokens,
        seconds=seconds,
        skipped=0,
    )
    listener(Event("finished", vars(outcome)))
    listener(Event("model_saved", {"path": str(folder)}))
    return FittedRun(folder, outcome, scores)


def _trained_on(config: RunConfig, prepared: PreparedText, *, seconds: float) -> dict[str, Any]:
    return {
        "files": list(config.data.train),
        "lines": len(prepared.train),
        "tokens": prepared.train.tokens,
        "data": prepared.train.fingerprint(),
        "tokenizers": [prepared.tokenizer.fingerprint],
        "seconds": round(seconds, 1),
    }


def _measure(
    model: FittedModel, config: RunConfig, *, prepared: PreparedText, card: Card, folder: Path, listener: Listener
) -> tuple[Score, ...]:
    """The perplexity of a language model on the dev text; word vectors have none."""
    if not prepared.dev_lines or config.purpose == "word vectors":
        return ()
    loaded = LoadedFitted(folder, config, prepared.tokenizers, model, card)
    return measure_dev(loaded, prepared, listener=listener)
