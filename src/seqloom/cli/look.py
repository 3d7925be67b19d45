"""`seqloom look`: pictures of what a model does."""

from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from seqloom.cli.console import show_events
from seqloom.cli.loading import open_translator
from seqloom.cli.look_beam import EXAMPLES as BEAM_EXAMPLES
from seqloom.cli.look_beam import beam
from seqloom.cli.look_partition import EXAMPLES as PARTITION_EXAMPLES
from seqloom.cli.look_partition import partition
from seqloom.cli.look_zipf import EXAMPLES as ZIPF_EXAMPLES
from seqloom.cli.look_zipf import zipf
from seqloom.cli.output import clean, examples, json_line, table
from seqloom.core.errors import UsageError
from seqloom.core.events import Event
from seqloom.text.formats.catalogues import holds_both_sides

if TYPE_CHECKING:
    from seqloom.recipes.gradients import Pair
    from seqloom.recipes.load import LoadedModel

EXAMPLES = examples("seqloom look attention runs/demo 'The old man reads a book.' --out attention.png")
GRADIENT_EXAMPLES = examples(
    "seqloom look gradients runs/demo --out gradients.png",
    "seqloom look gradients run/model --source test.de --reference test.en --lines 50",
    "seqloom look gradients run/model 'Guten Morgen.' 'Good morning.' --out gradients.svg --json",
    "seqloom look gradients runs/lstm 'The dog sleeps.'",
)

HEADS_EXAMPLES = examples(
    "seqloom look heads run/model dev.de dev.en",
    "seqloom look heads run/model test.de test.en --links test.align",
)

app = typer.Typer(help="Look into a model: draw what it does with a sentence.")
app.command(epilog=BEAM_EXAMPLES)(beam)
app.command(epilog=ZIPF_EXAMPLES)(zipf)
app.command(epilog=PARTITION_EXAMPLES)(partition)

Model = Annotated[Path, typer.Argument(metavar="MODEL", help="A model folder or a run.")]


@app.callback()
def look() -> None:
    """Look into a model: draw what it does with a sentence."""


@app.command(epilog=EXAMPLES)
def attention(
    model: Model,
    sentence: Annotated[str, typer.Argument(metavar="SENTENCE", help="A sentence in the source language.")],
    out: Annotated[
        Path, typer.Option("--out", metavar="PICTURE", help="Where to draw it, PNG or SVG by the ending.")
    ] = Path("attention.png"),
    json: Annotated[bool, typer.Option("--json", help="Pieces and weights as JSON on stdout as well.")] = False,
) -> None:
    """Translate a sentence and draw where the model looked: a row per target piece, a column per source piece.

    Shown are the weights of the last decoder layer, the mean over its heads.
    """
    from seqloom.recipes.look import draw_attention

    _check_picture(out)
    translator = open_translator(model)
    out.parent.mkdir(parents=True, exist_ok=True)
    found = draw_attention(translator, sentence, out)
    if json:
        values = {"text": found.text, "source": found.source, "target": found.target}
        print(json_line({**values, "weights": found.weights.tolist(), "picture": out}))
    else:
        print(clean(found.text))
        print(f"drawn in {out}")


@app.command(epilog=GRADIENT_EXAMPLES)
def gradients(
    model: Model,
    pair: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[SENTENCE TRANSLATION]",
            help="One sentence and its translation to look at; for a language model, a sentence alone.",
        ),
    ] = None,
    source: Annotated[
        Path | None,
        typer.Option("--source", metavar="FILE", help="Sentences to look at, one per line; or a file of both sides."),
    ] = None,
    reference: Annotated[
        Path | None,
        typer.Option("--reference", metavar="FILE", help="Their translations, line by line."),
    ] = None,
    lines: Annotated[
        int, typer.Option("--lines", min=1, metavar="N", help="How many pairs of a file or a dev set to look at.")
    ] = 20,
    out: Annotated[
        Path, typer.Option("--out", metavar="PICTURE", help="Where to draw it, PNG or SVG by the ending.")
    ] = Path("gradients.png"),
    json: Annotated[bool, typer.Option("--json", help="All numbers as JSON on stdout, a record per picture.")] = False,
) -> None:
    """See how far back a model learns from: the gradient of each loss with respect to each input before it.

    A recurrent decoder passes the gradient back step by step, and it fades on the way; attention has short ways to
    everywhere. The picture shows a sentence as a map (a row per loss, a column per input) and the mean norm by
    distance, with the distance at which half of it is left. In the source that distance is counted from the diagonal,
    or without attention from the end at which the decoder's first state was reached. A recurrent model gets a second
    picture, PICTURE-spectra: the eigenvalues and singular values of its state matrices, and of a whole step.
    A recurrent language model (rnn_lm, elmo) is looked at on its text alone, an ELMo as it reads from left to right.

    Without sentences, some of the run's own dev set are taken.
    """
    from seqloom.recipes.gradients import look_at_gradients
    from seqloom.recipes.load import find_model, load, read_settings, require_trained, use_of

    _check_picture(out)
    folder = find_model(model)
    config = read_settings(folder)
    require_trained(folder, config, what="it has no gradients")
    _check_sentences(pair or [], source=source, reference=reference, has_pairs=use_of(config) == "translator")
    loaded = load(model)
    out.parent.mkdir(parents=True, exist_ok=True)
    pairs = _pairs(model, loaded, given=pair or [], files=(source, reference), lines=lines)
    with show_events(as_json=json) as listener:
        found = look_at_gradients(
            loaded,
            pairs,
            progress=lambda done: listener(
                Event("progress", {"what": "looking at pairs", "done": done, "all": len(pairs)})
            ),
        )
        for finding in found:
            picture = out if finding is found[0] else out.with_stem(f"{out.stem}-{finding.name}")
            finding.draw().savefig(picture, dpi=144)
            if json:
                values = {"name": finding.name, "sentence": finding.sentence, **finding.data, "picture": picture}
                print(json_line(values))
            else:
                print(clean(finding.sentence))
                print(f"drawn in {picture}")


