"""`seqloom look`: draw what a model does."""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from seqloom.cli.arguments import (
    JsonResult,
    ModelFolder,
    Picture,
    parse_words,
    require_picture,
    require_search_settings,
)
from seqloom.cli.console import clean, examples, show_events, table
from seqloom.cli.inputs import languages_for, open_translator, read_pairs
from seqloom.core.errors import UsageError
from seqloom.core.events import json_line, notice, progress
from seqloom.core.files import require_folders_above
from seqloom.text.formats.readers import holds_both_sides

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from seqloom.drawing.figures import Finding
    from seqloom.look.gradients import GradientPair
    from seqloom.look.zipf import OrderStatistics
    from seqloom.runs.loading import LoadedModel


Sentence = Annotated[str, typer.Argument(metavar="SENTENCE", help="A sentence in the source language.")]
Sentences = Annotated[
    Path | None,
    typer.Option("--source", metavar="FILE", help="Sentences, one per line, or a file with both sides."),
]
Translations = Annotated[
    Path | None,
    typer.Option("--reference", metavar="FILE", help="Their translations, line by line."),
]
PairCount = Annotated[
    int, typer.Option("--lines", min=1, metavar="N", help="Number of pairs taken from a file or dev set.")
]
JsonNumbers = Annotated[bool, typer.Option("--json", help="Print all numbers as JSON, a record per picture.")]

app = typer.Typer(
    help="Draw what a model does: attention, beam search, gradients, heads and layers, statistics of text."
)


@app.callback()
def look() -> None:
    """Draw what a model does: attention, beam search, gradients, heads and layers, statistics of text."""


def _save(figure: "Figure", out: Path) -> None:
    out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out, dpi=144, metadata={"Date": None} if out.suffix == ".svg" else None)


# --- the tree of a beam search ---------------------------------------------------------------------------------------

BEAM_EXAMPLES = examples(
    "seqloom look beam runs/demo 'The old man reads a book.'",
    "seqloom look beam run/model 'Guten Morgen.' --out beam.svg search.beam=4 search.nbest=4",
)


@app.command(epilog=BEAM_EXAMPLES)
def beam(
    model: ModelFolder,
    sentence: Sentence,
    words: Annotated[
        list[str] | None, typer.Argument(metavar="search.beam=4", help="Search settings, path=value.")
    ] = None,
    out: Annotated[
        Path,
        typer.Option("--out", metavar="FILE", help="Output file: interactive (.html) or a picture (.svg, .png)."),
    ] = Path("beam.html"),
    pruned: Annotated[
        int,
        typer.Option(
            "--pruned", min=1, metavar="N", help="Number of pruned children drawn for each node; others are counted."
        ),
    ] = 2,
    json: Annotated[bool, typer.Option("--json", help="Also print hypotheses and nodes as JSON.")] = False,
) -> None:
    """Translate a sentence with beam search and draw all candidates: expanded, pruned or finished.

    Steps run from left to right; the width of a line is the probability of its symbol, and the best hypothesis is
    highlighted. The page shows the score terms of each node, replays the search, and needs no network.
    """
    from seqloom.look.attention import BEAM_ENDINGS, draw_beam_search
    from seqloom.look.beam_tree import describe

    given = parse_words(words)
    if given.others:
        raise UsageError(f"expected one sentence, also got {given.others[0]!r}; quote the sentence")
    require_search_settings(given.overrides)
    if out.suffix not in BEAM_ENDINGS:
        raise UsageError(f"{out} is neither .html nor .svg nor .png; use one of these suffixes")
    require_folders_above(out)
    translator = open_translator(model, given.overrides)
    out.parent.mkdir(parents=True, exist_ok=True)
    tree = draw_beam_search(translator, sentence, out, pruned=pruned)
    if json:
        leaves = [
            {
                "text": leaf.text,
                "score": leaf.node.score,
                "terms": leaf.node.terms,
                "path": leaf.path,
                "is_finished": leaf.node.fate == "finished",
                "is_returned": leaf.is_returned,
                "is_complete": leaf.is_complete,
            }
            for leaf in tree.leaves
        ]
        nodes = [
            {
                "number": place.node.number,
                "parent": place.node.parent,
                "step": place.node.step,
                "symbol": place.symbol,
                "token_log_prob": place.node.token_log_prob,
                "fate": place.node.fate,
                "rank": place.rank,
                "others": place.others,
                "terms": place.node.terms,
            }
            for place in tree.places
        ]
        record = {"sentence": describe(tree), "leaves": leaves, "fates": tree.fates, "nodes": nodes, "picture": out}
        print(json_line(record))
        return
    rows = [(f"{place}", f"{leaf.node.score:.3f}", clean(leaf.text)) for place, leaf in enumerate(tree.leaves, start=1)]
    print("\n".join([*table(rows), describe(tree), f"drawn in {out}"]))


