"""The files that make up a corpus, named one by one, by a pattern or by their folder, and their languages.

In a folder:

    pairs    news.de + news.en, talks.de.gz + talks.en.gz    one name, and the endings of the two languages
    tables   a.tsv, b.tmx, c.po …                            both sides in one file
    texts    a.txt, b.txt.gz, c.en, d.tmx                    for models of one language

They come in the order of their names, subfolders are ignored, and what is left out is reported.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from seqloom.core.errors import UsageError
from seqloom.core.files import matching_files
from seqloom.core.text_files import bare_name
from seqloom.text.formats.readers import FORMATS, format_of, holds_both_sides, languages_of
from seqloom.text.formats.segments import Format, Languages
from seqloom.text.languages import LANGUAGES, is_known_language

Part = tuple[Path, ...]
"""A source file and a target file, or one file with both: TSV, JSONL, TMX, PO, MO or XLIFF."""

_LANGUAGE = re.compile(r"[a-z]{2,3}([-_][A-Za-z0-9]+)*")
_TWO_LANGUAGES = re.compile(r"([a-z]{2,3})-([a-z]{2,3})")
_NO_LANGUAGE = frozenset({"txt", "raw", "tok", "bpe", "spm", "csv", "src", "trg", "tgt", "ref", "hyp", "out"})
_HELD_OUT = re.compile(r"(^|[^a-z])(dev|devel|val|valid|validation|test|eval)([^a-z]|$)")
_TEXT_ENDINGS = frozenset({"", "txt", "text", "raw", "tok", "tokens", "bpe"})
_MAX_SHOWN_FILES = 4


def parts_of(paths: Sequence[Path], formats: Sequence[Format] = FORMATS) -> list[Part]:
    """The files that belong together among those of a corpus: one with both sides, or two; none is opened."""
    paths = _expanded(paths, formats)
    tables = [path for path in paths if holds_both_sides(path, formats)]
    if paths and len(tables) == len(paths):
        return [(path,) for path in paths]
    if tables:
        raise UsageError(f"{tables[0]} is a table of both sides; give either tables or pairs of files, not both")
    if len(paths) == 0 or len(paths) % 2:
        names = ", ".join(map(str, paths)) or "nothing"
        raise UsageError(
            f"a source file and a target file are needed, or one file with both (.tsv, .tmx …); given: {names}"
        )
    pairs: list[Part] = list(zip(paths[::2], paths[1::2], strict=True))
    for source, target in pairs:
        if source.exists() and target.exists() and source.samefile(target):
            raise UsageError(f"{source} is given as source and as target; name the file in the other language")
    return pairs


def _expanded(paths: Sequence[Path], formats: Sequence[Format]) -> list[Path]:
    lists = [matching_files(path) for path in paths]
    is_paired = len(lists) % 2 == 0 and not all(holds_both_sides(path, formats) for path in paths)
    if not is_paired or all(len(each) == 1 for each in lists):
        return list(chain.from_iterable(lists))
    for at in range(0, len(lists), 2):
        if len(lists[at]) != len(lists[at + 1]):
            raise UsageError(
                f"{paths[at]} matches {len(lists[at])} files, but {paths[at + 1]} for {len(lists[at + 1])}; "
                "each source file needs its target file"
            )
    pairs = (zip(one, other, strict=True) for one, other in zip(lists[::2], lists[1::2], strict=True))
    return [path for some in pairs for pair in some for path in pair]


def languages_from(paths: Sequence[Path], formats: Sequence[Format] = FORMATS) -> tuple[str, str] | None:
    """Source and target language by the names of the files: `train.de.gz train.en.gz` or `train.de-en.tsv`.

    Translators' files name them inside. None where nothing does, or two parts disagree.
    """
    paths = _expanded(paths, formats)
    names = [bare_name(path) for path in paths]
    found: set[tuple[str, str] | None] = set()
    if paths and all(format_of(path, formats) is not None for path in paths):
        source, target = languages_of(paths[0], formats)
        found.add((source, target) if source and target else _two_languages(Path(names[0]).stem))
    elif all(name.endswith(".tsv") for name in names):
        for name in names:
            found.add(_two_languages(name.removesuffix(".tsv")))
    elif len(names) % 2 == 0:
        for source, target in zip(names[::2], names[1::2], strict=True):
            one, other = _language(source), _language(target)
            found.add((one, other) if one and other else None)
    return found.pop() if len(found) == 1 else None


def language_of(path: Path) -> str | None:
    """The language of a text by the name of its file: `news.de.gz`; None if it names none, or may hold several."""
    return None if holds_both_sides(path) else _language(bare_name(path))


def _two_languages(stem: str) -> tuple[str, str] | None:
    both = _TWO_LANGUAGES.fullmatch(stem.rpartition(".")[2])
    return (both[1], both[2]) if both else None


def _language(name: str) -> str | None:
    stem, _, ending = name.removesuffix(".txt").rpartition(".")
    if not stem and ending not in LANGUAGES:
        return None  # old and new are not languages in old.txt and new.txt, de and en are
    is_code = "." in name and _LANGUAGE.fullmatch(ending) and ending not in _NO_LANGUAGE
    return ending if is_code else None


@dataclass(frozen=True)
class FolderFiles:
    """The files that are read, in their order, and a sentence on them."""

    files: tuple[Path, ...]
    notice: str


def expand_folders(
    names: Sequence[str], expand: Callable[[Path], FolderFiles]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The names with the files of each folder in its place, and what is to be reported of the folders."""
    files: list[str] = []
    notices: list[str] = []
    for name in names:
        if not Path(name).is_dir():
            files.append(name)
            continue
        found = expand(Path(name))
        files += map(str, found.files)
        notices.append(found.notice)
    return tuple(files), tuple(notices)


