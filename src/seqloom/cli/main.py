"""The console program: its commands, and how one command line is run."""

import re
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Annotated, Any, TextIO

import typer

from seqloom.cli import (
    align,
    average,
    caption,
    classify,
    compare,
    config,
    demo,
    distill,
    doctor,
    embed,
    evaluate,
    export,
    forecast,
    generate,
    import_model,
    info,
    lab,
    look,
    merge,
    pack,
    perplexity,
    retrieve,
    score,
    selfcheck,
    serve,
    shortlist,
    summarise,
    tag,
    train,
    transcribe,
    translate,
    vectors,
)
from seqloom.cli.console import PlainLines, TolerantListener, guard_terminal, use_utf8, write_json
from seqloom.cli.failures import raise_on_termination, report
from seqloom.core.errors import SeqloomWarning, UsageError
from seqloom.core.events import notice
from seqloom.version import __version__

BUILD, USE, LOOK = "Build a model", "Use a model", "Measure and inspect"

app = typer.Typer(
    name="seqloom",
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Start with [bold]seqloom demo[/bold]. Help on a command: [bold]seqloom train --help[/bold].",
)
app.command(epilog=demo.EXAMPLES, rich_help_panel=BUILD)(demo.demo)
app.command(epilog=doctor.EXAMPLES, rich_help_panel=BUILD)(doctor.doctor)
app.command(epilog=compare.EXAMPLES, rich_help_panel=BUILD)(compare.compare)
app.command(epilog=train.EXAMPLES, rich_help_panel=BUILD)(train.train)
app.command(epilog=config.EXAMPLES, rich_help_panel=BUILD)(config.config)
app.command(epilog=distill.EXAMPLES, rich_help_panel=BUILD)(distill.distill)
app.command(epilog=average.EXAMPLES, rich_help_panel=BUILD)(average.average)
app.command(epilog=merge.EXAMPLES, rich_help_panel=BUILD)(merge.merge)
app.command(epilog=translate.EXAMPLES, rich_help_panel=USE)(translate.translate)
app.command(epilog=serve.EXAMPLES, rich_help_panel=USE)(serve.serve)
app.add_typer(serve.app, name="keys", rich_help_panel=USE)
app.command(epilog=score.EXAMPLES, rich_help_panel=USE)(score.score)
app.command(epilog=generate.EXAMPLES, rich_help_panel=USE)(generate.generate)
app.command(epilog=classify.EXAMPLES, rich_help_panel=USE)(classify.classify)
app.command(epilog=tag.EXAMPLES, rich_help_panel=USE)(tag.tag)
app.command(epilog=forecast.EXAMPLES, rich_help_panel=USE)(forecast.forecast)
app.command(epilog=transcribe.EXAMPLES, rich_help_panel=USE)(transcribe.transcribe)
app.command(epilog=caption.EXAMPLES, rich_help_panel=USE)(caption.caption)
app.command(epilog=summarise.EXAMPLES, rich_help_panel=USE)(summarise.summarise)
app.command(epilog=embed.EXAMPLES, rich_help_panel=USE)(embed.embed)
app.command(epilog=retrieve.EXAMPLES, rich_help_panel=USE)(retrieve.retrieve)
app.add_typer(vectors.app, name="vectors", rich_help_panel=USE)
app.command(epilog=shortlist.EXAMPLES, rich_help_panel=USE)(shortlist.shortlist)
app.command(name="import", epilog=import_model.EXAMPLES, rich_help_panel=USE)(import_model.import_model)
app.command(epilog=export.EXAMPLES, rich_help_panel=USE)(export.export)
app.command(epilog=pack.EXAMPLES, rich_help_panel=USE)(pack.pack)
app.command(epilog=pack.UNPACK_EXAMPLES, rich_help_panel=USE)(pack.unpack)
app.command(epilog=align.EXAMPLES, rich_help_panel=USE)(align.align)
app.command(epilog=evaluate.EXAMPLES, rich_help_panel=LOOK)(evaluate.evaluate)
app.command(epilog=perplexity.EXAMPLES, rich_help_panel=LOOK)(perplexity.perplexity)
app.command(epilog=info.EXAMPLES, rich_help_panel=LOOK)(info.info)
app.command(epilog=selfcheck.EXAMPLES, rich_help_panel=LOOK)(selfcheck.selfcheck)
app.add_typer(look.app, name="look", rich_help_panel=LOOK)
app.command(epilog=lab.EXAMPLES, rich_help_panel=LOOK)(lab.lab)


_UNSET = "(is a shell variable unset?)"
_INFORMATION = frozenset({"-h", "--help", "--version"})
_OUTPUTS = frozenset({"out", "html", "align", "folder"})
"""Parameters that name what a command writes."""
_STREAMED = frozenset({("translate", "out"), ("translate", "align"), ("align", "out"), ("tag", "out")})
"""Those that accept - for standard output, with the names of their commands."""


def _show_version(is_given: bool) -> bool:
    if is_given:
        print(f"seqloom {__version__}")
        raise typer.Exit
    return is_given


@app.callback()
def seqloom(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_show_version, help="Show the version and exit.")
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the traceback of an error; accepted anywhere on the line.")
    ] = False,
) -> None:
    """Train, evaluate and inspect sequence models: from two text files to a translator with measured quality."""


