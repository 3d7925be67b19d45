"""Arguments that commands share: settings `path=value`, config files, text files, and files to write."""

import contextlib
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import typer

from seqloom.core.errors import DataError, Problem, UsageError
from seqloom.core.files import require_folders_above, require_writable
from seqloom.core.text_files import OnBad
from seqloom.text.formats.readers import format_of

ModelFolder = Annotated[Path, typer.Argument(metavar="MODEL", help="A model folder, a run or an archive.")]
TextModel = Annotated[Path, typer.Argument(metavar="MODEL", help="A model folder, a run, or an ARPA file.")]
JsonResult = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
JsonEvents = Annotated[
    bool, typer.Option("--json", help="Print the result as JSON on stdout and events as JSON on stderr.")
]
OutputFile = Annotated[
    Path | None, typer.Option("--out", metavar="FILE", help="Output file; standard output by default.")
]
Threads = Annotated[
    int | None,
    typer.Option(
        "--threads",
        metavar="N",
        min=1,
        max=1000,
        help="Number of threads, by default all cores; results do not depend on it.",
    ),
]
Picture = Annotated[Path, typer.Option("--out", metavar="PICTURE", help="Output file, .png or .svg.")]
ParallelFiles = Annotated[
    list[str] | None,
    typer.Option(
        "--train",
        metavar="FILE",
        help="Parallel training text: the source file, then the target file (or SOURCE,TARGET), or one file with both "
        "sides (.tsv, .jsonl, .tmx, .po, .xlf).",
    ),
]
"""A name may contain *; `open_corpus` decides how the files are read."""

Encoding = Annotated[
    str | None,
    typer.Option(
        "--encoding", metavar="NAME", help="Encoding of the text: utf-8 (the default), latin-1, utf-16, cp1252 …"
    ),
]
OnBadUtf8 = Annotated[
    Literal["error", "replace", "skip"] | None,
    typer.Option(
        "--on-bad-utf8",
        metavar="ACTION",
        help="How invalid bytes are handled: [bold]error[/bold] stops (the default), [bold]replace[/bold] puts U+FFFD "
        "for each, [bold]skip[/bold] treats the line as empty.",
    ),
]

FromLanguage = Annotated[
    str | None,
    typer.Option(
        "--from", metavar="LANGUAGE", help="Language to translate from, such as en, for a model that knows several."
    ),
]
ToLanguage = Annotated[
    str | None,
    typer.Option(
        "--to", metavar="LANGUAGE", help="Language to translate into, such as de, for a model that knows several."
    ),
]

STANDARD_INPUT = Path("-")
STANDARD_OUTPUT = Path("-")
"""Accepted by options that can write to standard output; `main` refuses it for the others."""
_OVERRIDE = re.compile(r"[A-Za-z_]\w*(\.\w+)*=")
_CONFIG_SUFFIXES = (".yaml", ".yml")


@dataclass(frozen=True)
class ParsedWords:
    """The positional words of a command."""

    overrides: tuple[str, ...]
    """Settings, `path.to.field=value`."""
    others: tuple[str, ...]
    """The rest, in order."""


def parse_words(words: Sequence[str] | None) -> ParsedWords:
    """Separate settings from the rest. A file whose name looks like a setting can be given as ./name."""
    given = list(words or ())
    overrides = tuple(word for word in given if _OVERRIDE.match(word))
    return ParsedWords(overrides, tuple(word for word in given if not _OVERRIDE.match(word)))


def config_and_overrides(words: Sequence[str] | None, *, hint: str) -> tuple[Path | None, tuple[str, ...]]:
    """The config file among the words, if there is one, and the settings."""
    parsed = parse_words(words)
    configs = [word for word in parsed.others if _is_config(word)]
    for word in parsed.others:
        if not _is_config(word):
            raise UsageError(f"{word!r} is neither a config file (.yaml) nor a setting path=value; {hint}")
    if len(configs) > 1:
        raise UsageError(f"expected at most one config file, got {len(configs)}: {', '.join(configs)}")
    return (Path(configs[0]) if configs else None), parsed.overrides


def _is_config(word: str) -> bool:
    return word.lower().endswith(_CONFIG_SUFFIXES)


def encoding_settings(encoding: str | None, on_bad: OnBad | None) -> list[str]:
    """The flags as settings of the data."""
    given = (("data.encoding", encoding), ("data.on_bad_utf8", on_bad))
    return [f"{name}={value}" for name, value in given if value is not None]


def language_settings(source: str | None, target: str | None) -> list[str]:
    """The values of --from and --to as settings of a model."""
    for flag, value in (("--from", source), ("--to", target)):
        if value is not None and not value.strip():
            raise UsageError(f"{flag} is blank; give a language, such as {flag} de")
    given = (("model.frame.source", source), ("model.frame.target", target))
    return [f"{name}={value.strip()}" for name, value in given if value is not None]


