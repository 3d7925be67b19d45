"""`seqloom info`: describe a model."""

import textwrap
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from seqloom.cli.arguments import JsonResult, ModelFolder
from seqloom.cli.console import clean, counted, duration, examples, interval_text, score_text, size
from seqloom.core.archive import by_origin
from seqloom.core.errors import ModelError, UsageError
from seqloom.core.events import json_line

if TYPE_CHECKING:
    from seqloom.runs.config import RunConfig
    from seqloom.runs.model_dir import Card
    from seqloom.text.tokenizer import RoundTrip

EXAMPLES = examples("seqloom info runs/demo", "seqloom info run/model --json", "seqloom info run/model --text test.de")

SETTINGS_WIDTH = 100


def info(
    model: ModelFolder,
    text: Annotated[
        Path | None,
        typer.Option(
            "--text",
            metavar="FILE",
            help="Also tokenise this text: number of tokens, unknown tokens, and lines that detokenise to something "
            "else.",
        ),
    ] = None,
    side: Annotated[
        Literal["source", "target"] | None,
        typer.Option("--side", help="Which tokeniser of a translator --text uses; by default that of the source."),
    ] = None,
    json: JsonResult = False,
) -> None:
    """Describe a model: sizes, languages, training data, scores with their signatures, search settings, files.

    Every file is verified against its stored hash.
    """
    if side is not None and text is None:
        raise UsageError(f"--side {side} requires --text FILE")
    from seqloom.runs.loading import find_model
    from seqloom.runs.model_dir import read_card, read_settings, stored_tables

    folder = find_model(model)
    card = read_card(folder)
    config = read_settings(folder)
    detected: list[str] = []
    with suppress(ModelError):  # tables of a newer version
        detected = sorted(stored_tables(folder))
    files = {
        path.relative_to(folder).as_posix(): path.stat().st_size for path in sorted(folder.rglob("*")) if path.is_file()
    }
    if text is not None and not config.model.has_vocabulary:
        reads = "images" if config.model.reads_images else config.data_kind
        raise UsageError(f"--text {text}: a model of kind {config.model.kind} reads {reads} and has no tokeniser")
    cut = None if text is None else _cut(folder, config, text, side or "source")
    if json:
        record = {
            "path": by_origin(str(folder)),
            **vars(card),
            "config": config.model_dump(mode="json"),
            "detected_languages": detected,
            "files": files,
        }
        print(json_line(record if cut is None else {**record, "text": {**vars(cut), "unknown_rate": cut.unknown_rate}}))
    else:
        print("\n".join(_describe(folder, card, config=config, detected=detected, files=files)))
        if cut is not None:
            per_line = cut.tokens / cut.count if cut.count else 0.0
            sizes = f"{counted(cut.count, 'line')}, {counted(cut.tokens, 'token')}, {per_line:.1f} per line"
            normalised, changed = counted(cut.normalised, "line"), counted(cut.changed, "line")
            print(clean(f"{text}: {sizes}, {cut.unknown:,} unknown ({cut.unknown_rate:.2%})"))
            print(f"{normalised} changed by normalisation; {changed} different after detokenising")
            for before, after in cut.examples:
                print(clean(f"  {before!r} → {after!r}"))


def _cut(folder: Path, config: "RunConfig", text: Path, side: Literal["source", "target"]) -> "RoundTrip":
    from seqloom.cli.inputs import TextEncoding, read_side
    from seqloom.data.plain_text import read_one_language
    from seqloom.text.tokenizer import Tokenizers

    tokenizers = Tokenizers.load(folder / "text")
    tokenizer = tokenizers.source if side == "source" else tokenizers.target
    if not config.reads_pairs:
        return tokenizer.round_trip_report(list(read_one_language(text, language=config.data.target)))
    languages = config.data.source, config.data.target
    read = read_side(text, TextEncoding(), side=side, languages=languages, warn=lambda _message: None)
    return tokenizer.round_trip_report(read.lines)


