"""`seqloom look beam`: the tree of a beam search."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from seqloom.cli.arguments import require_search_settings, sort_words
from seqloom.cli.loading import open_translator
from seqloom.cli.output import clean, examples, json_line, table
from seqloom.core.errors import UsageError
from seqloom.core.files import require_folders_above

if TYPE_CHECKING:
    from seqloom.inspection.beam_tree import BeamTree

EXAMPLES = examples(
    "seqloom look beam runs/demo 'The old man reads a book.'",
    "seqloom look beam run/model 'Guten Morgen.' --out beam.svg search.beam=4 search.nbest=4",
)


def beam(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A model folder or a run.")],
    sentence: Annotated[str, typer.Argument(metavar="SENTENCE", help="A sentence in the source language.")],
    words: Annotated[
        list[str] | None, typer.Argument(metavar="search.beam=4", help="Settings of the search, path=value.")
    ] = None,
    out: Annotated[
        Path,
        typer.Option("--out", metavar="FILE", help="By its ending a page to play with (HTML) or a picture (SVG, PNG)."),
    ] = Path("beam.html"),
    pruned: Annotated[
        int,
        typer.Option("--pruned", min=1, metavar="N", help="Pruned children shown of each node; others are counted."),
    ] = 2,
    json: Annotated[
        bool, typer.Option("--json", help="What has ended and all that is shown, as JSON on stdout as well.")
    ] = False,
) -> None:
    """Translate a sentence by beam search and draw every candidate that was looked at, and what became of it.

    Steps go from left to right, a line is as wide as its symbol is probable, the best hypothesis stands on a band. The
    page tells the score of each node by its terms, replays the search step by step, and needs no network.
    """
    from seqloom.inspection.beam_tree import describe
    from seqloom.recipes.look import BEAM_ENDINGS, draw_beam_search

    given = sort_words(words)
    if given.others:
        raise UsageError(f"one sentence at most, but {given.others[0]!r} was given as well; put it into quotes")
    require_search_settings(given.overrides)
    if out.suffix not in BEAM_ENDINGS:
        raise UsageError(f"{out} is neither .html nor .svg nor .png; name it with one of these endings")
    require_folders_above(out)
    translator = open_translator(model, given.overrides)
    out.parent.mkdir(parents=True, exist_ok=True)
    tree = draw_beam_search(translator, sentence, out, pruned=pruned)
    if json:
        print(json_line({"sentence": describe(tree), **_record(tree), "picture": out}))
        return
    rows = [(f"{place}", f"{leaf.node.score:.3f}", clean(leaf.text)) for place, leaf in enumerate(tree.leaves, start=1)]
    print("\n".join([*table(rows), describe(tree), f"drawn in {out}"]))


def _record(tree: "BeamTree") -> dict[str, Any]:
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
    return {"leaves": leaves, "fates": tree.fates, "nodes": nodes}
