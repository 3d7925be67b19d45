"""How wide a beam? BLEU and the length of translations by width of the beam and length normalisation.

    python benchmarks/beam_width.py run/model --source test.en.gz --reference test.de.gz --language de [--lines 100]

For each width and normalisation: BLEU as `multi30k_scores.py` computes it, words of a translation in the mean, and
their number divided by that of the reference. The mean of log P(Y | X) says how well the search did what it was asked
to do.
"""

import argparse
import logging
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import get_args

from harness.progress import Countdown
from multi30k_scores import as_words, multi30k_bleu
from seqloom import Translator
from seqloom.core.errors import DataError, SeqloomError
from seqloom.core.files import read_lines
from seqloom.metrics.scoring import Bootstrap
from seqloom.search.scores import LengthNormalisation

BEAMS = (1, 2, 5, 10, 20)
NORMALISATIONS = ("none", "gnmt", "mean")


@dataclass(frozen=True)
class Width:
    """The result of a search with one width and one normalisation."""

    beam: int
    normalisation: str
    bleu: float
    interval: tuple[float, float]
    words: float
    ratio: float
    """Words of all translations per word of all references."""
    log_prob: float
    signature: str
    """sacrebleu's signature."""


def measure(
    translator: Translator,
    sources: Sequence[str],
    references: Sequence[str],
    *,
    beam: int,
    normalisation: str,
    language: str,
) -> Width:
    """Translate all lines with one width and one normalisation."""
    settings = translator.config.search
    search = settings.model_validate({**settings.model_dump(), "beam": beam, "length_normalisation": normalisation})
    found = [best for best, *_ in translator.search(sources, search=search)]
    texts = [each.text for each in found]
    score = multi30k_bleu(texts, references, language=language, bootstrap=Bootstrap(seed=12345))
    assert score.interval is not None
    ours, theirs = (sum(len(line.split()) for line in as_words(lines, language)) for lines in (texts, references))
    log_probs = [sum(hypothesis.log_prob for hypothesis in each.hypotheses) for each in found]
    return Width(
        beam,
        normalisation,
        score.value,
        score.interval,
        words=ours / len(texts),
        ratio=ours / theirs,
        log_prob=sum(log_probs) / len(log_probs),
        signature=score.signature,
    )


def table(rows: Sequence[Width]) -> str:
    """The measurements in Markdown."""
    lines = [
        "| `search.length_normalisation` | `search.beam` | BLEU | words per line | of the reference | log P |",
        "|---|---:|---:|---:|---:|---:|",
        *(
            f"| `{row.normalisation}` | {row.beam} | {row.bleu:.1f} [{row.interval[0]:.1f}, {row.interval[1]:.1f}] "
            f"| {row.words:.2f} | {row.ratio:.3f} | {row.log_prob:.3f} |"
            for row in rows
        ),
    ]
    return "\n".join(lines)


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("model", type=Path, help="model directory, or a run that has finished")
    parser.add_argument("--source", type=Path, required=True, help="text to translate")
    parser.add_argument("--reference", type=Path, required=True, help="what it should be")
    parser.add_argument("--language", required=True, help="target language, such as de")
    parser.add_argument("--lines", type=int, default=100, help="only so many lines, from the first on")
    parser.add_argument("--beams", type=int, nargs="+", default=list(BEAMS), help="widths")
    parser.add_argument(
        "--normalisations", nargs="+", default=list(NORMALISATIONS), choices=get_args(LengthNormalisation)
    )
    return parser.parse_args()


def main() -> None:
    given = read_arguments()
    logging.getLogger("sacrebleu").setLevel(logging.ERROR)  # it warns of words parted by spaces, which are meant
    pairs = [(beam, normalisation) for normalisation in given.normalisations for beam in given.beams]
    rows = []
    try:
        sources, references = (list(islice(read_lines(path), given.lines)) for path in (given.source, given.reference))
        if len(sources) != len(references):
            raise DataError(
                f"{given.source} has {len(sources)} lines and {given.reference} {len(references)}; give both sides "
                "of one test set"
            )
        translator = Translator.load(given.model)
        countdown = Countdown("searches", len(pairs))
        for beam, normalisation in pairs:
            rows.append(
                measure(
                    translator, sources, references, beam=beam, normalisation=normalisation, language=given.language
                )
            )
            countdown.tick()
    except SeqloomError as error:
        print(error, file=sys.stderr)
        sys.exit(error.exit_code)
    print(table(rows))
    print("\nBLEU:", *sorted({row.signature for row in rows}))


if __name__ == "__main__":
    main()
