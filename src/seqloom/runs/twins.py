"""Count-based twins: what counting or a rule achieves in seconds, measured on the dev data beside a trained model.

    tagging          the most frequent tag of each word; a hidden Markov model (`classical.tagger`)
    classification   the most frequent label; naive Bayes over n-grams, of texts (`classical.bayes`)
    forecasting      the last value, the last period, a moving average (`classical.forecasting`)

Their scores stand beside those of the model, in the same metric, as `METRIC of TWIN`: in the events, the result of a
run, the model card and `seqloom info`. A model that does not beat its twin says so.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from seqloom.core.events import Listener, notice
from seqloom.metrics.scoring import CorpusScore

TwinScores = Mapping[str, Mapping[str, float]]
"""The values of twins by the name of a metric, and by that of the twin."""


def beside(scores: Sequence[CorpusScore], twins: TwinScores) -> tuple[CorpusScore, ...]:
    """The scores of a model, followed by those of its twins."""
    found = list(scores)
    for score in scores:
        for name, value in twins.get(score.name, {}).items():
            signature = score.signature.partition("|bs:")[0]
            found.append(
                replace(score, name=f"{score.name} of {name}", value=value, signature=signature, interval=None)
            )
    return tuple(found)


def twins_text(twins: TwinScores, *, decimals: int = 2) -> str:
    """The scores of twins in words."""
    return "; ".join(
        f"{metric}: {', '.join(f'{name} {value:.{decimals}f}' for name, value in values.items())}"
        for metric, values in twins.items()
        if values
    )


def report_unbeaten(
    scores: Sequence[CorpusScore],
    twins: TwinScores,
    *,
    model: str,
    remedy: str,
    is_error: bool = False,
    decimals: int = 2,
    listener: Listener,
) -> None:
    """Say in which metrics a model does not beat the best of its twins; `is_error` says that less is better."""
    for score in scores:
        values = twins.get(score.name, {})
        if not values:
            continue
        best = min(values, key=lambda name: values[name] if is_error else -values[name])
        is_beaten = score.value < values[best] if is_error else score.value > values[best]
        if not is_beaten:
            notice(
                listener,
                f"{score.name}: the {model} ({score.value:.{decimals}f}) does not beat the {best} "
                f"({values[best]:.{decimals}f}) on the dev data: {remedy}",
            )