# --- statistics of a text --------------------------------------------------------------------------------------------

ZIPF_EXAMPLES = examples(
    "seqloom look zipf corpus.en",
    "seqloom look zipf corpus.en.gz --out zipf.png unit=characters orders=2",
    "seqloom look zipf corpus.en --pieces runs/demo --json",
)

MIN_RANKS = 20
"""Ranks below which an exponent is not reported: it would change with every word."""


@app.command(epilog=ZIPF_EXAMPLES)
def zipf(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="FILE… [path=value]",
            help="Text files, plain or .gz; settings: unit=characters, lowercase=false, punctuation=true, "
            "minimum_count=5, orders=2 …",
        ),
    ] = None,
    pieces: Annotated[
        Path | None,
        typer.Option("--pieces", metavar="MODEL", help="Count the pieces of this model's tokeniser instead of words."),
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", metavar="PICTURE", help="Output file, .png or .svg.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print all numbers as one JSON record.")] = False,
) -> None:
    """Measure the statistics of a text: n-gram counts by rank, Zipf's law, and the growth of the vocabulary.

    A line is a sentence; n-grams do not cross lines. The exponent α of [bold]count ∝ 1 / (rank + b)^α[/bold] is the
    maximum-likelihood estimate for n-grams seen at least ten times, with b = 0 (Zipf) and with the best b (Mandelbrot).
    The slope of a line fitted to the logarithms is printed beside them.
    """
    from seqloom.core.config import resolve
    from seqloom.look.zipf import ZipfConfig, find_tokenizer, look_at_counts

    given = parse_words(words)
    if not given.others:
        raise UsageError("no text given: seqloom look zipf corpus.en")
    if out is not None:
        require_picture(out)
    config = resolve(ZipfConfig, overrides=given.overrides)
    tokenizer = None if pieces is None else find_tokenizer(pieces)
    with show_events(as_json=json) as listener:
        found = look_at_counts([Path(name) for name in given.others], config, tokenizer=tokenizer, listener=listener)
    if out is not None:
        _save(found.draw(), out)
    if json:
        picture = {} if out is None else {"picture": out}
        print(json_line({"unit": found.unit, "settings": config.model_dump(), "text": found.statistics, **picture}))
        return
    text, unit = found.statistics, found.unit
    lengths, growth = text.lengths, text.growth
    print(
        f"{lengths.lines:,} lines of {lengths.shortest:,} to {lengths.longest:,} {unit}s: mean {lengths.mean:.1f}, "
        f"median {lengths.median:g}, 95% have at most {lengths.ninety_fifth:.0f}; {lengths.blank:,} blank\n"
    )
    head = ("", f"{unit}s", "different", "once", "Zipf α", "Mandelbrot α, b", "line α", "fitted ranks")
    print("\n".join(table([head, *map(_order_row, text.orders)])))
    print(f"\nVocabulary: grows like {growth.scale:.3g} · tokens^{growth.exponent:.3f} (Heaps)")
    shares = [
        f"the first {k:,} are {share:.1%}" if k > 1 else f"the first is {share:.1%}"
        for k, share in text.orders[0].coverage
    ]
    print(f"Coverage: {', '.join(shares)} of all {unit}s\n")
    for order in text.orders:
        if order.top:
            print(f"{order.order}-grams: {', '.join(f'{clean(ngram.text)} {ngram.count:,}' for ngram in order.top)}")
    if out is not None:
        print(f"drawn in {out}")


