"""`seqloom vectors`: query, evaluate, draw, map and export word vectors."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from seqloom.cli.arguments import require_new_file
from seqloom.cli.console import clean, examples, show_events, table
from seqloom.core.errors import DataError, UsageError
from seqloom.core.events import json_line, notice, progress

if TYPE_CHECKING:
    from seqloom.classical.vectors import Neighbour, WordVectors

NEAREST_EXAMPLES = examples(
    "seqloom vectors nearest runs/words king paris",
    "seqloom vectors nearest GoogleNews.bin king --count 5 --json",
)
ANALOGY_EXAMPLES = examples(
    "seqloom vectors analogy runs/words man king woman",
    "seqloom vectors analogy vectors.txt paris france rome --method mul",
)
EVALUATE_EXAMPLES = examples(
    "seqloom vectors evaluate runs/words --similarity wordsim353.tsv --analogies questions-words.txt",
)
MAP_EXAMPLES = examples(
    "seqloom vectors map runs/words --out words.html",
    "seqloom vectors map runs/words king queen man woman paris rome --out words.png",
    "seqloom vectors map vectors.bin --count 1000 --method tsne --out words.html",
)
ALIGN_EXAMPLES = examples(
    "seqloom vectors align runs/german runs/english --out de-en.tsv",
    "seqloom vectors align wiki.de.vec wiki.en.vec --seeds seeds.tsv --gold test.tsv --out de-en.tsv",
    "seqloom vectors align runs/de-1,runs/de-2,runs/de-3 runs/en-1,runs/en-2,runs/en-3 --out de-en.tsv",
    "seqloom train model.kind=dictionary model.file=de-en.tsv --train few.de --train few.en --out runs/words",
)
EXPORT_EXAMPLES = examples(
    "seqloom vectors export runs/words vectors.txt",
    "seqloom vectors export runs/words vectors.bin",
)

MIN_PAIRS = 30
"""Pairs below which a correlation means little: half of its 95% interval is 0.35 or more."""

app = typer.Typer(help="Query word vectors: neighbours, analogies, scores, a map; a dictionary of two languages.")

Model = Annotated[
    Path, typer.Argument(metavar="MODEL", help="A model folder, a run, or a file in word2vec's format (.bin: binary).")
]
Count = Annotated[int, typer.Option("--count", min=1, metavar="N", help="Number of words to print.")]
Json = Annotated[bool, typer.Option("--json", help="Print records as JSON.")]
How = Annotated[
    Literal["add", "mul"],
    typer.Option("--method", metavar="add|mul", help="How cosines are combined: 3CosAdd (add) or 3CosMul (mul)."),
]


@app.callback()
def vectors() -> None:
    """Query word vectors: neighbours, analogies, scores, a map; a dictionary of two languages."""


@app.command(epilog=NEAREST_EXAMPLES)
def nearest(
    model: Model,
    words: Annotated[list[str], typer.Argument(metavar="WORD…", help="Words to look up.")],
    count: Count = 10,
    json: Json = False,
) -> None:
    """Print the words with the highest cosine similarity to each word."""

    opened = _open(model, as_json=json)
    known, missing = opened.known(words)
    for word, found in zip(known, opened.nearest(known, count=count), strict=True):
        if json:
            print(json_line({"word": word, "nearest": found}))
        else:
            print("\n".join([clean(word), *(f"  {line}" for line in _lines(found))]))
    if missing:
        raise UsageError("; ".join(missing))


@app.command(epilog=ANALOGY_EXAMPLES)
def analogy(
    model: Model,
    a: Annotated[str, typer.Argument(metavar="A", help="A is to B …")],
    b: Annotated[str, typer.Argument(metavar="B")],
    c: Annotated[str, typer.Argument(metavar="C", help="… as C is to the answer.")],
    count: Count = 5,
    method: How = "add",
    json: Json = False,
) -> None:
    """Solve an analogy: A is to B as C is to what? For [bold]man king woman[/bold], queen. A, B and C are excluded."""

    found = _open(model, as_json=json).analogy(a, b, c, count=count, method=method)
    if json:
        print(json_line({"question": [a, b, c], "method": method, "answers": found}))
    else:
        print("\n".join(_lines(found)))


@app.command(epilog=EVALUATE_EXAMPLES)
def evaluate(
    model: Model,
    similarity: Annotated[
        Path | None,
        typer.Option("--similarity", metavar="FILE", help="Human judgements: word, tab, word, tab, number."),
    ] = None,
    analogies: Annotated[
        Path | None, typer.Option("--analogies", metavar="FILE", help="Sections `: name`, then lines of four words.")
    ] = None,
    vocabulary: Annotated[
        int,
        typer.Option(
            "--vocabulary", min=4, metavar="N", help="Number of most frequent words considered for analogies."
        ),
    ] = 300_000,
    method: How = "add",
    json: Json = False,
) -> None:
    """Evaluate word vectors: rank correlation with human judgements, and accuracy on analogies by section.

    Pairs and questions with words that have no vector are skipped and counted.
    """
    from seqloom.apps.vectors import as_record, evaluate_vectors

    if similarity is None and analogies is None:
        raise UsageError("nothing to evaluate: give --similarity wordsim353.tsv or --analogies questions-words.txt")
    found = evaluate_vectors(
        _open(model, as_json=json),
        similarity=similarity,
        analogies=analogies,
        method=method,
        vocabulary=vocabulary,
    )
    if json:
        print(json_line(as_record(found)))
        return
    if found.similarity is not None:
        pairs = found.similarity.pairs
        few = f"; {pairs} pairs are too few to be reliable" if pairs < MIN_PAIRS else ""
        print(f"similarity: {found.similarity}{few}")
    if found.analogies is not None:
        rows = [
            (clean(each.name), f"{each.accuracy:.2%}", f"{each.right:,}", f"of {each.asked:,}")
            for each in found.analogies.sections
            if each.asked
        ]
        print("\n".join([f"analogies: {found.analogies}", *(f"  {line}" for line in table(rows))]))


@app.command(name="map", epilog=MAP_EXAMPLES)
def draw_map(
    model: Model,
    words: Annotated[
        list[str] | None, typer.Argument(metavar="[WORD…]", help="Words to draw; by default the most frequent.")
    ] = None,
    out: Annotated[
        Path, typer.Option("--out", metavar="FILE", help="Output file: interactive (.html) or a picture (.png, .svg).")
    ] = Path("words.html"),
    count: Annotated[
        int, typer.Option("--count", min=3, metavar="N", help="Number of most frequent words to draw.")
    ] = 500,
    method: Annotated[
        Literal["pca", "tsne"],
        typer.Option("--method", metavar="pca|tsne", help="pca, or tsne for up to 2,000 words, which is slower."),
    ] = "pca",
    json: Json = False,
) -> None:
    """Draw words in the plane so that similar vectors are close together."""
    from seqloom.look.embedding_map import ITERATIONS, draw_words

    with show_events(as_json=json) as listener:
        found = draw_words(
            _open(model, as_json=json),
            out,
            words=words or (),
            count=count,
            method=method,
            progress=partial(progress, listener, "laying out words", total=ITERATIONS),
        )
    record = {"words": len(found.words), "method": method, "file": out, "described": found.describe()}
    print(json_line(record) if json else f"{found.describe()}\ndrawn in {out}")


@app.command(epilog=ALIGN_EXAMPLES)
def align(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="MODEL[,MODEL…]", help="Vectors of one language: a model, a run or a file; several by commas."
        ),
    ],
    target: Annotated[
        Path, typer.Argument(metavar="MODEL[,MODEL…]", help="Vectors of the other language, as many as of the first.")
    ],
    out: Annotated[
        Path,
        typer.Option("--out", metavar="FILE", help="The dictionary: word, translation, class (empty), probability."),
    ],
    seeds: Annotated[
        Path | None, typer.Option("--seeds", metavar="FILE", help="Known pairs to start from: word, tab, translation.")
    ] = None,
    start: Annotated[
        Literal["equal", "nothing"] | None,
        typer.Option(
            "--start",
            metavar="equal|nothing",
            help="Start from words spelled alike, or from nothing; by default both are tried.",
        ),
    ] = None,
    gold: Annotated[
        Path | None, typer.Option("--gold", metavar="FILE", help="Right translations; prints the precision.")
    ] = None,
    words: Annotated[
        int, typer.Option("--words", min=1, metavar="N", help="Most frequent words of each side in the dictionary.")
    ] = 20_000,
    translations: Annotated[
        int, typer.Option("--translations", min=1, metavar="N", help="Translations of each word.")
    ] = 1,
    vocabulary: Annotated[
        int, typer.Option("--vocabulary", min=100, metavar="N", help="Most frequent words of each side to learn from.")
    ] = 5000,
    attempts: Annotated[
        int, typer.Option("--attempts", min=1, metavar="N", help="Attempts of a start from nothing; the best counts.")
    ] = 10,
    trials: Annotated[
        int, typer.Option("--trials", min=0, metavar="N", help="Random starts in the test of chance; 0: no test.")
    ] = 8,
    mapped_source: Annotated[
        Path | None, typer.Option("--mapped-source", metavar="FILE", help="Write the first vectors, mapped.")
    ] = None,
    mapped_target: Annotated[
        Path | None, typer.Option("--mapped-target", metavar="FILE", help="Write the second vectors, mapped.")
    ] = None,
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="Seed of all random draws.")] = 0,
    json: Json = False,
) -> None:
    """Map the vectors of two languages into one space, without parallel text, and write a dictionary.

    The two models need not have seen the same text, but similar text of some size. A dictionary that is no better than
    one from a random start is not written. Of several models of each language, trained with other seeds or settings,
    the first of both are mapped, the second, and so on, and their dictionaries are averaged: that is much better where
    there is little text.
    """
    from seqloom.apps.vectors import align_vectors, read_word_pairs, score_dictionary, write_dictionary
    from seqloom.classical.vector_mapping import START_NAMES, MappingSettings, joint_dictionary
    from seqloom.interop.word2vec_format import write_vectors

    if seeds is not None and start is not None:
        raise UsageError("--seeds cannot be combined with --start: seeds are a start; leave one out")
    if trials == 1:
        raise UsageError("--trials 1 is too few for a test; give 2 or more, or 0 for no test")
    sources, targets = _several(source), _several(target)
    if len(sources) != len(targets):
        raise UsageError(
            f"got {len(sources)} models of the first language and {len(targets)} of the second; give pairs"
        )
    if len(sources) > 1 and (mapped_source or mapped_target):
        raise UsageError("--mapped-source and --mapped-target cannot be combined with several models of a language")
    inputs = [path for path in (*sources, *targets, seeds, gold) if path is not None]
    outputs = {"--out": out, "--mapped-source": mapped_source, "--mapped-target": mapped_target}
    for flag, path in outputs.items():
        require_new_file(path, inputs=inputs, flag=flag)
    seed_pairs = [] if seeds is None else read_word_pairs(seeds)
    gold_pairs = None if gold is None else read_word_pairs(gold)
    settings = MappingSettings(vocabulary=vocabulary, attempts=attempts, trials=trials, seed=seed)
    mappings = []
    with show_events(as_json=json) as listener:
        for one, other in zip(sources, targets, strict=True):
            mapping = align_vectors(
                _open(one, as_json=json),
                _open(other, as_json=json),
                start="seeds" if seeds is not None else start,
                seeds=seed_pairs,
                settings=settings,
                listener=listener,
            )
            if mapping.chance is None or mapping.chance.is_passed:
                mappings.append(mapping)
            elif len(sources) > 1:
                notice(listener, f"{one} and {other} are left out: their dictionary is {mapping.chance}")
    if not mappings:
        raise DataError(
            f"the dictionary is {mapping.chance}; nothing was written. Give vectors of more text or of more similar "
            "text, or some pairs with --seeds; --trials 0 leaves the test out"
        )
    pairs = joint_dictionary(mappings, words=words, translations=translations)
    lines = write_dictionary(pairs, out)
    for path, side in ((mapped_source, mappings[0].source), (mapped_target, mappings[0].target)):
        if path is not None:
            write_vectors(side, path)
    score = None if gold_pairs is None else score_dictionary(pairs, gold_pairs)
    if json:
        of_each = [
            {
                "start": each.start,
                "objective": each.objective,
                "chance": None if each.chance is None else {**vars(each.chance), "p_value": each.chance.p_value},
            }
            for each in mappings
        ]
        precision = None if score is None else {**vars(score), "value": score.value}
        print(json_line({"lines": lines, "file": out, **of_each[0], "mappings": of_each, "precision": precision}))
        return
    starts = " and ".join(dict.fromkeys(START_NAMES[each.start] for each in mappings))
    several = f", the mean of {len(mappings)} dictionaries" if len(mappings) > 1 else ""
    print(f"{lines:,} lines written to {out}, learned from {starts}{several}")
    for each in mappings:
        if each.chance is not None:
            print(each.chance)
    if score is not None:
        print(score)


@app.command(epilog=EXPORT_EXAMPLES)
def export(
    model: Model,
    out: Annotated[Path, typer.Argument(metavar="FILE", help="Output file; .bin is binary, .gz compressed.")],
    binary: Annotated[
        bool | None, typer.Option("--binary/--text", help="The format, regardless of the name.", show_default=False)
    ] = None,
    json: Json = False,
) -> None:
    """Write word vectors in word2vec format for gensim, spaCy and others."""
    from seqloom.interop.word2vec_format import write_vectors

    found = _open(model, as_json=json)
    write_vectors(found, out, binary=binary)
    record = {"words": len(found), "width": found.width, "file": out}
    print(json_line(record) if json else f"{len(found):,} words of width {found.width} written to {out}")


def _several(paths: Path) -> list[Path]:
    """The models that an argument names, separated by commas."""
    return [paths] if paths.exists() else [Path(name) for name in str(paths).split(",") if name]


def _open(model: Path, *, as_json: bool) -> "WordVectors":
    """The vectors of a model or a file; warns if they were trained on too little text."""
    from seqloom.apps.vectors import doubt_of, open_vectors

    opened = open_vectors(model)
    if doubt := doubt_of(model):
        with show_events(as_json=as_json) as listener:
            notice(listener, doubt)
    return opened


def _lines(found: "list[Neighbour]") -> list[str]:
    return table([(clean(each.word), f"{each.score:.4f}") for each in found]) if found else []
