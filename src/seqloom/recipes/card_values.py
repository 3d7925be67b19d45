"""What `model.json` may hold: it can come from elsewhere, and its values are shown and counted with."""

from collections.abc import Mapping
from typing import Any

_COUNTED = ("pairs", "lines", "tokens", "steps", "target_tokens", "tokens_read", "seconds", "dev_loss")


def fault_of_card(values: Mapping[str, Any]) -> str | None:
    """The first thing in the values of a card that is not of its kind, in words; None where all is well."""
    for name in ("source", "target"):
        if not isinstance(values.get(name), str | None):
            return f"{name} is no language"
    if not _is_number(values.get("parameters")) or not isinstance(values.get("version", ""), str):
        return "it gives no number of parameters, or no version"
    if type(values.get("format", 1)) is not int:
        return "its format is no number"
    if not isinstance(trained_on := values.get("trained_on", {}), dict):
        return "trained_on is no table"
    for name in _COUNTED:
        if name in trained_on and not _is_number(trained_on[name]):
            return f"trained_on.{name} is no number"
    for name in ("files", "averaged"):
        if not isinstance(trained_on.get(name, []), list):
            return f"trained_on.{name} is no list"
    if "output_limit" in trained_on and not _is_output_limit(trained_on["output_limit"]):
        return f"trained_on.output_limit is {str(trained_on['output_limit'])[:40]!r}, not a factor and a constant"
    unfinished = trained_on.get("unfinished", {"step": 0, "steps": 0})
    if not isinstance(unfinished, dict) or not all(_is_number(unfinished.get(name)) for name in ("step", "steps")):
        return "trained_on.unfinished gives no step and steps"
    scores = values.get("scores", [])
    if not isinstance(scores, list) or not all(map(_is_score, scores)):
        return "scores are no list of names, values and signatures"
    return None


def _is_score(score: Any) -> bool:
    if not isinstance(score, dict) or not isinstance(score.get("name"), str):
        return False
    interval = score.get("interval")
    is_pair = interval is None or (isinstance(interval, list) and len(interval) == 2 and all(map(_is_number, interval)))
    is_measured = score.get("value") is None or _is_number(score["value"])
    return is_pair and is_measured and isinstance(score.get("signature"), str)


def _is_output_limit(value: Any) -> bool:
    if not isinstance(value, dict) or set(value) != {"factor", "constant"}:
        return False
    factor, constant = value["factor"], value["constant"]
    return _is_number(factor) and 0 < factor <= 100 and type(constant) is int and 0 < constant <= 10_000


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