def _order_row(order: "OrderStatistics") -> tuple[str, ...]:
    head = (f"{order.order}-grams", f"{order.tokens:,}", f"{order.types:,}", f"{order.singletons:,}")
    if order.fits is None or order.fits.zipf.ranks < MIN_RANKS:
        ranks = 0 if order.fits is None else order.fits.zipf.ranks
        return (*head, "—", "—", "—", f"{ranks}: too few" if ranks else "too few frequent ones")
    zipf, mandelbrot, line = order.fits.zipf, order.fits.mandelbrot, order.fits.line
    shifted = f"{mandelbrot.exponent:.3f}, {mandelbrot.shift:.1f}"
    return (*head, f"{zipf.exponent:.3f}", shifted, f"{line.exponent:.3f}", f"{zipf.ranks:,}")


# --- the normaliser of a language model ------------------------------------------------------------------------------

PARTITION_EXAMPLES = examples(
    "seqloom look partition run/model test.txt",
    "seqloom look partition run/model test.txt --out partition.svg tokens=4096 samples=[64,1024]",
)


@app.command(epilog=PARTITION_EXAMPLES)
def partition(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A recurrent language model, its run or its archive.")],
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE [path=value]", help="A text; settings: tokens=4096, samples=[64,1024], power=0.75 …"
        ),
    ],
    out: Picture = Path("partition.png"),
    json: JsonNumbers = False,
) -> None:
    """Measure how far a language model is from normalised: log Z = log Σ exp(score) at the positions of a text.

    NCE assumes log Z = 0; maximum likelihood does not constrain it. Two more pictures show what a sampled loss would
    see: PICTURE-gradient-cosine, the cosine between its gradient and that of the full softmax by number of samples, and
    PICTURE-importance-variance, how well importance sampling estimates Z.
    """
    from seqloom.core.config import resolve
    from seqloom.look.partition import PartitionConfig, look_at_partition
    from seqloom.runs.loading import load_any

    given = parse_words(words)
    if len(given.others) != 1:
        raise UsageError(f"expected one text, got {len(given.others)}: seqloom look partition MODEL test.txt")
    require_picture(out)
    config = resolve(PartitionConfig, overrides=given.overrides)
    loaded = load_any(model)
    with show_events(as_json=json) as listener:
        found = look_at_partition(
            loaded, Path(given.others[0]), config, progress=partial(progress, listener, "measuring log Z, parts")
        )
    _draw(found, out, as_json=json)


def _draw(found: "Sequence[Finding]", out: Path, *, as_json: bool) -> None:
    """Draw each finding into a picture of its own, the first one into `out`, and print it."""
    for finding in found:
        picture = out if finding is found[0] else out.with_stem(f"{out.stem}-{finding.name}")
        _save(finding.draw(), picture)
        if as_json:
            print(json_line({"name": finding.name, "sentence": finding.sentence, **finding.data, "picture": picture}))
        else:
            print(f"{clean(finding.sentence)}\ndrawn in {picture}")


# --- attention and gradients -----------------------------------------------------------------------------------------

ATTENTION_EXAMPLES = examples("seqloom look attention runs/demo 'The old man reads a book.' --out attention.png")
GRADIENT_EXAMPLES = examples(
    "seqloom look gradients runs/demo --out gradients.png",
    "seqloom look gradients run/model --source test.de --reference test.en --lines 50",
    "seqloom look gradients run/model 'Guten Morgen.' 'Good morning.' --out gradients.svg --json",
    "seqloom look gradients runs/lstm 'The dog sleeps.'",
)


