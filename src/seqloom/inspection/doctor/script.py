"""Scripts: lines whose words are written in letters that are not those of their side."""

from collections.abc import Mapping

import numpy as np
from jaxtyping import Bool

from seqloom.inspection.doctor.faults import Fault, grade, numbers_where, touched
from seqloom.inspection.doctor.survey import Side, Survey
from seqloom.inspection.doctor.texts import main_script, scripts_of, words_of

MAIN = 0.2
"""The share of a side's letters from which on a script belongs to it; Japanese has two such scripts."""


def main_scripts(letters: Mapping[str, int]) -> tuple[str, ...]:
    """The scripts that a side is written in, the most frequent first."""
    total = sum(letters.values())
    return tuple(
        name for name, count in sorted(letters.items(), key=lambda item: -item[1]) if count >= MAIN * max(1, total)
    )


def examine_scripts(survey: Survey, reference: Survey) -> list[Fault]:
    """Lines of which one side is written in a script that this side of the reference is not."""
    mains = main_scripts(reference.source.letters), main_scripts(reference.target.letters)
    wrong = [
        _is_foreign(side, main, survey.script_names)
        for side, main in zip((survey.source, survey.target), mains, strict=True)
    ]
    lines = numbers_where(wrong[0] | wrong[1])
    if len(lines) == 0:
        return []
    usual = " and ".join(
        f"{' or '.join(main).lower() or 'no'} letters in the {side}"
        for main, side in zip(mains, ("source", "target"), strict=True)
    )

    def describe(source: str, target: str) -> str:
        return ", ".join(
            f"{side}: {', '.join(name.lower() for name, _ in scripts_of(text).most_common(2))}"
            for side, text, main in (("source", source, mains[0]), ("target", target, mains[1]))
            if not _fits(text, main)
        )

    return [
        Fault(
            "script",
            grade(len(lines), len(survey), mend=0.0, stop=0.5),
            "Wrong script",
            f"{touched(len(lines), len(survey))} in another script than their side "
            f"(source {int(wrong[0].sum()):,}, target {int(wrong[1].sum()):,}); usual are {usual}",
            "--fix script drops them",
            survey.split,
            lines,
            describe=describe,
        )
    ]


def _is_foreign(side: Side, main: tuple[str, ...], names: tuple[str, ...]) -> Bool[np.ndarray, " lines"]:
    known = np.array([name == "" or name in main or not main for name in names] + [True] * (256 - len(names)))
    is_foreign: Bool[np.ndarray, " lines"] = ~known[side.scripts]
    return is_foreign


def _fits(text: str, main: tuple[str, ...]) -> bool:
    return main_script(scripts_of(text), words_of(text)) in ("", *main)