def _describe(
    folder: Path, card: "Card", *, config: "RunConfig", detected: list[str], files: dict[str, int]
) -> list[str]:
    from seqloom.core.arrays import map_safetensors
    from seqloom.runs.config import FitsDocuments, FitsPairs, FitsText, OutsideConfig
    from seqloom.runs.model_dir import read_calibration
    from seqloom.search.settings import FOLLOWED_BY_FITTED
    from seqloom.text.tokenizer import Tokenizers

    use, search = config.purpose, {}
    if use == "captioner":
        languages = f"{use} of images" + (f" in {card.target}" if card.target else "")
        search = config.search.with_output_limit(card.output_limit).model_dump(mode="json")
    elif use == "translator":
        languages = f"{card.source or '?'} → {card.target or '?'}"
        if config.model.is_fitted:
            search = config.search.model_dump(mode="json", include=set(FOLLOWED_BY_FITTED))
        else:
            search = config.search.with_output_limit(card.output_limit).model_dump(mode="json")
    else:
        pair = f"{card.source or '?'} → {card.target or '?'}" if config.reads_pairs else card.target
        languages = f"{use} of {pair}" if pair else use
        if use == "language model":  # the method, and what is not a default
            values, defaults = (each.model_dump(mode="json") for each in (config.search, type(config.search)()))
            search = {name: each for name, each in values.items() if name == "method" or each != defaults[name]}
    kind, sizes = str(config.model.kind), config.model.model_dump(mode="json")
    frame = sizes.pop("frame", {})
    for name, part in list(sizes.items()):  # a section with a kind of its own: its settings one by one
        if isinstance(part, dict) and "kind" in part:
            sizes |= {name: part["kind"], **{f"{name}.{key}": value for key, value in part.items() if key != "kind"}}
    if isinstance(config.model, OutsideConfig):
        kind, sizes = f"from outside, {config.model.builder}", config.model.settings
    if "smoothing" in sizes:  # leave out what the smoothing ignores
        idle = {"laplace": ("prune", "discount_fallback"), "mle": ("alpha", "prune", "discount_fallback")}
        unused = idle.get(sizes["smoothing"], ("alpha",))
        sizes = {name: value for name, value in sizes.items() if name not in unused}
    arrays: list[tuple[str, str]] = []
    if isinstance(config.model, FitsText | FitsPairs | FitsDocuments):
        arrays = list(config.model.describe(map_safetensors(folder / "model.safetensors")).items())
    reads: list[tuple[str, str]] = []
    if config.model.reads_images:
        reads = [("Images", row) for row in _settings(config.data.images.model_dump(mode="json"))]
    elif not config.model.has_vocabulary:
        reads = _series(config)
    if config.model.has_vocabulary:
        tokenizers = Tokenizers.load(folder / "text")
        pieces = f"{tokenizers.target.size:,} pieces"
        if not tokenizers.is_shared:
            pieces = f"{tokenizers.source.size:,} source and {tokenizers.target.size:,} target pieces"
        reads += [("Text", row) for row in (pieces, *_settings(config.text.model_dump(mode="json")))]
        if config.purpose == "transcriber":
            frames = config.data.frames.model_dump(mode="json")
            frames |= {f"mel.{name}": value for name, value in frames.pop("mel").items() if frames["kind"] == "sound"}
            varied = {f"vary.{name}": value for name, value in frames.pop("vary").items()}
            reads += [("Frames", row) for row in _settings({**frames, **varied})]
    scores = [("Scores", "none")] if not card.scores else []
    for score in card.scores:
        interval = interval_text((score["interval"][0], score["interval"][1])) if score.get("interval") else ""
        value = "∞" if score["value"] is None else score_text(score["name"], score["value"])
        unit = {"labelled images": "images", "captioned images": "images", "series": "windows"}.get(
            config.data_kind, "lines"
        )
        where = f"{score.get('data', '?')}, {score.get('lines', '?')} {unit}"
        scores.append(("Scores", f"{score['name']} {value} {interval} on {where}  {score['signature']}"))
    if (note := card.trained_on.get("unbeaten")) is not None:
        scores.append(("Scores", str(note)))
    if use == "translator" and (calibration := read_calibration(folder)) is not None:
        low, high = calibration.values[0], calibration.values[-1]
        learned = f"{low:.2f} to {high:.2f}, learned from {calibration.lines:,} lines"
        scores.append(("Scores", f"confidence {learned}; below {calibration.review_below:.2f} marked for review"))
    rounding = ", large matrices rounded to eight bits" if card.is_rounded else ""
    rows = [
        ("Model", by_origin(str(folder))),
        ("Kind", f"{kind}, {card.parameters:,} parameters, {languages}"),
        *(("Sizes", row) for row in _settings(sizes)),
        *_frame(frame),
        *_classes(config),
        *arrays,
        *reads,
        *([("Detects", ", ".join(detected))] if detected else []),
        *(("Data", row) for row in _data(dict(card.trained_on))),
        *scores,
        *(("Search", row) for row in _settings(search)),
        ("Written", f"by Seqloom {card.version}, format {card.format}{rounding}"),
        *(("Files", f"{size(count):>10}  {name}") for name, count in files.items()),
    ]
    lines, last = [], ""
    for label, text in rows:
        lines.append(f"{label if label != last else '':8} {clean(text)}".rstrip())
        last = label
    return lines


