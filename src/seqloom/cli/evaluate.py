"""`seqloom evaluate`: how good translations are, and whether one system beats another."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from seqloom.cli.arguments import (
    Encoding,
    FromLanguage,
    JsonResult,
    OnBadUtf8,
    ToLanguage,
    language_settings,
    parse_words,
    require_new_file,
    require_search_settings,
)
from seqloom.cli.console import examples, interval_text, one_line, score_rows, show_events, table
from seqloom.cli.inputs import (
    Fuse,
    FuseWeight,
    TextEncoding,
    formats_for,
    languages_for,
    open_translator,
    parse_fusion,
    read_side,
    report_doubts,
    require_same_count,
)
from seqloom.core.errors import DataError, SeqloomError, UsageError
from seqloom.core.events import Listener, json_line, notice, progress_counter
from seqloom.core.files import open_output
from seqloom.text.formats.readers import holds_both_sides

if TYPE_CHECKING:
    from seqloom.apps.translator import Translation
    from seqloom.metrics.calibration import Calibration, Reliability
    from seqloom.metrics.scoring import Comparison
    from seqloom.metrics.translation import MetricName

EXAMPLES = examples(
    "seqloom evaluate run/model --source test.de --reference test.en",
    "seqloom evaluate run-2/model --against run-1/model --source test.de --reference test.en",
    "seqloom evaluate run --fuse lm --fuse-weight 0.1 --against run --source dev.de --reference dev.en",
    "seqloom evaluate run/model --source test.de-en.tsv",
    "seqloom evaluate run/model --source dev.de --reference dev.en --calibrate",
    "seqloom evaluate run/model --source test.tsv --metric rouge-1 --metric rouge-l",
    "seqloom evaluate --hypothesis ours.en --hypothesis2 theirs.en --reference test.en",
)
A_MODEL, TEXT = "Translate and score", "Score existing translations"


@dataclass(frozen=True)
class System:
    """A name and its translations."""

    name: str
    lines: list[str]
    language: str | None = None
    """The target language of the model."""
    why_lowercase: str | None = None
    """Why its translations are scored lower-cased, for a lowercase model."""
    metrics: "Sequence[MetricName]" = ()
    """The metrics that its settings name."""
    translations: "Sequence[Translation]" = ()
    """With their confidences, if a model made them."""


Words = Annotated[
    list[str] | None,
    typer.Argument(metavar="MODEL search.beam=8", help="A model folder, a run or an archive; search settings."),
]
Reference = Annotated[Path | None, typer.Option("--reference", metavar="FILE", help="Reference translations.")]
SourceFile = Annotated[
    Path | None,
    typer.Option(
        "--source",
        metavar="FILE",
        rich_help_panel=A_MODEL,
        help="Text to translate, or a file with both sides. With --hypothesis: its lines show which references are "
        "answers to the same source.",
    ),
]
Against = Annotated[
    Path | None,
    typer.Option(
        "--against",
        metavar="MODEL",
        rich_help_panel=A_MODEL,
        help="Baseline model to compare with; --fuse does not apply to it. May be the same model.",
    ),
]
Out = Annotated[
    Path | None,
    typer.Option("--out", metavar="FILE", rich_help_panel=A_MODEL, help="Write the translations to a file."),
]
Hypothesis = Annotated[
    Path | None, typer.Option("--hypothesis", metavar="FILE", rich_help_panel=TEXT, help="Translations to score.")
]
SecondHypothesis = Annotated[
    Path | None,
    typer.Option(
        "--hypothesis2",
        metavar="FILE",
        rich_help_panel=TEXT,
        help="Translations of a second system, compared with the first.",
    ),
]
Calibrate = Annotated[
    bool,
    typer.Option(
        "--calibrate",
        rich_help_panel=A_MODEL,
        help="Learn from these lines, best dev text of 1,000 lines or more, how the model's probabilities predict "
        "chrF, and store that in the model folder: the confidence of its translations. Training does it by itself.",
    ),
]
Metrics = Annotated[
    list[str] | None,
    typer.Option(
        "--metric",
        metavar="NAME",
        help="Report this metric, and others if repeated: bleu, chrf, ter, exact-match, wer, cer, per, rouge-1, "
        "rouge-2, rouge-l, bracket-f1, distinct-1, distinct-2. By default those of the model (evaluation.metrics), or "
        "those that suit the references.",
    ),
]
TargetLanguage = Annotated[
    str | None,
    typer.Option(
        "--target-language",
        metavar="CODE",
        help="Selects the BLEU tokeniser (zh, ja …); by default from the model or the file name.",
    ),
]
Lowercase = Annotated[
    bool | None,
    typer.Option(
        "--lowercase/--cased",
        help="Score lower-cased or cased text. By default as the model was trained (evaluation.lowercase or "
        "text.lowercase); cased without a model.",
        show_default=False,
    ),
]
Significance = Annotated[
    Literal["bootstrap", "randomisation"] | None,
    typer.Option(
        "--significance",
        metavar="TEST",
        help="Test between two systems: [bold]bootstrap[/bold] (paired; the default) or [bold]randomisation[/bold] "
        "(approximate; gives no interval).",
    ),
]


def evaluate(
    words: Words = None,
    reference: Reference = None,
    source: SourceFile = None,
    against: Against = None,
    fuse: Fuse = None,
    fuse_weight: FuseWeight = None,
    out: Out = None,
    calibrate: Calibrate = False,
    hypothesis: Hypothesis = None,
    hypothesis2: SecondHypothesis = None,
    from_language: FromLanguage = None,
    to_language: ToLanguage = None,
    metric: Metrics = None,
    target_language: TargetLanguage = None,
    lowercase: Lowercase = None,
    significance: Significance = None,
    encoding: Encoding = None,
    on_bad_utf8: OnBadUtf8 = None,
    json: JsonResult = False,
) -> None:
    """Score translations with BLEU, chrF and TER, each with a 95% interval and its signature.

    Give a model with --source, or existing translations with --hypothesis. Of a file with both sides (.tsv, .tmx, .po,
    .xlf, .jsonl), --source reads the sources and every other option the targets, so --source alone is enough. Words,
    phones, summaries and parses are scored by metrics of their own (--metric). If a source has several references, the
    best counts, but in BLEU, chrF and TER.

    Two systems are compared with a significance test (--significance). Of a calibrated model, the confidence of its
    translations is compared with the chrF of each line.
    """
    given = parse_words(words)
    require_search_settings(given.overrides)
    if len(given.others) > 1:
        raise UsageError(f"expected one model, got {len(given.others)}; name a second one with --against")
    model = Path(given.others[0]) if given.others else None
    formats = formats_for(model, given.overrides)
    if reference is None and source is not None and holds_both_sides(source, formats):
        reference = source
    if reference is None:
        raise UsageError(
            "no reference translations: give --reference FILE, or a file with both sides (.tsv, .tmx …) as --source"
        )
    fusion = parse_fusion(fuse, fuse_weight)
    if model is None and hypothesis is None:
        raise UsageError("nothing to score: give a MODEL with --source FILE, or translations with --hypothesis FILE")
    if model is not None and (hypothesis is not None or hypothesis2 is not None):
        raise UsageError(f"--hypothesis cannot be combined with a MODEL ({model}); leave one out")
    if model is not None and source is None:
        raise UsageError(f"no text for {model} to translate: give --source FILE")
    if model is None:
        options = {"--against": against, "--fuse": fuse, "--out": out}
        for flag, value in {**options, "--from": from_language, "--to": to_language}.items():
            if value is not None:
                raise UsageError(f"{flag} {value} requires a MODEL")
        if given.overrides:
            raise UsageError(f"setting {given.overrides[0]!r} requires a MODEL")
    if significance is not None and against is None and hypothesis2 is None:
        raise UsageError(f"--significance {significance} compares two systems; add --against or --hypothesis2")
    if calibrate:
        if model is None or against is not None or fuse is not None:
            raise UsageError("--calibrate takes one MODEL, without --against, --fuse and --hypothesis")
        from seqloom.apps.calibrate import require_calibratable

        require_calibratable(model)
    from seqloom.apps.evaluate import compare, parse_metrics
    from seqloom.apps.evaluate import evaluate as score
    from seqloom.metrics.answers import Questions

    chosen = parse_metrics(metric or ())
    overrides = [*given.overrides, *language_settings(from_language, to_language)]
    require_new_file(out, inputs=[path for path in (source, reference, model, against, fuse) if path])

    decoding = TextEncoding.of(encoding, on_bad_utf8)
    with show_events(as_json=json) as listener:
        named = [path for path in (hypothesis, hypothesis2, source) if path is not None]
        languages = (None, target_language) if model is None else languages_for(model, [*named, reference], overrides)
        warn = partial(notice, listener)
        read = partial(read_side, encoding=decoding, languages=languages, formats=formats, warn=warn)
        references = read(reference, side="target")
        others = [read(path, side="source" if path is source else "target") for path in named]
        for path, text in zip(named, others, strict=True):
            require_same_count((path, reference), text.lines, references.lines)
        if not references.lines:
            names = " and ".join(map(str, (*named, reference)))
            raise DataError(f"{names} are empty; expected at least one line to score")
        skipped = references.skipped.union(*(text.skipped for text in others))
        if len(skipped) == len(references.lines):
            raise DataError(f"all lines of {reference} were skipped for invalid bytes; see --encoding")
        sources = next((text.lines for path, text in zip(named, others, strict=True) if path is source), [])
        if model is None:
            both = zip(named, others, strict=True)
            systems = [System(str(path), text.lines) for path, text in both if path is not source]
        else:
            # The baseline comes first, like --hypothesis before --hypothesis2; it has no language model.
            models = [*([(against, None)] if against else []), (model, fusion)]
            texts = others[0].lines, references.lines
            systems = [
                _translate(each, *texts, overrides=overrides, fusion=fused, listener=listener) for each, fused in models
            ]
            if out is not None:
                with open_output(out) as file:
                    file.writelines(f"{line}\n" for line in systems[-1].lines)
        if lowercase is None:
            why = next((f"{each.name} {each.why_lowercase}" for each in systems if each.why_lowercase), None)
            if why is not None:
                notice(listener, f"scoring lower-cased text because {why}; --cased overrides this")
            lowercase = why is not None
    language = target_language or systems[-1].language or _language_of(reference)

    def kept(lines: list[str]) -> list[str]:
        """The lines that are scored: a line skipped in one file is left out of all."""
        return [line for number, line in enumerate(lines, start=1) if number not in skipped] if skipped else lines

    wanted, found, asked = kept(references.lines), [kept(system.lines) for system in systems], kept(sources)
    scored = chosen or systems[-1].metrics
    how: dict[str, Any] = {"language": language, "lowercase": lowercase, "names": scored, "sources": asked}
    scores = [score(lines, wanted, **how) for lines in found]
    translations = [
        [each for number, each in enumerate(system.translations, start=1) if number not in skipped]
        for system in systems
    ]
    calibration: Calibration | None = None
    reliabilities: list[Reliability | None] = [None] * len(systems)
    if model is not None:
        from seqloom.apps import calibrate as calibration_recipe

        if calibrate:
            calibration = calibration_recipe.calibrate(model, translations[-1], wanted, lowercase=lowercase)
        else:
            reliabilities = [
                calibration_recipe.reliability_of(each, wanted, lowercase=lowercase) for each in translations
            ]
    test = significance or "bootstrap"
    compared: tuple[Comparison, ...] = ()
    if len(systems) == 2:
        compared = compare(found[0], found[1], wanted, test=test, **how)
    if json:
        records = [
            {"name": system.name, "scores": list(rows), **({"confidence": fits} if fits else {})}
            for system, rows, fits in zip(systems, scores, reliabilities, strict=True)
        ]
        comparisons = [{**vars(each), "difference": each.difference} for each in compared]
        record = {"lines": len(wanted), "systems": records, "comparisons": comparisons}
        print(json_line({**record, "calibration": calibration} if calibration else record))
        return
    print(f"{len(wanted):,} lines")
    if asked and (questions := Questions.of(asked, wanted)) is not None:
        count = f"{questions.answered_often:,} of {len(questions.firsts):,} sources have several references"
        print(f"{count}; the best counts, but in BLEU, chrF and TER")
    for system, rows, fits in zip(systems, scores, reliabilities, strict=True):
        print("\n".join([system.name, *(f"  {row}" for row in score_rows(rows))]))
        if fits is not None:
            print("\n".join(f"  {row}" for row in _reliability_rows(fits)))
    if calibration is not None:
        low, high = calibration.values[0], calibration.values[-1]
        print(
            f"Calibrated {model} on {calibration.lines:,} lines: confidences are {low:.2f} to {high:.2f}, and "
            f"translations below {calibration.review_below:.2f} are marked for review"
        )
    if compared:
        test_name = "paired bootstrap" if test == "bootstrap" else "approximate randomisation"
        print(f"{systems[1].name} minus {systems[0].name} ({test_name}; TER and error rates: lower is better)")
        for row in table(
            [
                (
                    each.name,
                    f"{each.difference:+.2f}",
                    interval_text(each.interval),
                    f"p = {each.p_value:.3f}",
                    each.signature,
                )
                for each in compared
            ]
        ):
            print(f"  {row}")


def _translate(
    model: Path,
    sources: list[str],
    references: list[str],
    *,
    overrides: Sequence[str],
    fusion: tuple[Path, float] | None,
    listener: Listener,
) -> System:
    translator = open_translator(model, overrides, fusion=fusion, listener=listener)
    report_doubts(translator, sources, references, listener=listener)
    progress = progress_counter(listener, f"translating with {model}", len(sources))
    best = [each[0] for each in translator.search(sources, progress=progress)]
    name = str(model) if fusion is None else f"{model} + {fusion[1]:g} · {fusion[0]}"
    if cut := sum(each.hit_limit for each in best):
        from seqloom.runs.translator import limit_message

        notice(listener, f"{name}: {limit_message(cut, len(best))}")
    why_lowercase = "is lowercase (text.lowercase)" if translator.tokenizers.target.config.lowercase else None
    if translator.config.evaluation.lowercase:
        why_lowercase = "has evaluation.lowercase: true"
    metrics = translator.config.evaluation.metrics
    return System(name, [one_line(each.text) for each in best], translator.card.target, why_lowercase, metrics, best)


def _reliability_rows(found: "Reliability") -> list[str]:
    """How confidences fit the chrF of the same lines."""
    summary = (
        f"confidence and chrF of a line: Spearman {found.rank_correlation:.3f}, "
        f"calibration error {found.error:.3f} in {len(found.rows)} groups of lines"
    )
    rows = [
        (f"{row.lines:,} lines", f"confidence {row.confidence:.3f}", f"chrF/100 {row.reached:.3f}")
        for row in found.rows
    ]
    return [summary, *(f"  {row}" for row in table(rows))]


def _language_of(reference: Path) -> str | None:
    """The language code in the file name, if any."""
    from seqloom.data.corpus_files import languages_from
    from seqloom.text.languages import find_language

    if holds_both_sides(reference):
        found = languages_from([reference])
        return found[1] if found else None
    code = reference.with_suffix("").suffix if reference.suffix == ".gz" else reference.suffix
    try:
        return find_language(code.removeprefix(".")).code if code else None
    except SeqloomError:
        return None
