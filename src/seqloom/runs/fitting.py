"""Fitting: models with a loop of their own, such as n-grams and word vectors, are fitted to a text as a whole."""

from pathlib import Path
from time import monotonic

from seqloom.core.events import Event, Listener, notice
from seqloom.core.seeds import seed_for
from seqloom.metrics.scoring import CorpusScore
from seqloom.runs.config import FitsText, RunConfig
from seqloom.runs.loading import LoadedFitted
from seqloom.runs.model_dir import Card, save_fitted
from seqloom.runs.plain_text import TextData
from seqloom.runs.sizing import too_small
from seqloom.text.tokenizer import EncodedText
from seqloom.training.progress import Outcome
from seqloom.training.run_guard import locked, remove_leftovers


def fit(run: Path, config: RunConfig, data: TextData, *, listener: Listener) -> tuple[Outcome, tuple[CorpusScore, ...]]:
    """Fit the model of a run to its text, measure its perplexity if it has one, and write the model directory."""
    settings, tokens = config.model, data.train.tokens
    assert isinstance(settings, FitsText)
    has_perplexity = config.purpose != "word vectors"
    if not has_perplexity and (warning := too_small(tokens)):
        notice(listener, warning)
    listener(Event("phase", {"what": f"fitting {config.model.kind} to {tokens:,} tokens"}))
    began = monotonic()
    with locked(run):
        remove_leftovers(run, listener=listener)
        text = EncodedText(data.train.ids, data.tokenizers.target.vocabulary)
        model = settings.fit(text, seed=seed_for(config.seed, "weights"), listener=listener)
        seconds = monotonic() - began
        arrays = model.arrays()
        card = Card(
            source=None,
            target=config.data.target,
            parameters=sum(array.size for array in arrays.values()),
            trained_on={**data.card_values(config), "seconds": round(seconds, 1)},
        )
        folder, scores = run / "model", tuple[CorpusScore, ...]()
        if has_perplexity and data.dev_lines:
            loaded = LoadedFitted(folder, config, data.tokenizers, model, card)
            scores, lines = data.measure(loaded, listener=listener)
            card = card.with_scores(scores, lines=lines)
        save_fitted(folder, config, tokenizers=data.tokenizers, arrays=arrays, card=card)
    outcome = Outcome(
        reason="fitted",
        message=f"fitted to {tokens:,} tokens",
        step=0,
        best_loss=None,
        best_step=None,
        tokens=tokens,
        seconds=seconds,
        skipped=0,
    )
    listener(Event("finished", vars(outcome)))
    listener(Event("model_saved", {"path": str(folder)}))
    return outcome, scores
