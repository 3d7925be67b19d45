"""Language modelling as a line of work: a text in, a model of it with its perplexity on the dev text out."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from seqloom.core.errors import UsageError
from seqloom.core.events import Event, Listener
from seqloom.metrics.translation import Score
from seqloom.recipes import plain_text
from seqloom.recipes.config import RunConfig
from seqloom.recipes.language_model import LanguageModel
from seqloom.recipes.load import LoadedModel
from seqloom.recipes.plain_text import OfPlainText, PreparedText
from seqloom.recipes.sizing import Kind, settled
from seqloom.recipes.text_sizing import EXTREMES, choose_recurrent, text_facts
from seqloom.recipes.work import Choice
from seqloom.tasks.bidirectional_language_modelling import BidirectionalConfig, BidirectionalTask
from seqloom.tasks.language_modelling import LanguageModellingConfig, LanguageModellingTask
from seqloom.training.progress import Outcome

OFFERED = ("output", "stepper")
"""What a language model must have, besides being called with windows of text."""


@dataclass(frozen=True)
class ModellingWork(OfPlainText):
    """Models of text that are trained step by step. See `TrainedWork` for what each method is for."""

    pieces: Kind = "bpe"
    """What text is cut into unless it is said."""
    files: str = "--train TEXT"
    fixed: tuple[str, ...] = (
        "task.windows",
        "task.offset",
        "task.rows",
        "task.length",
        "task.burn_in",
        "task.tokens_per_batch",
    )
    """Where a run stands in its text is counted in these."""
    needs_dev: bool = True

    # --- text ---------------------------------------------------------------------------------------------------------

    @property
    def presets(self) -> Mapping[str, Any]:
        return {"text": {"kind": self.pieces}}

    def settled(self, first: RunConfig) -> Mapping[str, Any]:
        kind, model = first.text.kind, first.model.kind
        return settled(choose_recurrent(facts, kind=kind, steps=None, model=model) for facts in EXTREMES)

    def choose(self, first: RunConfig, files: Sequence[Path], *, steps: int | None) -> Choice:
        corpus = plain_text.open_corpus(first.data, tuple(map(str, files)))
        text, held_out = first.text, plain_text.held_out(first.data, len(corpus))
        facts = text_facts(corpus, segmentation=text.segmentation)
        dev_tokens = facts.tokens(text.kind) * held_out // max(1, len(corpus))
        if first.data.dev:
            dev = plain_text.open_corpus(first.data, first.data.dev)
            dev_tokens = text_facts(dev, segmentation=text.segmentation).tokens(text.kind)
        chosen = choose_recurrent(facts, kind=text.kind, steps=steps, model=first.model.kind, dev_tokens=dev_tokens)
        return Choice(chosen)

    # --- training -----------------------------------------------------------------------------------------------------

    def require_model(self, model: nn.Module) -> None:
        missing = [name for name in OFFERED if not hasattr(model, name)]
        if missing:
            raise UsageError(
                f"{type(model).__name__} cannot be trained as a language model: it has no {' and no '.join(missing)}; "
                "see LanguageModel in seqloom/tasks/language_modelling.py for what a model offers"
            )

    def task(
        self, config: RunConfig, prepared: PreparedText, *, device: torch.device, listener: Listener
    ) -> LanguageModellingTask | BidirectionalTask:
        assert prepared.dev is not None
        if isinstance(config.task, BidirectionalConfig):
            return BidirectionalTask(prepared.train, prepared.dev, config=config.task, seed=config.seed, device=device)
        assert isinstance(config.task, LanguageModellingConfig)
        return LanguageModellingTask(
            prepared.train, prepared.dev, config=config.task, seed=config.seed, device=device, listener=listener
        )

    def languages(self, config: RunConfig) -> tuple[str | None, str | None]:
        return None, config.data.target

    def trained_on(self, config: RunConfig, prepared: PreparedText, *, outcome: Outcome) -> dict[str, Any]:
        return {
            "files": list(config.data.train),
            "lines": len(prepared.train),
            "tokens": prepared.train.tokens,
            "data": prepared.train.fingerprint(),
            "tokenizers": [prepared.tokenizer.fingerprint],
            "steps": outcome.step,
            "tokens_read": outcome.tokens,
            "seconds": round(outcome.seconds, 1),
            "best_dev_loss": outcome.best_loss,
        }

    def measure(self, loaded: LoadedModel, prepared: PreparedText, *, listener: Listener) -> tuple[Score, ...]:
        return measure_perplexity(LanguageModel(loaded), prepared, listener=listener)

    def scored_lines(self, prepared: PreparedText) -> int:
        return len(prepared.dev_lines)


def measure_perplexity(model: LanguageModel, prepared: PreparedText, *, listener: Listener) -> tuple[Score, ...]:
    """Perplexities of the dev text, per token, word and character, as scores."""

    def tell(done: int, everything: int) -> None:
        listener(Event("progress", {"what": "measuring perplexity on dev text", "done": done, "all": everything}))

    found = model.perplexity(prepared.dev_lines, progress=tell)
    scores = tuple(Score(f"perplexity/{each.unit}", each.value, each.signature) for each in found.all)
    values: dict[str, Any] = {
        "data": "dev",
        "lines": len(prepared.dev_lines),
        "scores": [asdict(each) for each in scores],
    }
    listener(Event("scores", values))
    return scores