@app.command(epilog=HEADS_EXAMPLES)
def heads(
    model: Model,
    files: Annotated[
        list[Path], typer.Argument(metavar="SOURCE TARGET", help="Two text files, or one .tsv with both columns.")
    ],
    links: Annotated[
        Path | None,
        typer.Option(
            "--links",
            metavar="FILE",
            help="Which words belong together, as lines 0-0 1-2 or as .wa, in place of what IBM model 1 finds in the "
            "pairs.",
        ),
    ] = None,
    lines: Annotated[int, typer.Option("--lines", min=1, metavar="N", help="How many pairs to look at.")] = 1000,
    json: Annotated[bool, typer.Option("--json", help="The same as JSON.")] = False,
) -> None:
    """Find the head of a Transformer that aligns words best, for [bold]translate --align search.heads=…[/bold].

    The model reads given translations. Each head links a target word to the source word it looks at most; F1 says how
    well its links agree with those of IBM model 1, or with given ones.
    """
    from seqloom.cli.score import languages_for, read_pairs
    from seqloom.recipes.alignments import best_head
    from seqloom.recipes.load import load, require_translator
    from seqloom.text.formats.pharaoh import read_gold
    from seqloom.text.normalise import is_blank

    with show_events(as_json=json) as listener:
        pairs = read_pairs(files, languages=languages_for(model, files), listener=listener)
        gold = None if links is None else [each.sure for each in read_gold(links, len(pairs)).links]
        kept = [at for at, pair in enumerate(pairs) if not any(map(is_blank, pair))][:lines]
        loaded = load(model)
        require_translator(loaded.folder, loaded.config)
        found = best_head(
            loaded,
            [pairs[at] for at in kept],
            None if gold is None else [gold[at] for at in kept],
            progress=lambda done: listener(
                Event("progress", {"what": "looking at pairs", "done": done, "all": len(kept)})
            ),
        )
    if json:
        print(json_line({"heads": found.heads, "pairs": len(kept), "agreements": found.agreements.tolist()}))
        return
    print(f"F1 of each head's links in {len(kept):,} pairs, layers and heads counted from 0")
    columns = [f"head {number}" for number in range(found.agreements.shape[1])]
    rows = [(f"layer {number}", *(f"{value:.3f}" for value in row)) for number, row in enumerate(found.agreements)]
    print("\n".join(f"  {row}" for row in table([("", *columns), *rows])))
    print(f"Best  search.heads={found.heads}")


def _check_picture(out: Path) -> None:
    """Before the work: whether a picture can be written there. Folders that are missing will be made."""
    if out.suffix not in (".png", ".svg"):
        raise UsageError(f"{out} is neither .png nor .svg; name the picture with one of these endings")
    for above in out.parents:
        if above.exists() and not above.is_dir():
            raise UsageError(f"{above} is a file, so {out} cannot be drawn in it; choose another --out")


def _check_sentences(pair: list[str], *, source: Path | None, reference: Path | None, has_pairs: bool) -> None:
    if not has_pairs:
        if reference is not None or len(pair) > 1:
            raise UsageError(
                f"a language model reads one text, so it needs no {'--reference' if reference else 'translation'}; "
                "give one sentence, in quotes, or --source FILE"
            )
    elif len(pair) not in (0, 2):
        raise UsageError(
            f"a sentence and its translation make a pair, but {len(pair)} words were given; put each into quotes: "
            "'Guten Morgen.' 'Good morning.'"
        )
    elif (source is None) != (reference is None) and not (source is not None and holds_both_sides(source)):
        given, missing = ("--source", "--reference") if reference is None else ("--reference", "--source")
        raise UsageError(f"{given} {source or reference} needs its partner, line by line: {missing} FILE")
    if pair and source is not None:
        raise UsageError(f"sentences come from {source} or from the command line, not from both; leave one out")


def _pairs(
    model: Path, loaded: "LoadedModel", *, given: list[str], files: tuple[Path | None, Path | None], lines: int
) -> "list[Pair]":
    from seqloom.cli.score import read_pairs
    from seqloom.data.text import read_one_language
    from seqloom.recipes.gradients import dev_pairs, text_lines, text_pairs
    from seqloom.recipes.load import use_of

    source, reference = files
    if use_of(loaded.config) != "translator" and (given or source is not None):
        if source is None:
            return text_lines(loaded, given)
        texts = read_one_language(source, language=loaded.config.data.target)
        return text_lines(loaded, list(islice(texts, lines)))
    if given:
        return text_pairs(loaded, [(given[0], given[1])])
    if source is not None:
        paths = [source] if reference is None else [source, reference]
        languages = loaded.config.data.source, loaded.config.data.target
        return text_pairs(loaded, read_pairs(paths, languages=languages)[:lines])
    return dev_pairs(model, loaded, count=lines)
