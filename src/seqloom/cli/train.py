"""`seqloom train`: from text files to a model."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from seqloom.cli.arguments import (
    Encoding,
    JsonEvents,
    OnBadUtf8,
    config_and_overrides,
    encoding_settings,
    file_names,
    is_file,
    refuse_expanded,
    require_utf8_names,
)
from seqloom.cli.console import duration, examples, score_rows, show_events
from seqloom.core.errors import UsageError
from seqloom.core.events import json_line
from seqloom.core.files import matching_files, require_file, require_folders_above, require_run

if TYPE_CHECKING:
    from seqloom.runs.train import Trained

EXAMPLES = examples(
    "seqloom train --train corpus.de --train corpus.en --out run",
    "seqloom train --train corpus.de,corpus.en --dev dev.de,dev.en --out run model.width=256 training.steps=20000",
    "seqloom train --train corpora --dev dev.de,dev.en --out run data.source=de data.target=en",
    "seqloom train model.kind=rnn_lm --train text.txt --out language-model",
    "seqloom train model.kind=ngram --train text.txt --dev dev.txt --out ngram model.order=5",
    "seqloom train task.kind=classification --train reviews.tsv --out run",
    "seqloom train task.kind=denoising --train text.de --train text.en --out trunk",
    "seqloom train --train corpus.de --train corpus.en --out run training.start_from=trunk",
    "seqloom train --train a.en --train a.de --out run training.start_from=opus-mt-en-de training.lora.rank=8",
    "seqloom train task.kind=classification training.start_from=bert-base-cased --train reviews.tsv --out run",
    "seqloom train task.kind=contrastive --train train.de --train train.en --out run",
    "seqloom train model.kind=vit --train photos --out run",
    "seqloom train run.yaml seed=3 --out run-3",
    "seqloom train --resume run training.steps=40000",
)
FILES, RESUMING = "Files", "Resuming"


Words = Annotated[
    list[str] | None,
    typer.Argument(metavar="CONFIG.yaml path=value", help="A config file, and settings that override it."),
]
TrainFiles = Annotated[
    list[str] | None,
    typer.Option(
        "--train",
        metavar="FILE",
        rich_help_panel=FILES,
        help="Training text: the source file, then the target file (or SOURCE,TARGET), or one .tsv; for language "
        "models, encoders, denoising and word vectors, any number of texts; for classifiers, files with a label and a "
        "text in each line (.tsv, .jsonl, __label__X text, X text), or images: a folder with one subfolder per class, "
        "or an .npz file; for forecasters, a .csv or .tsv of numbers. Or a folder: its pairs of files (news.de and "
        "news.en, with data.source=de data.target=en), its .tsv or .tmx files, or its texts.",
    ),
]
DevFiles = Annotated[
    list[str] | None,
    typer.Option(
        "--dev",
        metavar="FILE",
        rich_help_panel=FILES,
        help="Validation text, in the same form; by default, part of the training text is held out.",
    ),
]
Out = Annotated[
    Path | None, typer.Option("--out", metavar="RUN", rich_help_panel=FILES, help="A new folder for the run.")
]
Resume = Annotated[
    Path | None,
    typer.Option(
        "--resume", metavar="RUN", rich_help_panel=RESUMING, help="Continue this run from its latest checkpoint."
    ),
]
Exact = Annotated[
    bool,
    typer.Option(
        "--exact",
        rich_help_panel=RESUMING,
        help="Fail unless the result will be bit-identical to an uninterrupted run.",
    ),
]
AllowDataChange = Annotated[
    bool,
    typer.Option(
        "--allow-data-change", rich_help_panel=RESUMING, help="Resume even if the training files have changed."
    ),
]
Strict = Annotated[
    bool,
    typer.Option(
        "--strict",
        rich_help_panel=RESUMING,
        help="Fail if the latest checkpoint is damaged, instead of using an older one.",
    ),
]
StrictSave = Annotated[
    bool,
    typer.Option(
        "--strict-save", help="Stop the run if a checkpoint cannot be written; by default, training continues."
    ),
]


def train(
    words: Words = None,
    train: TrainFiles = None,
    dev: DevFiles = None,
    out: Out = None,
    resume: Resume = None,
    exact: Exact = False,
    allow_data_change: AllowDataChange = False,
    strict: Strict = False,
    strict_save: StrictSave = False,
    encoding: Encoding = None,
    on_bad_utf8: OnBadUtf8 = None,
    json: JsonEvents = False,
) -> None:
    """Train a model on your own text: a translator, a language model, an encoder, a classifier or word vectors.

    [bold]model.kind[/bold] selects the model: transformer (the default), t5, seq2seq, phrases, channel and dictionary
    translate; rnn_lm, gpt, elmo, vae, ngram, markov and hmm are language models; bert is an encoder, with
    task.kind=classification a classifier, and with task.kind=contrastive it learns vectors of sentences from pairs;
    classifier learns labels of texts; tagger tags words; vit and swin classify images; ctc and listener transcribe
    recordings and handwriting; captioner describes images; forecaster continues series of numbers; word2vec learns word
    vectors.

    Settings that you do not give are chosen from the size of the data, and the reasons are printed.

    The run folder contains everything; the finished model is the folder RUN/model.
    """
    if train:
        refuse_expanded(words, option="--train")
    config, overrides = config_and_overrides(words, hint="name training text with --train")
    overrides = (*overrides, *encoding_settings(encoding, on_bad_utf8))
    names, dev_names = file_names(train), file_names(dev)
    require_utf8_names([config, out, resume, *overrides, *names, *dev_names])
    if resume is not None:
        if exact and allow_data_change:
            raise UsageError("--exact cannot be combined with --allow-data-change: other data give other results")
        if out is not None:
            raise UsageError(f"--resume {resume} continues in that folder; leave out --out {out}")
        if config is not None or names or dev_names:
            what = str(config) if config is not None else "--train and --dev"
            raise UsageError(
                f"--resume {resume} takes its files and settings from the run; leave out {what}. "
                "Single settings may change: training.steps=20000"
            )
        require_run(resume)
    else:
        for flag, is_given in (("--exact", exact), ("--allow-data-change", allow_data_change), ("--strict", strict)):
            if is_given:
                raise UsageError(f"{flag} requires --resume RUN")
        if out is None:
            raise UsageError("name a folder for the run with --out, such as --out runs/first")
        require_folders_above(out)
        if not is_file(out / "run.json"):  # a run restarted by torchrun no longer needs its text
            require_files(config, [*names, *dev_names])

    from seqloom.runs import train as recipe

    with show_events(as_json=json) as listener:
        if resume is not None:
            trained = recipe.resume(
                resume,
                overrides,
                exact=exact,
                allow_data_change=allow_data_change,
                strict=strict,
                strict_save=strict_save,
                listener=listener,
            )
        else:
            assert out is not None
            trained = recipe.train(
                config, overrides, out=out, train=names, dev=dev_names, strict_save=strict_save, listener=listener
            )
    if trained is not None:  # only the first rank of a distributed run has a result
        print(json_line(trained) if json else "\n".join(describe(trained)))


def require_files(config: Path | None, names: list[str]) -> None:
    """Refuse missing files, before the seconds that importing the training code takes."""
    files = [file for name in names for file in matching_files(Path(name))]
    for file in files if config is None else [config, *files]:
        if file == config or not file.is_dir():  # the files of a folder depend on settings
            require_file(file)


def describe(trained: "Trained") -> list[str]:
    """The result of a run, and commands to run next."""
    from seqloom.runs.twins import unbeaten

    outcome, model = trained.outcome, trained.model
    if outcome.reason == "fitted":
        effort = f"{outcome.message.capitalize()} in {duration(outcome.seconds)}"
    else:
        best = f", best dev loss {outcome.best_loss:.4f} at step {outcome.best_step:,}" if outcome.best_loss else ""
        skipped = f", {outcome.skipped} steps skipped" if outcome.skipped else ""
        effort = f"Steps  {outcome.step:,} in {duration(outcome.seconds)}{best}{skipped}"
    commands = {
        "translator": [f"seqloom translate {model} FILE"],
        "language model": [f"seqloom perplexity {model} FILE", f"seqloom generate {model} --prompt 'The'"],
        "word vectors": [f"seqloom vectors nearest {model} WORD"],
        "encoder": [f"seqloom embed {model} FILE --out vectors.npy", f"seqloom retrieve {model} QUERIES TEXTS"],
        "aligner": [f"seqloom align --model {model} --text SOURCE,TARGET"],
        "classifier": [f"seqloom classify {model} FILE"],
        "tagger": [f"seqloom tag {model} FILE"],
        "forecaster": [f"seqloom forecast {model} FILE", f"seqloom forecast {model} FILE --backtest"],
        "transcriber": [f"seqloom transcribe {model} FILE"],
        "captioner": [f"seqloom caption {model} IMAGE", f"seqloom caption {model} --reference TABLE"],
        "summariser": [f"seqloom summarise {model} FILE", f"seqloom summarise {model} --reference FILE"],
        "denoiser": [f"seqloom train --train SOURCE --train TARGET --out RUN training.start_from={model}"],
    }[trained.use]
    if outcome.reason in ("steps", "nothing to do") and outcome.best_step == outcome.step:
        longer = f"seqloom train --resume {trained.run} training.steps={2 * outcome.step}"
        commands.append(f"{longer}  (dev loss still falling)")
    commands.append(f"seqloom info {trained.run}")
    return [
        f"Model  {model}",
        effort,
        *(f"{'Dev' if at == 0 else '':5}  {row}" for at, row in enumerate(score_rows(trained.scores))),
        *([f"Note   {note}"] if (note := unbeaten(trained.scores)) is not None else []),
        *(f"{'Next' if at == 0 else '':5}  {line}" for at, line in enumerate(commands)),
    ]