@app.command(epilog=ATTENTION_EXAMPLES)
def attention(
    model: ModelFolder,
    sentence: Sentence,
    out: Picture = Path("attention.png"),
    json: Annotated[bool, typer.Option("--json", help="Also print pieces and weights as JSON.")] = False,
) -> None:
    """Translate a sentence and draw the attention: a row per target piece, a column per source piece.

    The weights are those of the last decoder layer, averaged over its heads.
    """
    from seqloom.look.attention import draw_attention

    require_picture(out)
    translator = open_translator(model)
    out.parent.mkdir(parents=True, exist_ok=True)
    found = draw_attention(translator, sentence, out)
    if json:
        values = {"text": found.text, "source": found.source, "target": found.target}
        print(json_line({**values, "weights": found.weights.tolist(), "picture": out}))
    else:
        print(f"{clean(found.text)}\ndrawn in {out}")


@app.command(epilog=GRADIENT_EXAMPLES)
def gradients(
    model: ModelFolder,
    pair: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[SENTENCE TRANSLATION]",
            help="A sentence and its translation; for a language model, a sentence only.",
        ),
    ] = None,
    source: Sentences = None,
    reference: Translations = None,
    lines: PairCount = 20,
    out: Picture = Path("gradients.png"),
    json: JsonNumbers = False,
) -> None:
    """Draw how far back a model learns: the gradient of each loss with respect to each earlier input.

    In a recurrent decoder the gradient passes through every step and fades; attention gives it short paths. The picture
    shows a sentence as a map (a row per loss, a column per input) and the mean norm by distance, with the distance at
    which half of it is left. In the source, distance is counted from the diagonal, or without attention from the end
    that the decoder's first state comes from. For a recurrent model a second picture, PICTURE-spectra, shows the
    eigenvalues and singular values of its state matrices and of a whole step. A recurrent language model (rnn_lm,
    elmo) needs text of one language only; an ELMo is measured from left to right.

    Without sentences, pairs of the run's dev set are used.
    """
    from seqloom.look.gradients import look_at_gradients, text_lines
    from seqloom.runs.loading import find_model, in_words, require_trained
    from seqloom.runs.model_dir import read_settings

    require_picture(out)
    folder = find_model(model)
    config = read_settings(folder)
    require_trained(folder, config, what="it has no gradients")
    if config.purpose not in ("translator", "language model"):
        raise UsageError(f"gradients through time cannot be drawn of {folder}: {in_words(config)}")
    loaded, pairs = _read_texts(model, pair or [], source=source, reference=reference, lines=lines, encode=text_lines)
    with show_events(as_json=json) as listener:
        report = partial(progress, listener, "measuring pairs", total=len(pairs))
        found = look_at_gradients(loaded, pairs, progress=report)
    _draw(found, out, as_json=json)


def _read_texts(
    model: Path,
    given: Sequence[str],
    *,
    source: Path | None,
    reference: Path | None,
    lines: int,
    encode: "Callable[[LoadedModel, Sequence[str]], list[GradientPair]]",
) -> "tuple[LoadedModel, list[GradientPair]]":
    """The model, and texts for it: given ones, those of files, or some of its dev set.

    `encode` reads lines of one language, which all models but translators take.
    """
    from seqloom.data.plain_text import read_one_language
    from seqloom.look.gradients import dev_pairs, text_pairs
    from seqloom.runs.loading import find_model, load
    from seqloom.runs.model_dir import read_settings

    config = read_settings(find_model(model))
    is_translator = config.purpose == "translator"
    if not is_translator:
        if reference is not None or len(given) > 1:
            kind = "language model" if config.purpose == "language model" else "model of one language"
            raise UsageError(
                f"a {kind} takes no {'--reference' if reference else 'translation'}; "
                "give one quoted sentence, or --source FILE"
            )
    elif len(given) not in (0, 2):
        raise UsageError(
            f"expected a sentence and its translation, got {len(given)} arguments; quote each: "
            "'Guten Morgen.' 'Good morning.'"
        )
    elif (source is None) != (reference is None) and not (source is not None and holds_both_sides(source)):
        named, missing = ("--source", "--reference") if reference is None else ("--reference", "--source")
        raise UsageError(f"{named} {source or reference} requires {missing} FILE")
    if given and source is not None:
        raise UsageError(f"--source {source} cannot be combined with sentences on the command line")
    loaded, languages = load(model), (config.data.source, config.data.target)
    if not given and source is None:
        return loaded, dev_pairs(model, loaded, count=lines)
    if not is_translator:
        texts = given if source is None else islice(read_one_language(source, language=languages[1]), lines)
        return loaded, encode(loaded, list(texts))
    if source is None:
        return loaded, text_pairs(loaded, [(given[0], given[1])])
    files = [source] if reference is None else [source, reference]
    return loaded, text_pairs(loaded, read_pairs(files, languages=languages)[:lines])


