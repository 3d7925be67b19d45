"""BLEU of a Multi30k translation, lower-cased and Moses-tokenised.

    python benchmarks/multi30k_scores.py HYPOTHESIS REFERENCE --language de
    python benchmarks/multi30k_scores.py HYPOTHESIS REFERENCE --language de --model run/model --source test.en.gz

The second form translates SOURCE first and writes HYPOTHESIS. Both texts pass the same code: lower case, then the
words of the Moses tokeniser (sacremoses, nothing escaped). Small letters come first, because that tokeniser knows
abbreviations by their capitals: a lowercase model must not be tokenised differently from its reference.
sacrebleu then takes the words as they are. Files may be plain or .gz.
"""

import argparse
import logging
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from sacremoses import MosesTokenizer

from seqloom.core.errors import DataError, SeqloomError, UsageError
from seqloom.core.files import read_lines, write_atomically
from seqloom.metrics.scoring import Bootstrap, CorpusScore, score
from seqloom.metrics.translation import Bleu


def as_words(lines: Sequence[str], language: str) -> list[str]:
    """Lower-cased lines, words and punctuation separated by spaces."""
    tokenizer = MosesTokenizer(lang=language)
    return [tokenizer.tokenize(line.strip().lower(), return_str=True, escape=False) for line in lines]


def multi30k_bleu(
    hypotheses: Sequence[str], references: Sequence[str], *, language: str, bootstrap: Bootstrap | None = None
) -> CorpusScore:
    """BLEU, with its interval if there is a bootstrap.

    No reference line may be blank: a shifted file often ends in blank lines.
    """
    blank = [number for number, line in enumerate(references, start=1) if not line.strip()]
    if blank:
        raise DataError(f"{len(blank)} reference lines are blank, the first is line {blank[0]}; is it the right file?")
    return score(
        Bleu(tokenize="none"),
        as_words(hypotheses, language),
        references=as_words(references, language),
        bootstrap=bootstrap,
    )


def translate_lines(lines: Sequence[str], model: Path, hypothesis: Path, *, beam: int | None) -> list[str]:
    """Translate line by line and write the result; the lines written."""
    from seqloom import Translator

    if hypothesis.exists():
        raise UsageError(f"{hypothesis} exists already; score it without --model, or name another file")
    translator = Translator.load(model)
    search = translator.config.search
    if beam is not None:
        search = search.model_validate({**search.model_dump(), "beam": beam})
    done = 0

    def tell(more: int) -> None:
        nonlocal done
        done += more
        print(f"\r{done} of {len(lines)} lines translated", end="", file=sys.stderr, flush=True)

    found = translator.search(lines, search=search, progress=tell)
    print(f", beam {search.beam}", file=sys.stderr)
    translations = [each[0].text for each in found]
    write_atomically(hypothesis, "".join(f"{line}\n" for line in translations))
    return translations


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("hypothesis", type=Path, help="translations, one a line; written when --model is given")
    parser.add_argument("reference", type=Path, help="the target side of the test set")
    parser.add_argument("--language", required=True, help="target language, such as de")
    parser.add_argument("--model", type=Path, help="model directory that translates --source first")
    parser.add_argument("--source", type=Path, help="the source side of the test set, with --model")
    parser.add_argument("--beam", type=int, help="width of the beam; by default that of the model's config")
    parser.add_argument("--resamples", type=int, default=1000, help="bootstrap resamples behind the interval")
    arguments = parser.parse_args()
    if (arguments.model is None) != (arguments.source is None):
        parser.error("--model and --source go together")
    return arguments


def main() -> None:
    given = read_arguments()
    # It warns of text that is tokenised already, which is what is meant here.
    logging.getLogger("sacrebleu").setLevel(logging.ERROR)
    try:
        references = list(read_lines(given.reference))
        if given.model is None:
            hypotheses = list(read_lines(given.hypothesis))
        else:
            sources = list(read_lines(given.source))
            if len(sources) != len(references):
                raise DataError(
                    f"{given.source} has {len(sources)} lines, but {given.reference} has {len(references)}; "
                    "give both sides of one test set"
                )
            hypotheses = translate_lines(sources, given.model, given.hypothesis, beam=given.beam)
        bootstrap = Bootstrap(seed=12345, resamples=given.resamples)
        found = multi30k_bleu(hypotheses, references, language=given.language, bootstrap=bootstrap)
    except SeqloomError as error:
        print(error, file=sys.stderr)
        sys.exit(error.exit_code)
    assert found.interval is not None
    low, high = found.interval
    words = f"lower-cased|moses.{given.language}:sacremoses-{version('sacremoses')}"
    print(f"BLEU {found.value:.2f} [{low:.2f}, {high:.2f}] {len(hypotheses)} lines {found.signature}|{words}")


if __name__ == "__main__":
    main()
