"""`seqloom generate`: text from a language model."""

from pathlib import Path
from typing import Annotated

import typer

from seqloom.cli.arguments import TextModel, parse_words, require_search_settings
from seqloom.cli.console import clean, examples, show_events
from seqloom.core.errors import UsageError
from seqloom.core.events import json_line, notice

EXAMPLES = examples(
    "seqloom generate run/model --prompt 'The old man'",
    "seqloom generate run/model --count 5 search.temperature=0.7 search.top_p=0.9 search.seed=3",
    "seqloom generate shakespeare/model --prompt 'ROMEO:' --past-line-ends search.length_constant=1000",
    "seqloom generate vae/model --between 'The dog sleeps.' 'We have no time.' --steps 5",
    "seqloom generate run/model --prompt 'It is' search.method=beam search.beam=8 --count 8 --json",
)


def generate(
    model: TextModel,
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="path=value", help="Search settings, such as search.temperature=0.7."),
    ] = None,
    prompt: Annotated[str, typer.Option("--prompt", metavar="TEXT", help="Beginning of the texts.")] = "",
    count: Annotated[int, typer.Option("--count", metavar="N", help="Number of texts.")] = 1,
    others: Annotated[
        list[Path] | None,
        typer.Option(
            "--with", metavar="MODEL", help="Another model with the same vocabulary, mixed in with equal weight."
        ),
    ] = None,
    between: Annotated[
        tuple[str, str] | None,
        typer.Option(
            "--between",
            metavar="TEXT TEXT",
            help="Texts on the way from one to another, by a model with a latent variable (model.kind=vae).",
        ),
    ] = None,
    steps: Annotated[
        int | None, typer.Option("--steps", metavar="N", help="Texts for --between, both ends included; 7 by default.")
    ] = None,
    past_line_ends: Annotated[
        bool,
        typer.Option("--past-line-ends", help="Continue past line ends, up to search.length_constant tokens."),
    ] = False,
    unknown: Annotated[bool, typer.Option("--unknown", help="Allow ⁇ for words outside the vocabulary.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print a record per text: text, log_prob, tokens …")] = False,
) -> None:
    """Generate text with a language model: random samples, the most probable texts, or texts between two others.

    Search settings: search.temperature, search.top_k, search.top_p, search.min_p, search.seed, search.no_repeat, or
    search.method=beam. The same seed gives the same texts.
    """
    given = parse_words(words)
    if given.others:
        raise UsageError(f"{given.others[0]!r} is not a setting path=value; give the beginning of a text with --prompt")
    require_search_settings(given.overrides)

    if steps is not None and between is None:
        raise UsageError("--steps requires --between TEXT TEXT")
    if between is not None and (prompt or count != 1 or past_line_ends or unknown):
        raise UsageError("--between cannot be combined with --prompt, --count, --past-line-ends or --unknown")

    from seqloom.apps.language_model import open_language_model

    opened = open_language_model(model, given.overrides, companions=others or [])
    if between is not None:
        own = opened.config.search
        beam = own.beam if own.method == "beam" else 4
        for number, written in enumerate(opened.between(*between, steps=steps or 7, beam=beam), start=1):
            print(json_line({"number": number, **vars(written)}) if json else clean(written.text))
        return
    unknown_tokens, tokens = opened.unknown_in(prompt)
    if unknown_tokens:
        with show_events(as_json=json) as listener:
            known = f"{unknown_tokens} of {tokens} tokens of the prompt are unknown to the model and are read as ⁇"
            notice(listener, known)
    found = opened.generate(prompt, count=count, past_line_ends=past_line_ends, has_unknown=unknown)
    for number, written in enumerate(found, start=1):
        if json:
            print(json_line({"number": number, **vars(written)}))
        else:
            # Texts of several lines are separated by an empty line.
            print(("\n" if past_line_ends and number > 1 else "") + "\n".join(map(clean, written.text.split("\n"))))
