"""What the words of a command line mean: a config file, settings `path=value`, or files."""

import contextlib
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from seqloom.core.errors import DataError, Problem, UsageError
from seqloom.core.files import require_folders_above, require_writable
from seqloom.text.formats.readers import format_of

# Options of commands that learn from parallel text.

TrainFiles = Annotated[
    list[str] | None,
    typer.Option(
        "--train",
        metavar="FILE",
        help="Text to learn from: the source file, then the target file (or both with a comma between), or one file of "
        "both (.tsv, .jsonl, .tmx, .po, .xlf).",
    ),
]
"""A name may have * in it; what the files are is settled by `open_corpus`."""


_OVERRIDE = re.compile(r"[A-Za-z_]\w*(\.\w+)*=")
STANDARD_OUTPUT = Path("-")
"""What an option that names a file to write may say instead; `main` refuses it where it makes no sense."""
_CONFIG_ENDINGS = (".yaml", ".yml")


@dataclass(frozen=True)
class Words:
    """The words of a command, sorted."""

    overrides: tuple[str, ...]
    """Settings, `path.to.field=value`."""
    others: tuple[str, ...]
    """All the rest, in their order."""


def sort_words(words: Sequence[str] | None) -> Words:
    """Tell settings from the rest. A file whose name looks like a setting can be given as ./name."""
    given = list(words or ())
    overrides = tuple(word for word in given if _OVERRIDE.match(word))
    return Words(overrides, tuple(word for word in given if not _OVERRIDE.match(word)))


def config_and_overrides(words: Sequence[str] | None, *, hint: str) -> tuple[Path | None, tuple[str, ...]]:
    """The one config file among the words, if there is one, and the settings."""
    found = sort_words(words)
    configs, strangers = _configs_and_strangers(found)
    if strangers:
        raise UsageError(f"{strangers[0]!r} is neither a config file (.yaml) nor a setting path=value; {hint}")
    if len(configs) > 1:
        raise UsageError(f"one config file at most, but {len(configs)} were given: {', '.join(configs)}")
    return (Path(configs[0]) if configs else None), found.overrides


def _configs_and_strangers(found: Words) -> tuple[list[str], list[str]]:
    configs = [word for word in found.others if word.lower().endswith(_CONFIG_ENDINGS)]
    return configs, [word for word in found.others if word not in configs]


def is_file(name: str | Path) -> bool:
    """Whether there is a file of this name; a name that the system takes for none is no error here."""
    with contextlib.suppress(OSError):
        return Path(name).is_file()
    return False


def refuse_expanded(words: Sequence[str] | None, *, option: str) -> None:
    """Refuse files that stand by themselves: `option lm/*.txt` gives all but the first so, once the shell is through.

    A word that is no file is left to `config_and_overrides`.
    """
    _, strangers = _configs_and_strangers(sort_words(words))
    if strangers and is_file(strangers[0]):
        file = Path(strangers[0])
        raise UsageError(
            f"{str(file)!r} stands by itself, and {option} takes one name; if the shell has put files in place of a "
            f"pattern, put quotes around it: {option} '{file.parent / f'*{file.suffix}'}', or name each file with its "
            f"own {option}",
            file=file,
        )


def file_names(values: Sequence[str] | None) -> list[str]:
    """Files that were given one by one or with commas between them; empty ones are refused before anything slow."""
    names: list[str] = []
    for value in values or ():
        # A name may have a comma in it; the file itself settles the question.
        is_one = "," not in value or Path(value).exists()
        names += [value] if is_one else [name for name in value.split(",") if name]
    require_content(names)
    return names


def require_content(names: Sequence[str | Path]) -> None:
    """Refuse files of no bytes, whatever their format; files that are not there are left to those who read them."""
    empty = [name for name in names if is_file(name) and Path(name).stat().st_size == 0]
    if empty:
        kinds = {name: "line" if format_of(Path(name)) is None else "segment" for name in empty}
        problems = [Problem(f"empty, expected at least one {kind}", str(name)) for name, kind in kinds.items()]
        raise DataError(problems=problems)


def require_readable_names(names: Sequence[str | Path | None]) -> None:
    """Refuse names that are not UTF-8: configs, events and cards could not hold them."""
    for name in names:
        # Bytes that could not be decoded stand in a name as lone surrogates.
        if any("\ud800" <= character <= "\udfff" for character in str(name or "")):
            shown = os.fsencode(str(name)).decode("utf-8", errors="backslashreplace")
            raise UsageError(f"{shown}: the name is not UTF-8, so a run cannot keep it; rename it")


def require_search_settings(overrides: Sequence[str]) -> None:
    """Refuse settings that cannot be changed once a model is trained."""
    for override in overrides:
        path = override.partition("=")[0]
        if path != "device" and not path.startswith("search."):
            from seqloom.search.settings import SearchConfig  # here, because it brings pydantic with it

            if path in SearchConfig.model_fields:
                raise UsageError(f"{override!r} is no setting; did you mean search.{override}?")
            raise UsageError(
                f"{override!r} cannot be changed here: the model is trained already; "
                "what can be set is search.… (such as search.beam=8) and device"
            )


def require_new_file(out: Path | None, *, inputs: Sequence[Path], flag: str = "--out") -> None:
    """Refuse an output file that would replace one of the inputs, has no folder to stand in, or cannot be written."""
    if out is None:
        return
    if out.is_dir():
        raise UsageError(f"{out} is a folder; {flag} names a file")
    # A link is followed to the file that it names, which need not be there yet.
    place = Path(os.path.realpath(out)) if out.is_symlink() else out
    if place.is_symlink():
        raise UsageError(f"{out} is a symbolic link that leads back to itself; name another file with {flag}")
    require_folders_above(place)
    if not place.parent.is_dir():
        raise UsageError(f"{out} cannot be written: there is no folder {place.parent}")
    for path in inputs:
        if path.exists() and out.exists() and path.samefile(out):
            raise UsageError(f"{out} is the input as well; name another file with {flag}")
    if place.exists() and any((above / "manifest.json").is_file() for above in list(place.resolve().parents)[:2]):
        raise UsageError(f"{out} is a part of a model or a checkpoint; name another file with {flag}")
    require_writable(out)