# --- the heads and layers of a Transformer ---------------------------------------------------------------------------

HEADS_EXAMPLES = examples(
    "seqloom look heads run/model dev.de dev.en",
    "seqloom look heads run/model test.de test.en --links test.align",
    "seqloom look heads run/model --text 'Guten Morgen.' --out heads.png",
)
DRIFT_EXAMPLES = examples(
    "seqloom look drift runs/demo 'The old man reads a book.' --out drift.png",
    "seqloom look drift run/model 'Guten Morgen.' 'Good morning.' --near 5 --json",
)
CONFIDENCE_EXAMPLES = examples(
    "seqloom look confidence runs/demo --text 'The old man reads a book.'",
    "seqloom look confidence runs/demo --text 'Good morning.' --translation 'Guten Morgen.' --json",
)
ATTRIBUTION_EXAMPLES = examples(
    "seqloom look attribution runs/demo --text 'The old man reads a book.'",
    "seqloom look attribution runs/demo --text 'Good morning.' --method occlusion --out occlusion.svg",
)
ABLATION_EXAMPLES = examples(
    "seqloom look ablation runs/demo --out ablation.png",
    "seqloom look ablation run/model --source test.de --reference test.en --lines 50",
    "seqloom look ablation runs/gpt 'The dog sleeps.' --json",
)


def _read_one(model: Path, sentence: str, translation: str | None) -> "tuple[LoadedModel, GradientPair]":
    """The model, and one text for it; a translator that gets no translation writes it."""
    from seqloom.look.inside import encode_pair, encode_text, head_groups
    from seqloom.runs.loading import load

    loaded = load(model)
    head_groups(loaded)
    if loaded.config.purpose != "translator":
        if translation is not None:
            raise UsageError("a model of one language takes no translation; give one quoted sentence")
        return loaded, encode_text(loaded, [sentence])[0]
    if translation is None:
        translation = open_translator(model).search([sentence])[0][0].text
    return loaded, encode_pair(loaded, sentence, translation)


@app.command(epilog=DRIFT_EXAMPLES)
def drift(
    model: ModelFolder,
    sentence: Annotated[str, typer.Argument(metavar="SENTENCE", help="A text; for a translator, of its source.")],
    translation: Annotated[
        str | None, typer.Argument(metavar="[TRANSLATION]", help="Its translation; by default, the model's own.")
    ] = None,
    near: Annotated[int, typer.Option("--near", min=1, max=100, metavar="N", help="Nearest pieces of a vector.")] = 3,
    out: Picture = Path("drift.png"),
    json: JsonNumbers = False,
) -> None:
    """Draw how the vector of each token moves through the layers of a Transformer.

    Attention and feed-forward layers add to the vector of a word what its neighbours say about it. The picture shows
    the cosine with the embedding and with the layer before, and the paths on the plane in which they differ most. Below
    it, the pieces whose embeddings are nearest. A translator has two pictures: of its encoder and of its decoder.
    """
    from seqloom.look.inside import look_at_drift

    require_picture(out)
    loaded, pair = _read_one(model, sentence, translation)
    found = look_at_drift(loaded, pair, near=near)
    _draw(found, out, as_json=json)
    for finding in [] if json else found:
        head = ("", *finding.data["places"])
        rows = [
            (clean(token), *(clean(" ".join(place)) for place in places))
            for token, places in zip(finding.data["tokens"], finding.data["nearest"], strict=True)
        ]
        print("\n" + "\n".join(table([head, *rows])))