def is_file(name: str | Path) -> bool:
    """Whether there is a file of this name; False for a name that the system cannot look up."""
    with contextlib.suppress(OSError):
        return Path(name).is_file()
    return False


def refuse_expanded(words: Sequence[str] | None, *, option: str) -> None:
    """Refuse positional file names, which `option lm/*.txt` produces when the shell expands the pattern."""
    strays = [word for word in parse_words(words).others if not _is_config(word)]
    if strays and is_file(strays[0]):
        file = Path(strays[0])
        raise UsageError(
            f"unexpected argument {str(file)!r}: {option} takes one name. If the shell expanded a pattern, quote it: "
            f"{option} '{file.parent / f'*{file.suffix}'}', or repeat {option} for each file",
            file=file,
        )


def file_names(values: Sequence[str] | None) -> list[str]:
    """Files given one by one or separated by commas; empty files are refused before anything slow starts."""
    names: list[str] = []
    for value in values or ():
        # A comma can be part of a name: then a file of that name exists.
        is_one = "," not in value or Path(value).exists()
        names += [value] if is_one else [name for name in value.split(",") if name]
    require_content(names)
    return names


def require_content(names: Sequence[str | Path]) -> None:
    """Refuse files of zero bytes, whatever their format; missing files are reported by their readers."""
    empty = [name for name in names if is_file(name) and Path(name).stat().st_size == 0]
    if empty:
        units = {name: "line" if format_of(Path(name)) is None else "segment" for name in empty}
        raise DataError(
            problems=[Problem(f"empty, expected at least one {unit}", str(name)) for name, unit in units.items()]
        )


def require_utf8_names(names: Sequence[str | Path | None]) -> None:
    """Refuse names that are not UTF-8: configs, events and model cards cannot store them."""
    for name in names:
        # Bytes that cannot be decoded appear in a name as lone surrogates.
        if any("\ud800" <= character <= "\udfff" for character in str(name or "")):
            shown = os.fsencode(str(name)).decode("utf-8", errors="backslashreplace")
            raise UsageError(f"{shown}: the name is not UTF-8, so a run cannot store it; rename the file")


def require_search_settings(overrides: Sequence[str]) -> None:
    """Refuse settings that cannot be changed once a model is trained."""
    for override in overrides:
        path = override.partition("=")[0]
        if path != "device" and not path.startswith("search."):
            from seqloom.search.settings import SearchConfig  # here, because it imports pydantic

            if path in SearchConfig.model_fields:
                raise UsageError(f"unknown setting {override!r}; did you mean search.{override}?")
            raise UsageError(
                f"{override!r} cannot be changed after training; search.… (such as search.beam=8) and device can"
            )


def require_picture(out: Path) -> None:
    """Refuse a picture that cannot be written, before the work; missing folders are created later."""
    if out.suffix not in (".png", ".svg"):
        raise UsageError(f"{out} is neither .png nor .svg; use one of these suffixes")
    require_folders_above(out)


def require_new_file(out: Path | None, *, inputs: Sequence[Path], flag: str = "--out") -> None:
    """Refuse an output file that is one of the inputs, has no parent folder, or cannot be written."""
    if out is None:
        return
    if out.is_dir():
        raise UsageError(f"{out} is a folder; {flag} names a file")
    # A link is followed to the file it names, which need not exist yet.
    place = Path(os.path.realpath(out)) if out.is_symlink() else out
    if place.is_symlink():
        raise UsageError(f"{out} is a symbolic link to itself; name another file with {flag}")
    require_folders_above(place)
    if not place.parent.is_dir():
        raise UsageError(f"{out} cannot be written: folder {place.parent} does not exist")
    for path in inputs:
        if path.exists() and out.exists() and path.samefile(out):
            raise UsageError(f"{out} is also an input; name another file with {flag}")
    if place.exists() and any((above / "manifest.json").is_file() for above in list(place.resolve().parents)[:2]):
        raise UsageError(f"{out} is part of a model or a checkpoint; name another file with {flag}")
    require_writable(out)


# --- options that exclude each other ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Conflict:
    """Options of a command that cannot be used together with something else."""

    options: tuple[str, ...]
    other: str
    """Another option, or a mode of the command, such as "plain text"."""
    reason: str = ""


def refuse_conflicts(
    options: Mapping[str, object], conflicts: Sequence[Conflict], *, modes: Sequence[str] = ()
) -> None:
    """Refuse the first option that was given (its value is true) although another option or a mode excludes it."""
    given = [option for option, value in options.items() if value]
    for conflict in conflicts:
        if conflict.other not in given and conflict.other not in modes:
            continue
        for option in conflict.options:
            if option in given:
                verb = "cannot be combined with" if conflict.other in given else "is not supported with"
                raise UsageError(f"{option} {verb} {conflict.other}{f': {conflict.reason}' if conflict.reason else ''}")