def run() -> None:
    """The entry point of the console program."""
    use_utf8()
    raise_on_termination()
    sys.exit(execute(sys.argv[1:]))


def execute(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit status. An error becomes a message on stderr."""
    ours = arguments[: arguments.index("--")] if "--" in arguments else arguments
    is_debug, as_json = "--debug" in ours, "--json" in ours
    words = [word for at, word in enumerate(arguments) if word != "--debug" or at >= len(ours)]
    try:
        # Without a command, the program and its groups print their help.
        with _shown_warnings(as_json=as_json):
            return _invoke([*words, "--help"] if words in ([], ["look"], ["vectors"], ["keys"]) else words)
    except BaseException as error:
        # The result of these is a folder: a closed pipe is not a normal end.
        folders = {"train", "demo", "distill", "average", "merge", "shortlist", "export", "lab", "pack", "unpack"}
        is_streaming = not folders & set(words[:1])
        is_read = is_streaming or bool(_INFORMATION & set(ours))
        return report(error, as_json=as_json, is_debug=is_debug, is_streaming=is_read, words=words)


@contextmanager
def _shown_warnings(*, as_json: bool) -> Iterator[None]:
    """Print Seqloom's warnings on stderr as notices, each once per command."""
    shown: set[str] = set()
    notify = TolerantListener(write_json if as_json else PlainLines())

    def show(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        if not issubclass(category, SeqloomWarning):
            others(message, category, filename, lineno, file, line)
        elif str(message) not in shown:
            shown.add(str(message))
            notice(notify, str(message))

    with warnings.catch_warnings():
        warnings.simplefilter("always", SeqloomWarning)
        others, warnings.showwarning = warnings.showwarning, show
        yield


def _invoke(words: list[str]) -> int:
    guard_terminal(words)
    # Not through the library's main function, which handles interrupts and closed pipes differently.
    command = typer.main.get_command(app)
    _join_lines_of_help(command)
    _refuse_empty(command, words)
    _refuse_misused(command, words)
    try:
        with command.make_context("seqloom", words) as context:
            command.invoke(context)
    except typer.Exit as finished:
        sys.stdout.flush()
        return finished.exit_code
    except Exception as error:
        # The parser raises some errors without a context; the message needs it to name the command.
        if getattr(error, "ctx", command) is None:
            inner, at = _command_of(command, words)
            error.ctx = typer.Context(inner, info_name=" ".join(["seqloom", *words[:at]]))  # type: ignore[attr-defined]
        raise
    sys.stdout.flush()
    return 0


def _join_lines_of_help(command: Any) -> None:
    """Join the lines of each paragraph of the docstrings; the library would keep their line breaks."""
    command.help = re.sub(r"(?<!\n)\n(?!\n)", " ", command.help or "")
    for each in getattr(command, "commands", {}).values():
        _join_lines_of_help(each)


def _command_of(command: Any, words: Sequence[str]) -> tuple[Any, int]:
    """The command that the first words name, and how many words those are."""
    at = 0
    while at < len(words) and (inner := getattr(command, "commands", {}).get(words[at])) is not None:
        command, at = inner, at + 1
    return command, at


def _refuse_misused(command: Any, words: Sequence[str]) -> None:
    """Refuse repeated options that take one value, and - for files that cannot be standard output."""
    command, at = _command_of(command, words)
    try:
        values, _, given = command.make_parser(typer.Context(command)).parse_args(list(words[at:]))
    except Exception:  # the classes are not public; the real parse reports the error
        return
    if any(each.name == "help" for each in given):
        return
    for each in given:
        if each.param_type_name != "option" or each.multiple:
            continue
        # Repeating a flag is harmless, unless it has an opposite.
        if given.count(each) > 1 and (not each.is_flag or each.secondary_opts):
            name = "/".join([*each.opts, *each.secondary_opts])
            raise UsageError(f"{name} takes one value, but was given {given.count(each)} times")
    for each in command.params:
        is_file_only = each.name in _OUTPUTS and (" ".join(words[:at]), each.name) not in _STREAMED
        if is_file_only and values.get(each.name) == "-":
            name = each.opts[0] if each.param_type_name == "option" else each.metavar
            raise UsageError(f"{name} cannot be standard output (-) here; name a file or folder")


def _refuse_empty(command: Any, words: Sequence[str]) -> None:
    """Refuse empty words (`--out "$UNSET"`): an empty path would mean the current folder."""
    for word in words:
        command = getattr(command, "commands", {}).get(word, command)
    valued = {name: each for each in command.params if not getattr(each, "is_flag", True) for name in each.opts}
    ours = words[: words.index("--")] if "--" in words else words
    for before, word in pairwise(["", *ours]):
        name, equals, value = word.partition("=")
        is_empty, option = (not value, name) if equals and name in valued else (not word, before)
        if is_empty and option in valued and valued[option].metavar != "TEXT":
            raise UsageError(f"{option} is empty; give a value or omit the option {_UNSET}")
        if is_empty and option not in valued:
            raise UsageError(f"empty argument; give a value or omit it {_UNSET}")