@app.command(epilog=ABLATION_EXAMPLES)
def ablation(
    model: ModelFolder,
    pair: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[SENTENCE TRANSLATION]",
            help="A sentence and its translation; for other models, a sentence only.",
        ),
    ] = None,
    source: Sentences = None,
    reference: Translations = None,
    lines: PairCount = 20,
    out: Picture = Path("ablation.png"),
    json: JsonNumbers = False,
) -> None:
    """Measure what each head of a Transformer is worth: switch off one at a time.

    A head that is off gives 0. Its cost is the fall of the mean log P of a token: of the translation, of the text, or
    for an encoder of each token hidden in turn; for a classifier, of the class that it predicts with all heads. A head
    of negative cost does harm on these texts.

    Without sentences, pairs or lines of the run's dev set are used.
    """
    from seqloom.look.inside import count_heads, encode_text, look_at_ablation, require_texts
    from seqloom.runs.loading import find_model
    from seqloom.runs.model_dir import read_settings

    require_picture(out)
    require_texts(model, read_settings(find_model(model)))
    loaded, pairs = _read_texts(model, pair or [], source=source, reference=reference, lines=lines, encode=encode_text)
    with show_events(as_json=json) as listener:
        report = partial(progress, listener, "switching off heads", total=count_heads(loaded))
        found = look_at_ablation(loaded, pairs, progress=report)
    _draw(found, out, as_json=json)


Text = Annotated[str, typer.Option("--text", metavar="SENTENCE", help="A sentence in the source language.")]
Translated = Annotated[
    str | None, typer.Option("--translation", metavar="SENTENCE", help="Its translation; by default, the model's own.")
]


def _read_translation(model: Path, text: str, translation: str | None) -> "tuple[LoadedModel, GradientPair]":
    """A model that writes a translation step by step, with a sentence and its translation."""
    from seqloom.look.inside import encode_pair
    from seqloom.runs.loading import find_model, in_words, load
    from seqloom.runs.model_dir import read_settings

    config = read_settings(find_model(model))
    if config.purpose != "translator" or config.model.is_fitted:
        raise UsageError(f"{model} does not write translations step by step: {in_words(config)}")
    if translation is None:
        translation = open_translator(model).search([text])[0][0].text
    loaded = load(model)
    return loaded, encode_pair(loaded, text, translation)


@app.command(epilog=CONFIDENCE_EXAMPLES)
def confidence(
    model: ModelFolder,
    text: Text,
    translation: Translated = None,
    out: Picture = Path("confidence.png"),
    json: JsonResult = False,
) -> None:
    """Draw how sure a translator is of each piece of a translation, beside the most probable other piece.

    With --json also the entropy and the five most probable other pieces of each step.
    """
    from seqloom.look.confidence import look_at_confidence

    require_picture(out)
    _draw(look_at_confidence(*_read_translation(model, text, translation)), out, as_json=json)


@app.command(epilog=ATTRIBUTION_EXAMPLES)
def attribution(
    model: ModelFolder,
    text: Text,
    translation: Translated = None,
    method: Annotated[
        Literal["gradient_x_input", "integrated_gradients", "occlusion"],
        typer.Option("--method", help="How shares are computed: by a gradient, its integral, or leaving pieces out."),
    ] = "integrated_gradients",
    steps: Annotated[
        int | None,
        typer.Option(
            "--steps",
            min=1,
            max=512,
            metavar="N",
            help="Steps of the integral; by default as many as bring its error below 1%.",
        ),
    ] = None,
    out: Picture = Path("attribution.png"),
    json: JsonResult = False,
) -> None:
    """Draw which source pieces each piece of a translation rests on: shares of its log-probability.

    The baseline is a source whose vectors are 0. Shares of integrated gradients add up to what the source changes;
    the error of that sum is reported.
    """
    from seqloom.look.attribution import look_at_attribution

    require_picture(out)
    if steps is not None and method != "integrated_gradients":
        raise UsageError(f"--steps cannot be combined with --method {method}, which has no steps")
    found = look_at_attribution(*_read_translation(model, text, translation), method=method, steps=steps)
    _draw(found, out, as_json=json)


