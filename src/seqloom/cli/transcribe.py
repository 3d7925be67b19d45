"""`seqloom transcribe`: what recordings, handwriting or images of lines say."""

import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from seqloom.cli.arguments import Encoding, ModelFolder, OnBadUtf8
from seqloom.cli.console import clean, examples, score_rows, show_events
from seqloom.cli.inputs import TextEncoding
from seqloom.core.errors import UsageError
from seqloom.core.events import Listener, json_line, progress

if TYPE_CHECKING:
    from seqloom.apps.transcriber import Transcriber, TranscriberScores, Transcript
    from seqloom.data.transcribed import Sample

EXAMPLES = examples(
    "seqloom transcribe run/model digits.wav",
    "seqloom transcribe run/model lines/*.png --json",
    "seqloom transcribe run/model samples.tsv > transcripts.tsv",
    "seqloom transcribe run/model --reference test.tsv",
    "seqloom transcribe run/model digits.wav --nbest 5 --json",
    "seqloom transcribe run/model digits.wav --beam 16 --language-model lm/model --weight 0.3",
)

SAMPLES_AT_ONCE = 64
"""Samples whose transcripts are printed together."""

Files = Annotated[
    list[Path] | None,
    typer.Argument(
        metavar="[FILE]...",
        help="Recordings (.wav), images of lines (.png, …) or strokes (.json), as the model was trained on; or tables "
        "that name them (.tsv, .jsonl), whose transcripts are not read.",
    ),
]
Reference = Annotated[
    Path | None,
    typer.Option(
        "--reference",
        metavar="TABLE",
        help="Samples with their transcripts, in any form that training reads: print word and character error rate, "
        "instead of transcripts.",
    ),
]
Beam = Annotated[
    int | None,
    typer.Option(
        "--beam", metavar="N", min=1, max=10_000, help="Search with N prefixes; by default the best path is taken."
    ),
]
Nbest = Annotated[
    int | None,
    typer.Option(
        "--nbest", metavar="N", min=1, max=10_000, help="Print the N best transcripts of each sample with their scores."
    ),
]
LanguageModel = Annotated[
    Path | None,
    typer.Option(
        "--language-model",
        metavar="MODEL",
        help="A language model of the same pieces that takes part in the search, with a beam of 16 by default.",
    ),
]
Weight = Annotated[
    float | None, typer.Option("--weight", metavar="W", min=0, help="Of the language model; by default 0.3.")
]
Json = Annotated[bool, typer.Option("--json", help="Print a JSON record per sample, or one with all scores.")]


def transcribe(
    model: ModelFolder,
    files: Files = None,
    reference: Reference = None,
    beam: Beam = None,
    nbest: Nbest = None,
    language_model: LanguageModel = None,
    weight: Weight = None,
    encoding: Encoding = None,
    on_bad_utf8: OnBadUtf8 = None,
    json: Json = False,
) -> None:
    """Print what each recording, handwritten line or image says: its file, a tab and the transcript.

    Train a model with [bold]seqloom train model.kind=ctc --train samples.tsv --out run[/bold], where each line of the
    table has the name of a file, a tab and its transcript.
    """
    given = files or []
    if reference is not None and given:
        raise UsageError(f"--reference {reference} names its own samples; leave out {given[0]}")
    if reference is None and not given:
        raise UsageError("no samples: name recordings, images or strokes, or tables of them")
    if weight is not None and language_model is None:
        raise UsageError(f"--weight {weight:g} is that of a language model; give one with --language-model")
    if nbest is not None and reference is not None:
        raise UsageError("--nbest cannot be combined with --reference, which scores the best transcript")
    if nbest is not None and beam is not None and nbest > beam:
        raise UsageError(f"--nbest {nbest} is larger than --beam {beam}; give --beam {nbest} or more")
    decoding = TextEncoding.of(encoding, on_bad_utf8)

    from seqloom.apps.transcriber import WEIGHT, Transcriber

    transcriber = Transcriber.load(model)
    search: dict[str, Any] = {"beam": beam}
    if language_model is not None:
        # Checked before any sample is read.
        search |= {"language_model": language_model, "weight": WEIGHT if weight is None else weight}
        transcriber.fused(language_model, search["weight"])
    with show_events(as_json=json, has_progress=reference is not None) as listener:
        if reference is not None:
            scores = _score(transcriber, reference, search, decoding=decoding, listener=listener)
            print(json_line(_record(scores)) if json else "\n".join(score_rows([scores.wer, scores.cer])))
        else:
            _print(transcriber, _samples(given, decoding), search, nbest=nbest, json=json)


def _samples(files: Sequence[Path], decoding: TextEncoding) -> list["Sample"]:
    """The samples that are named, and those that tables name."""
    from seqloom.data.transcribed import Sample, is_table, read_tables

    found = []
    for path in files:
        if path.is_dir():
            raise UsageError(f"{path} is a folder; name its files, such as '{path / '*.wav'}'")
        if is_table(path):
            found += read_tables([path], encoding=decoding.encoding, on_bad=decoding.on_bad, needs_text=False)
        else:
            found.append(Sample(path, None, str(path), 1))
    return found


def _print(
    transcriber: "Transcriber",
    samples: Sequence["Sample"],
    search: dict[str, Any],
    *,
    nbest: int | None,
    json: bool,
) -> None:
    for begin in range(0, len(samples), SAMPLES_AT_ONCE):
        some = samples[begin : begin + SAMPLES_AT_ONCE]
        results = transcriber.nbest([each.source for each in some], nbest or 1, **search)
        for sample, found in zip(some, results, strict=True):
            if json:
                records = [_transcript(each) for each in found]
                others = {} if nbest is None else {"nbest": records}
                print(json_line({"file": sample.name(), **records[0], **others}))
                continue
            for each in found:
                score = "" if nbest is None else f"\t{each.score:.4f}"
                print(f"{clean(sample.name())}\t{clean(each.text)}{score}")
        sys.stdout.flush()


def _transcript(found: "Transcript") -> dict[str, object]:
    terms = {name: round(term, 6) for name, term in found.terms.items()}
    return {"text": found.text, "score": round(found.score, 6), "terms": terms}


def _score(
    transcriber: "Transcriber", reference: Path, search: dict[str, Any], *, decoding: TextEncoding, listener: Listener
) -> "TranscriberScores":
    from seqloom.data.transcribed import check_samples, read_tables

    samples = read_tables([reference], encoding=decoding.encoding, on_bad=decoding.on_bad)
    check_samples(samples, transcriber.config.data.frames)
    shown = partial(progress, listener, f"transcribing {reference}")
    texts = [sample.text or "" for sample in samples]
    return transcriber.evaluate([sample.source for sample in samples], texts, progress=shown, **search)


def _record(scores: "TranscriberScores") -> dict[str, object]:
    return {"lines": len(scores.outputs), "scores": [scores.wer, scores.cer], "transcripts": list(scores.outputs)}
