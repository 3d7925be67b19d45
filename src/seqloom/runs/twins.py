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


ERRORS = ("MSE", "MAE")
"""Metrics of which less is better."""


def unbeaten(scores: Sequence[CorpusScore]) -> str | None:
    """Which twins a model does not beat, as a sentence, from its scores with those of its twins; None if it beats them.

    In each metric it is compared with the best of them.
    """
    found: dict[str, list[str]] = {}
    for score in scores:
        before = f"{score.name} of "
        twins = {each.name.removeprefix(before): each.value for each in scores if each.name.startswith(before)}
        if not twins:
            continue
        sign = -1 if score.name.startswith(ERRORS) else 1
        best = max(twins, key=lambda name: sign * twins[name])
        if not sign * score.value > sign * twins[best]:
            found.setdefault(best, []).append(f"{score.name} {score.value:.4g} against {twins[best]:.4g}")
    if not found:
        return None
    return "the model does not beat " + " and ".join(f"{name} ({', '.join(each)})" for name, each in found.items())


def report_unbeaten(scores: Sequence[CorpusScore], *, remedy: str, listener: Listener) -> None:
    """Say which twins a model does not beat, if there are such, and what to do."""
    if (sentence := unbeaten(scores)) is not None:
        notice(listener, f"{sentence}: {remedy}")
