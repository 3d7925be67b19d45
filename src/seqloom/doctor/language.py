"""Languages: lines in the language of the other side, swapped pairs and files, lines in neither language.

d = (log p_own(x) − log p_other(x)) / |x|      evidence for the own side, nats per character
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float32

from seqloom.doctor.faults import Fault, find_fault, numbers_where, runs_of
from seqloom.doctor.survey import Survey
from seqloom.text.character_models import MAX_LINE_CHARACTERS, CharacterModel, encode
from seqloom.text.languages import contradicts
from seqloom.text.scripts import main_script, main_scripts, scripts_of, words_of

# Scripts: lines in a script that is not that of their side.


def examine_scripts(survey: Survey, reference: Survey) -> list[Fault]:
    """Lines of which one side is written in a script that this side of the reference is not."""
    mains = main_scripts(reference.source.letters), main_scripts(reference.target.letters)
    wrong = []
    for side, main in zip((survey.source, survey.target), mains, strict=True):
        known = np.array([name == "" or name in main or not main for name in survey.script_names] + [True] * 256)
        wrong.append(~known[side.scripts])
    usual = " and ".join(
        f"{' or '.join(main).lower() or 'no'} letters in the {side}"
        for main, side in zip(mains, ("source", "target"), strict=True)
    )

    def describe(source: str, target: str) -> str:
        found = []
        for side, text, main in (("source", source, mains[0]), ("target", target, mains[1])):
            scripts = scripts_of(text)
            if main_script(scripts, words_of(text)) not in ("", *main):
                found.append(f"{side}: {', '.join(name.lower() for name, _ in scripts.most_common(2))}")
        return ", ".join(found)

    return find_fault(
        survey,
        "script",
        wrong[0] | wrong[1],
        "Wrong script",
        what=f"not in the script of their side (source {int(wrong[0].sum()):,}, target {int(wrong[1].sum()):,}); "
        f"usual: {usual}",
        advice="--fix script drops them",
        fix=0.0,
        stop=0.5,
        describe=describe,
    )


MIN_ODDS = 0.15
"""Minimum median difference between the two sides in nats per character; below it they are indistinguishable."""

MARGIN, TOTAL = 0.12, 6.0
"""Minimum evidence for the other side, in nats per character and in total."""

CLEAR = 0.3
"""Minimum share of the usual evidence for a line by itself: names look like either side."""

NEAR, MIN_SWAPPED_NEAR = 3, 2
"""Size of the neighbourhood, and how many clearly swapped lines it needs for a less clear line to count as swapped."""

MAX_DEVIATIONS = 7.0
"""Robust standard deviations below the usual fit at which a line fits neither side."""

MIN_CHARACTERS = 25
"""Minimum number of characters to judge how well a line fits."""


@dataclass(frozen=True, eq=False)
class Languages:
    """How much each line looks like its own side, and how well it fits it, in nats a character."""

    source_odds: Float32[np.ndarray, " lines"]
    target_odds: Float32[np.ndarray, " lines"]
    source_fit: Float32[np.ndarray, " lines"]
    target_fit: Float32[np.ndarray, " lines"]

    @staticmethod
    def joined(parts: "list[Languages]") -> "Languages":
        """Those of several pieces of a text, one after another."""
        names = ("source_odds", "target_odds", "source_fit", "target_fit")
        return Languages(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))


@dataclass(frozen=True, eq=False)
class TwoLanguages:
    """A model for each side."""

    source: CharacterModel
    target: CharacterModel

    def judge(self, sources: list[str], targets: list[str], *, is_learned: Bool[np.ndarray, " lines"]) -> Languages:
        """Score some lines; `is_learned` marks those that the models were trained on."""
        source_odds, source_fit = _judge_side(sources, self.source, self.target, is_learned)
        target_odds, target_fit = _judge_side(targets, self.target, self.source, is_learned)
        return Languages(source_odds, target_odds, source_fit, target_fit)


def _judge_side(
    lines: list[str], own: CharacterModel, other: CharacterModel, is_learned: Bool[np.ndarray, " lines"]
) -> tuple[Float32[np.ndarray, " lines"], Float32[np.ndarray, " lines"]]:
    codes, starts = encode(lines)
    lengths = np.diff(np.append(starts, len(codes)))
    learned = np.repeat(is_learned.astype(np.int64), lengths)
    mine = np.add.reduceat(own.log_probs(codes, own=learned), starts) / lengths
    theirs = np.add.reduceat(other.log_probs(codes, own=np.zeros_like(learned)), starts) / lengths
    return (mine - theirs).astype(np.float32), mine.astype(np.float32)


@dataclass(frozen=True, eq=False)
class Verdicts:
    """The judgement of each line."""

    is_swapped: Bool[np.ndarray, " lines"]
    """Both sides look like the other one."""
    is_other: Bool[np.ndarray, " lines"]
    """One side looks like the other one."""
    is_strange: Bool[np.ndarray, " lines"]
    """One side fits neither language."""
    are_apart: bool
    """Whether the two languages can be distinguished."""


def decide(
    languages: Languages,
    survey: Survey,
    reference: Languages,
    *,
    is_third: Bool[np.ndarray, " lines"],
    has_other_words: tuple[Bool[np.ndarray, " lines"], Bool[np.ndarray, " lines"]],
) -> Verdicts:
    """Judge each line. Copies are reported by the examination of copies.

    `is_third` marks lines with function words of a third language, `has_other_words` sources with the words of
    the target side and targets with those of the source side. Characters alone are not enough: code, formulas and
    names fit neither side, and fit one of them better by chance.
    """
    usual_odds = _middle(reference.source_odds), _middle(reference.target_odds)
    are_apart = min(usual_odds) >= MIN_ODDS
    swapped, other = np.zeros(len(survey), bool), np.zeros(len(survey), bool)
    is_full = (survey.blank == 0) & (survey.copies == 0)
    if are_apart:
        swapped, other = _find_swapped(languages, survey, usual_odds, has_other_words)
        swapped, other = swapped & is_full, other & is_full & ~swapped
    strange = is_third
    for fit, known, side in (
        (languages.source_fit, reference.source_fit, survey.source),
        (languages.target_fit, reference.target_fit, survey.target),
    ):
        usual = _middle(known)
        spread = 1.4826 * _middle(np.abs(known - usual))
        strange = strange | (fit < usual - MAX_DEVIATIONS * max(spread, 0.05)) & (side.characters >= MIN_CHARACTERS)
    return Verdicts(swapped, other, strange & is_full & ~swapped & ~other, are_apart)


def _find_swapped(
    languages: Languages,
    survey: Survey,
    usual: tuple[float, float],
    has_other_words: tuple[Bool[np.ndarray, " lines"], Bool[np.ndarray, " lines"]],
) -> tuple[Bool[np.ndarray, " lines"], Bool[np.ndarray, " lines"]]:
    """Lines of which both sides look like the other one; lines of which one side does, and the other like itself."""
    wrong, clearly_wrong, clearly_right = [], [], []
    sides = (languages.source_odds, languages.target_odds), (survey.source, survey.target)
    for odds, side, middle, has_words in zip(*sides, usual, has_other_words, strict=True):
        lengths = np.minimum(side.characters, MAX_LINE_CHARACTERS)
        wrong.append((odds < -MARGIN) & (odds * lengths < -TOTAL))
        clearly_wrong.append(wrong[-1] & (odds < -CLEAR * middle) & has_words)
        clearly_right.append(odds > CLEAR * middle)
    clearly = clearly_wrong[0] & clearly_wrong[1]
    # Among swapped pairs, one with a name on one side is swapped too: the sum of both decides.
    both = languages.source_odds + languages.target_odds
    perhaps = (wrong[0] & wrong[1]) | ((wrong[0] | wrong[1]) & (both < -3 * MARGIN))
    perhaps &= has_other_words[0] | has_other_words[1]
    near = np.convolve(clearly.astype(float), np.ones(2 * NEAR + 1))[NEAR : NEAR + len(clearly)]
    swapped = clearly | (perhaps & (near > MIN_SWAPPED_NEAR - 0.5))
    return swapped, (clearly_wrong[0] & clearly_right[1]) | (clearly_wrong[1] & clearly_right[0])


def _middle(values: Float32[np.ndarray, " lines"]) -> float:
    return float(np.median(values)) if len(values) else 0.0


def examine_languages(
    verdicts: Verdicts, survey: Survey, *, has_wrong_script: Bool[np.ndarray, " lines"]
) -> list[Fault]:
    """Lines in the wrong language, except those already reported for their script."""
    swapped = numbers_where(verdicts.is_swapped)
    is_whole = len(swapped) > 0.6 * len(survey)
    runs = () if is_whole else runs_of(swapped)
    where = "".join(f"; lines {run.first:,} to {run.last:,} in a row" for run in runs[:3])
    return [
        *find_fault(
            survey,
            "swapped",
            verdicts.is_swapped,
            f"The sides of {survey.split} are swapped" if is_whole else "Source and target swapped",
            what="whose source looks like the target side and whose target looks like the source side" + where,
            advice="swap the two files" if is_whole else "--fix swapped swaps them back",
            fix=0.0005,
            stop=0.3,
            runs=runs,
        ),
        *find_fault(
            survey,
            "language",
            verdicts.is_other & ~has_wrong_script,
            "Both sides in one language",
            what="of which one side looks like the language of the other",
            advice="often untranslated; --fix language drops them",
            fix=0.002,
            stop=0.5,
        ),
        *find_fault(
            survey,
            "foreign",
            verdicts.is_strange & ~has_wrong_script,
            "Lines that fit neither side",
            what="that look like neither language: a third language, codes, or noise",
            advice="check them; --fix foreign drops them",
            fix=0.01,
        ),
    ]


def examine_names(
    words: tuple[Mapping[str, int], Mapping[str, int]], declared: tuple[str, str] | None, *, split: str = "train"
) -> list[Fault]:
    """Compare the declared languages with the function words of the text."""
    if declared is None:
        return []
    found = [contradicts(side, code) for side, code in zip(words, declared, strict=True)]
    if found[0] == declared[1] and found[1] == declared[0]:
        sentence = f"the sides are named {declared[0]} and {declared[1]}, but their words suggest the opposite"
        advice = "swap the files, or correct their names"
        return [Fault("names", "stop", "Swapped files", sentence, advice, split)]
    parts = [
        f"the {side} is named {code}, but its words look like {other}"
        for side, code, other in zip(("source", "target"), declared, found, strict=True)
        if other is not None
    ]
    if not parts:
        return []
    advice = "check the files; if they are right, ignore this"
    return [Fault("names", "fix", "Language and name disagree", "; ".join(parts), advice, split)]