def _frame(frame: dict[str, Any]) -> list[tuple[str, str]]:
    """The languages that a published model chooses from."""
    codes = sorted({*frame.get("languages", ()), *frame.get("instructions", ())})
    if not codes:
        return []
    pair = f"{frame['source'] or '?'} → {frame['target'] or '?'}" if frame["source"] or frame["target"] else "none"
    what = "languages" if frame.get("languages") else "pairs of languages"
    choices = f"{what} {len(codes)}, chosen: {pair}; {', '.join(codes)}"
    return [("Choices", row) for row in textwrap.wrap(choices, SETTINGS_WIDTH)]


def _classes(config: "RunConfig") -> list[tuple[str, str]]:
    """The labels of a classifier."""
    from seqloom.tasks.settings import ClassificationConfig

    if not isinstance(config.task, ClassificationConfig):
        return []
    reads = "images" if config.model.reads_images else "pairs of texts" if config.task.is_paired else "texts"
    labels = f"{len(config.task.labels)}, of {reads}: {', '.join(config.task.labels)}"
    return [("Classes", row) for row in textwrap.wrap(labels, SETTINGS_WIDTH)]


def _series(config: "RunConfig") -> list[tuple[str, str]]:
    """The columns of a forecaster, with their period and how they are read."""
    from seqloom.tasks.settings import ForecastingConfig

    if not isinstance(config.task, ForecastingConfig):
        return []
    names, period = config.task.series, config.task.period
    told = f"{len(names)}, {f'period {period}' if period else 'no period'}: {', '.join(names)}"
    rows = [*textwrap.wrap(told, SETTINGS_WIDTH), *_settings(config.data.series.model_dump(mode="json"))]
    return [("Series", row) for row in rows]


def _settings(values: dict[str, Any]) -> list[str]:
    """Names and values, as many on a line as fit."""
    from seqloom.runs.prepare import flat_settings

    flat = flat_settings({name: value for name, value in values.items() if name != "kind"})
    shown = [f"{name} {value}" for name, value in flat.items() if value is not None]
    joined = ", ".join(each.replace(" ", "\xa0") for each in shown)  # a line ends between settings only
    lines = textwrap.wrap(joined, SETTINGS_WIDTH, break_long_words=False, break_on_hyphens=False)
    return [line.replace("\xa0", " ") for line in lines]


def _data(trained_on: dict[str, Any]) -> list[str]:
    rows = [str(name) for name in trained_on.get("files", ())]
    if "pairs" in trained_on:
        rows.append(f"{trained_on['pairs']:,} pairs, fingerprint {str(trained_on.get('data', '?'))[:12]}")
    if "lines" in trained_on:
        size_of = f"{counted(trained_on['lines'], 'line')}, {counted(trained_on.get('tokens', 0), 'token')}"
        rows.append(f"{size_of}, fingerprint {str(trained_on.get('data', '?'))[:12]}")
    if "images" in trained_on:
        captions = f" with {counted(trained_on['captions'], 'caption')}" if "captions" in trained_on else ""
        size_of = f"{counted(trained_on['images'], 'image')}{captions}"
        rows.append(f"{size_of}, fingerprint {str(trained_on.get('data', '?'))[:12]}")
    if "rows" in trained_on:
        size_of = f"{counted(trained_on['rows'], 'row')} of {trained_on.get('series', '?')} series"
        rows.append(f"{size_of}, fingerprint {str(trained_on.get('data', '?'))[:12]}")
    if "steps" not in trained_on and "seconds" in trained_on:
        rows.append(f"fitted in {duration(float(trained_on['seconds']))}")
    if "steps" in trained_on:
        units = {
            "target_tokens": "target tokens",
            "hidden_tokens": "hidden tokens",
            "texts_read": "texts",
            "pairs_read": "pairs",
            "images_read": "images",
            "values_read": "values",
            "tokens_read": "tokens",
        }
        name = next((name for name in units if name in trained_on), "tokens_read")
        tokens, unit = trained_on.get(name, 0), units[name]
        loss = trained_on.get("best_dev_loss")
        best = f", best dev loss {loss:.4f}" if isinstance(loss, float) else ""
        taken = duration(float(trained_on.get("seconds", 0)))
        rows.append(f"{trained_on['steps']:,} steps over {tokens:,} {unit} in {taken}{best}")
    if isinstance(imported := trained_on.get("imported"), dict):
        rows.append(f"imported from a published model of type {imported.get('model_type')}")
    if "weights" in trained_on:
        rows.append(f"{trained_on['weights']}, dev loss {trained_on.get('dev_loss', float('nan')):.4f}")
    if isinstance(unfinished := trained_on.get("unfinished"), dict):
        rows.append(f"a checkpoint of an unfinished run: step {unfinished['step']:,} of {unfinished['steps']:,}")
    rows += [f"averaged from {name}" for name in trained_on.get("averaged", ())]
    return rows