def pairs_in(
    folder: Path, languages: Languages, *, is_held_out: bool = False, formats: Sequence[Format] = FORMATS
) -> FolderFiles:
    """The pairs of files in a folder, source and target in turn, or else its tables.

    Unless the folder `is_held_out` itself, files that are called dev or test are left out.
    """
    texts, tables, left_out = _sorted_files(folder, languages, is_held_out=is_held_out, formats=formats)
    if not texts:
        if not tables:
            raise UsageError(
                f"{folder} holds no parallel text: expected pairs such as news.de and news.en, or files with both "
                f"sides (.tsv, .tmx, .po, .xlf, .jsonl){_left_out(left_out)}",
                file=folder,
            )
        return FolderFiles(tuple(tables), f"{folder}: {_counted(tables)}{_left_out(left_out)}")
    if tables:
        first = next(path for group in texts.values() for path in group.values())
        raise UsageError(
            f"{folder} holds pairs of files ({first.name}) and files with both sides ({tables[0].name}); move "
            f"one kind to another folder, or name the files: --train '{folder}/*{tables[0].suffix}'",
            file=folder,
        )
    found = sorted({language for group in texts.values() for language in group})
    source, target = languages
    if source is None or target is None:
        others = [language for language in found if language not in languages]
        if len(others) != 1 or not (source or target):
            if len(found) == 1:
                raise UsageError(
                    f"{folder} holds files in {found[0]} only; parallel text needs a second language", file=folder
                )
            raise UsageError(
                f"{folder} holds files in {', '.join(found[:-1])} and {found[-1]}; choose the direction: "
                f"data.source={found[0]} data.target={found[-1]}",
                file=folder,
            )
        source, target = source or others[0], target or others[0]
    files: list[Path] = []
    alone: list[str] = []
    for stem, group in texts.items():
        wanted = [group.get(language) for language in (source, target)]
        if wanted[0] is not None and wanted[1] is not None:
            files += [wanted[0], wanted[1]]
        elif (only := wanted[0] or wanted[1]) is not None:
            alone.append(f"{only.name} has no partner {stem}.{target if wanted[0] else source}")
        left_out += [path for language, path in group.items() if language not in (source, target)]
    if alone:
        more = f" and {len(alone) - _MAX_SHOWN_FILES} more" if len(alone) > _MAX_SHOWN_FILES else ""
        raise UsageError(
            f"{folder}: {', '.join(alone[:_MAX_SHOWN_FILES])}{more}; add the missing files, or move the others away",
            file=folder,
        )
    if not files:
        raise UsageError(f"{folder} holds no files in {source} and {target}; it has {', '.join(found)}", file=folder)
    pairs = f"{len(files) // 2} pair{'s' if len(files) > 2 else ''} of files"
    return FolderFiles(tuple(files), f"{folder}: {pairs}, {source} → {target}{_left_out(left_out)}")


