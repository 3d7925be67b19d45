"""Calibrate: learn what a model's probabilities say about its translations, and how well that holds on other text."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from seqloom.apps.translator import Translation
from seqloom.core.archive import is_archive
from seqloom.core.errors import DataError, UsageError
from seqloom.metrics.calibration import MIN_LINES, Calibration, Reliability, measure_reliability
from seqloom.metrics.translation import line_scores
from seqloom.runs.loading import find_model, require_finished
from seqloom.runs.model_dir import CALIBRATION, add_file, write_calibration
from seqloom.runs.translation import fit_confidence
from seqloom.runs.translator import BestTranslations, mean_log_prob


def require_calibratable(model: Path) -> None:
    """Refuse a model to which nothing can be added, before the slow part begins."""
    if is_archive(model):
        raise UsageError(f"{model} is an archive, which cannot be changed; unpack it first: seqloom unpack {model} DIR")
    require_finished(model)


def calibrate(
    model: Path, translations: Sequence[Translation], references: Sequence[str], *, lowercase: bool = False
) -> Calibration:
    """Learn the confidence of a model from its translations of dev text, and add it to the model directory.

    Its weights are not touched; an earlier calibration is replaced.
    """
    require_calibratable(model)
    best = BestTranslations(
        [each.text for each in translations],
        [mean_log_prob(each.hypotheses) for each in translations],
        [each.hit_limit for each in translations],
    )
    found = fit_confidence(best, references, lowercase=lowercase)
    if found is None:
        raise DataError(
            f"{len(translations):,} lines are too few to calibrate {model}; give {MIN_LINES} or more that are not "
            "blank and whose translations end before the maximum output length"
        )
    add_file(find_model(model), CALIBRATION, write=partial(write_calibration, calibration=found))
    return found


def reliability_of(
    translations: Sequence[Translation], references: Sequence[str], *, lowercase: bool = False
) -> Reliability | None:
    """How calibrated confidences fit the chrF of the same lines; None if there are none."""
    reached = line_scores([each.text for each in translations], references, lowercase=lowercase)
    known = [
        (each.confidence, value)
        for each, value in zip(translations, reached, strict=True)
        if each.is_calibrated and each.confidence is not None
    ]
    return measure_reliability([one for one, _ in known], [value for _, value in known]) if known else None