@app.command(epilog=HEADS_EXAMPLES)
def heads(
    model: ModelFolder,
    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[SOURCE TARGET]", help="Two text files, or one file with both sides."),
    ] = None,
    text: Annotated[
        str | None, typer.Option("--text", metavar="SENTENCE", help="Draw the attention of every head to this text.")
    ] = None,
    translation: Annotated[
        str | None,
        typer.Option("--translation", metavar="SENTENCE", help="Its translation; by default, the model's own."),
    ] = None,
    out: Picture = Path("heads.png"),
    links: Annotated[
        Path | None,
        typer.Option(
            "--links",
            metavar="FILE",
            help="Reference word alignments, as lines 0-0 1-2 or as .wa; by default those of IBM model 1.",
        ),
    ] = None,
    lines: Annotated[int, typer.Option("--lines", min=1, metavar="N", help="Number of pairs.")] = 1000,
    json: JsonResult = False,
) -> None:
    """Draw every attention head, or find the one that aligns best for [bold]translate --align search.heads=…[/bold].

    With --text, the attention of all heads in all layers is drawn as a grid, a picture for each kind of attention.

    With files, the model reads given translations, and each head links a target word to the source word with the
    highest weight. F1 measures the agreement with the links of IBM model 1 or of --links.
    """
    if text is not None:
        if files or links is not None:
            other = f"--links {links}" if links is not None else str(files[0] if files else "")
            raise UsageError(f"--text cannot be combined with {other}: it draws the heads for one sentence")
        from seqloom.look.inside import look_at_heads

        require_picture(out)
        _draw(look_at_heads(*_read_one(model, text, translation)), out, as_json=json)
        return
    if not files:
        raise UsageError("give two text files to compare heads, or --text 'A sentence.' to draw them")
    if translation is not None:
        raise UsageError("--translation requires --text SENTENCE")
    from seqloom.apps.alignments import best_head
    from seqloom.runs.loading import load, require_translator
    from seqloom.text.formats.pharaoh import read_gold
    from seqloom.text.normalise import is_blank

    with show_events(as_json=json) as listener:
        pairs = read_pairs(files, languages=languages_for(model, files), listener=listener)
        gold = None if links is None else [each.sure for each in read_gold(links, len(pairs)).links]
        seen = [at for at, pair in enumerate(pairs) if not any(map(is_blank, pair))][:lines]
        loaded = load(model)
        require_translator(loaded.folder, loaded.config)
        sides = zip((loaded.tokenizers.source, loaded.tokenizers.target), (0, 1), strict=True)
        encoded = [tokenizer.encode_many([pairs[at][side] for at in seen]) for tokenizer, side in sides]
        longest = loaded.config.data.longest
        kept = [at for at, *ids in zip(seen, *encoded, strict=True) if max(map(len, ids)) < longest]
        if len(kept) < len(seen):
            left_out = f"{len(seen) - len(kept):,} of {len(seen):,} pairs"
            notice(listener, f"{left_out} have {longest:,} tokens or more on a side; they are left out")
        found = best_head(
            loaded,
            [pairs[at] for at in kept],
            None if gold is None else [gold[at] for at in kept],
            progress=partial(progress, listener, "measuring pairs", total=len(kept)),
        )
    if json:
        print(json_line({"heads": found.heads, "pairs": len(kept), "agreements": found.agreements.tolist()}))
        return
    print(f"F1 of each head's links in {len(kept):,} pairs, layers and heads counted from 0")
    columns = [f"head {number}" for number in range(found.agreements.shape[1])]
    rows = [(f"layer {number}", *(f"{value:.3f}" for value in row)) for number, row in enumerate(found.agreements)]
    print("\n".join(f"  {row}" for row in table([("", *columns), *rows])))
    print(f"Best  search.heads={found.heads}")