def texts_in(
    folder: Path, language: str | None, *, is_held_out: bool = False, formats: Sequence[Format] = FORMATS
) -> FolderFiles:
    """The texts of a folder in one language; those whose names have no language are taken to be in it."""
    texts, tables, left_out = _sorted_files(folder, (None, language), is_held_out=is_held_out, formats=formats)
    spoken = sorted({each for group in texts.values() for each in group})
    plain = [path for path in left_out if _is_plain(path) and (is_held_out or not _is_held_out(path))]
    if language is None and len(spoken) > 1:
        raise UsageError(
            f"{folder} holds texts in {', '.join(spoken[:-1])} and {spoken[-1]}; choose one: data.target={spoken[-1]}",
            file=folder,
        )
    chosen = [path for group in texts.values() for each, path in group.items() if language in (None, each)]
    files = sorted([*plain, *chosen, *(path for path in tables if format_of(path, formats) is not None)])
    left_out = [path for path in _visible(folder) if path not in files]
    if not files:
        raise UsageError(
            f"{folder} holds no text files (.txt, a language ending such as .en, .tmx, .jsonl …){_left_out(left_out)}",
            file=folder,
        )
    return FolderFiles(tuple(files), f"{folder}: {_counted(files)}{_left_out(left_out)}")


def _sorted_files(
    folder: Path, languages: Languages, *, is_held_out: bool, formats: Sequence[Format]
) -> tuple[dict[str, dict[str, Path]], list[Path], list[Path]]:
    """Texts by name and language, tables, and the others."""
    texts: dict[str, dict[str, Path]] = {}
    tables: list[Path] = []
    others: list[Path] = []
    for path in _visible(folder):
        stem, language = _stem_and_language(path, languages)
        if _is_held_out(path) and not is_held_out:
            others.append(path)
        elif holds_both_sides(path, formats):
            tables.append(path)
        elif language is None:
            others.append(path)
        elif (twice := texts.setdefault(stem, {}).setdefault(language, path)) != path:
            raise UsageError(
                f"{folder} holds {twice.name} and {path.name}, which would be the same text twice; remove one",
                file=folder,
            )
    return texts, tables, others


def _visible(folder: Path) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if path.is_file() and not path.name.startswith("."))
    except OSError as error:
        raise UsageError(f"{folder} cannot be read: {error.strerror or error}", file=folder) from error


def _stem_and_language(path: Path, languages: Languages) -> tuple[str, str | None]:
    name = bare_name(path).removesuffix(".txt")
    stem, _, ending = name.rpartition(".")
    if stem and (ending in languages or is_known_language(ending)):
        return stem, ending
    return name, None


def _is_plain(path: Path) -> bool:
    return Path(bare_name(path)).suffix.removeprefix(".").lower() in _TEXT_ENDINGS and path.stem.upper() not in (
        "README",
        "LICENSE",
        "LICENCE",
    )


def _is_held_out(path: Path) -> bool:
    return _HELD_OUT.search(path.name.lower()) is not None


def _counted(files: Sequence[Path]) -> str:
    return f"{len(files)} file{'' if len(files) == 1 else 's'}"


def _left_out(files: Sequence[Path]) -> str:
    if not files:
        return ""
    names = ", ".join(path.name for path in sorted(files)[:_MAX_SHOWN_FILES])
    more = f" and {len(files) - _MAX_SHOWN_FILES} more" if len(files) > _MAX_SHOWN_FILES else ""
    return f"; not read: {names}{more}"
