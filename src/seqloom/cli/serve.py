"""`seqloom serve` and `seqloom keys`: models behind the APIs that tools already speak."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from seqloom.cli.console import clean, examples
from seqloom.core.errors import UsageError
from seqloom.core.events import json_line

if TYPE_CHECKING:
    from seqloom.serve.models import ServedModels

EXAMPLES = examples(
    "seqloom serve runs/demo",
    "seqloom serve en-de=run1 de-en=run2 --port 8000",
    "seqloom serve run/model serve.texts=128 serve.characters=10000 search.beam=2",
    "seqloom serve lm=runs/lstm vectors=runs/vectors",
    "seqloom keys add weblate --file keys.jsonl",
    "seqloom serve run/model --host 0.0.0.0 --keys keys.jsonl",
)
KEY_EXAMPLES = examples("seqloom keys add weblate --file keys.jsonl")

app = typer.Typer(no_args_is_help=True, help="Make API keys for seqloom serve --keys.")

Words = Annotated[
    list[str],
    typer.Argument(
        metavar="MODEL... [serve.FIELD=VALUE...]",
        help="Translators, language models and word vectors: runs, model folders or archives. NAME=MODEL sets the name "
        "that clients see; it is that of the folder otherwise. Languages come from the models; a pair without a model "
        "is translated through one other language. Also settings: limits of the server (serve.texts=128) and of the "
        "search (search.beam=2).",
    ),
]


def serve(
    words: Words,
    host: Annotated[
        str,
        typer.Option(
            "--host",
            metavar="ADDRESS",
            help="Address to listen on. One that other machines can reach needs --keys or --no-auth.",
        ),
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", metavar="N", min=0, max=65535, help="Port to listen on; 0 chooses a free one.")
    ] = 5000,
    keys: Annotated[
        Path | None,
        typer.Option(
            "--keys", metavar="FILE", help="Require one of the API keys of this file (made by seqloom keys add)."
        ),
    ] = None,
    no_auth: Annotated[
        bool, typer.Option("--no-auth", help="Serve an address that others can reach without keys.")
    ] = False,
    jobs: Annotated[
        int | None,
        typer.Option(
            "--jobs",
            metavar="N",
            min=1,
            max=1000,
            help="Worker processes, each with all models; one per core by default.",
        ),
    ] = None,
    engine: Annotated[
        Literal["seqloom", "ctranslate2"],
        typer.Option(
            "--engine", help="Engine for plain lines; those with tags, placeholders or terms always use our search."
        ),
    ] = "seqloom",
    memory: Annotated[
        list[Path] | None,
        typer.Option(
            "--memory",
            metavar="FILE",
            help="Translation memory (.tmx, .tsv, .po …): a line that it contains gets its translation. Repeatable.",
        ),
    ] = None,
    runs: Annotated[
        Path | None,
        typer.Option(
            "--runs",
            metavar="DIR",
            help="Folder of the training runs whose curves the workbench shows; by default where the models lie.",
        ),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print address and models as one line of JSON.")] = False,
) -> None:
    """Serve models over HTTP: a page that translates and shows why, and the APIs of LibreTranslate, DeepL, OpenAI,
    Apertium, OpenNMT and Moses.

    Prints the address of the page (docs/workbench.md) and three calls to try when every model is ready. SIGHUP loads
    models and keys again without a gap; SIGTERM and Ctrl-C end the server once accepted requests are answered. The log
    on standard error has a line of JSON for each request, without texts and keys. What to enter in Weblate, OmegaT or
    Mastodon is in docs/integrations.md; docs/serving.md has the rest.
    """
    from seqloom.core.config import resolve
    from seqloom.serve.server import ServerOptions, run_server
    from seqloom.serve.settings import ServerSettings

    settings = [word for word in words if word.startswith("serve.")]
    overrides = [word for word in words if word.startswith(("search.", "device="))]
    models = [word for word in words if word not in settings and word not in overrides]
    if keys is not None and no_auth:
        raise UsageError("--keys cannot be combined with --no-auth")
    options = ServerOptions(
        tuple(models),
        resolve(ServerSettings, overrides=settings).serve,
        tuple(overrides),
        host=host,
        port=port,
        keys=keys,
        is_open=no_auth,
        jobs=jobs,
        engine=engine,
        memories=tuple(memory or ()),
        runs=runs,
    )

    def announce(address: str, served: "ServedModels") -> None:
        if json:
            print(json_line({"address": address, "models": [model.name for model in served.models]}))
        else:
            print(clean(f"Workbench: {address}/"))
            print(clean(f"Serving at {address}"))
            for line in example_calls(address, served, has_keys=keys is not None):
                print(line)
        sys.stdout.flush()

    run_server(options, on_ready=announce)


def example_calls(address: str, served: "ServedModels", *, has_keys: bool) -> list[str]:
    """Three calls to paste."""
    if not served.pairs:
        return _example_completions(address, served, has_keys=has_keys)
    (source, target), *_ = served.pairs
    key = " -d api_key=KEY" if has_keys else ""
    return [
        f"  curl {address}/translate -d q='Good morning.' -d source={source} -d target={target}{key}",
        f"  curl '{address}/translate?langpair={source}%7C{target}&q=Good+morning.{'&key=KEY' if has_keys else ''}'",
        f"  curl {address}/languages",
    ]


def _example_completions(address: str, served: "ServedModels", *, has_keys: bool) -> list[str]:
    """Calls to language models, word vectors and encoders."""
    key = " -H 'Authorization: Bearer KEY'" if has_keys else ""
    bodies: dict[str, list[tuple[str, str]]] = {
        "language model": [
            ("completions", '"prompt": "The", "max_tokens": 20'),
            ("completions", '"prompt": "The end.\\n", "max_tokens": 0, "echo": true, "logprobs": 0'),
        ],
        "word vectors": [("embeddings", '"input": "house"')],
        "encoder": [("embeddings", '"input": "A small house."')],
    }
    calls = [
        f'  curl {address}/v1/{route}{key} -d \'{{"model": "{model.name}", {body}}}\''
        for purpose, examples_of in bodies.items()
        for model in [next((each for each in served.models if each.purpose == purpose), None)]
        if model is not None
        for route, body in examples_of
    ]
    return [*calls[:2], f"  curl {address}/v1/models{key}"]


@app.command("add", epilog=KEY_EXAMPLES)
def add(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Who will use the key. The name appears in the log of the server.")
    ],
    file: Annotated[
        Path,
        typer.Option(
            "--file", metavar="FILE", help="Key file; created if it does not exist, readable by its owner only."
        ),
    ],
    json: Annotated[bool, typer.Option("--json", help="Print name and key as JSON.")] = False,
) -> None:
    """Make an API key and print it, once: the file keeps its hash only.

    To withdraw a key, remove its line from the file. A running server reads the file again on SIGHUP.
    """
    from seqloom.serve.keys import add_key

    key = add_key(file, name)
    print(json_line({"name": name, "key": key}) if json else key)
