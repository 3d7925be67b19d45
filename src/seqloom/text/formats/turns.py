"""Plays and chats as pairs: what was said before, and the reply.

    HAMLET:                      Anna: are you there?         anna TAB are you there?       {"speaker": "anna",
    To be, or not to be          Ben: yes                     ben TAB yes                    "text": "are you there?"}
    (blank line)                 and listening
    OPHELIA: Good my lord

A turn is what one speaker says until another one speaks, on one line; the names of speakers are not part of it. Each
turn is the reply to the one before it, or to the last so many, oldest first, with " || " between them.

Replies do not cross from one scene or conversation to the next. These are separated, in a play, by a block that nobody
speaks (SCENE II. A room.), by two blank lines or by a line of marks (***); in a chat by a blank line or by such a line.
A block of a play in brackets is a stage direction, and is left out.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from seqloom.core.errors import DataError, Problem, Problems
from seqloom.core.files import LineReader
from seqloom.core.text_files import OnBad, bare_name
from seqloom.text.formats.jsonl import BadRecord, parse_record, require_text
from seqloom.text.formats.segments import Format, Languages, Pair

BETWEEN = " || "
"""What separates the turns of a context."""

CHAT_SHARE = 0.9
"""The share of lines with a name and a text from which a text is a chat, whose other lines continue a turn."""

MAX_CHATS = 0.6
"""Blocks of a chat for each of its lines: with more, it is a play whose speeches are one line each."""

SHOWN = 40
"""Characters of a line that a message shows."""

NAME = re.compile(r"(?P<name>[^\W_][^:\t?!;|<>{}\"]{0,39}):(?=\s|$)(?P<text>.*)")
"""A name before its turn: `HAMLET:`, `First Citizen: Speak`; of at most `MAX_NAME_WORDS` words."""

MAX_NAME_WORDS = 5

_DIRECTION = re.compile(r"\[.*\]|\(.*\)", re.DOTALL)
_MARKS = re.compile(r"[\W_]{3,}")


class Turn(NamedTuple):
    """What somebody says."""

    speaker: str
    """Empty where nobody is named: then each turn is another one's."""
    text: str
    line: int
    """Where it begins in the file, counted from 1."""


Spoken = Iterable[Turn | None]
"""Turns in their order; None where a scene or conversation ends."""


def named_turn(line: str) -> tuple[str, str] | None:
    """The name and the text of a line that begins a turn; None of another line."""
    found = NAME.fullmatch(line.strip())
    if found is None or len(found["name"].split()) > MAX_NAME_WORDS:
        return None
    return found["name"].strip(), found["text"].strip()


def is_chat(lines: Sequence[str]) -> bool:
    """Whether a text has a name before nearly each line, and lines that follow each other without a blank one."""
    filled = [line for line in lines if line.strip()]
    named = sum(found is not None and bool(found[1]) for found in map(named_turn, filled))
    return named >= CHAT_SHARE * len(filled) > 0 and len(speeches(lines)) <= MAX_CHATS * len(filled)


def speeches(lines: Sequence[str]) -> list[tuple[int, list[str]]]:
    """The blocks of lines without a blank one among them, each with the number of its first line."""
    blocks: list[tuple[int, list[str]]] = []
    is_open = False
    for number, line in enumerate(lines, start=1):
        if line.strip():
            if not is_open:
                blocks.append((number, []))
            blocks[-1][1].append(line.strip())
        is_open = bool(line.strip())
    return blocks


def _play(lines: Sequence[str]) -> Iterator[Turn | None]:
    end = 0  # the last line of the block before
    for first, block in speeches(lines):
        found = named_turn(block[0])
        if first - end > 2:
            yield None
        end = first + len(block) - 1
        if found is not None:
            name, begin = found
            yield Turn(name, " ".join([begin, *block[1:]]).strip(), first)
        elif not _DIRECTION.fullmatch("\n".join(block)):
            yield None


def _chat(lines: Sequence[str]) -> Iterator[Turn | None]:
    turn: Turn | None = None
    for number, line in enumerate(lines, start=1):
        found = named_turn(line)
        if found is not None or turn is None or not line.strip() or _MARKS.fullmatch(line.strip()):
            yield turn
            turn = None if found is None else Turn(*found, number)
            if found is None:
                yield None
        else:
            turn = turn._replace(text=f"{turn.text} {line.strip()}")
    yield turn


def _table(lines: Sequence[str], path: Path) -> Iterator[Turn | None]:
    problems = Problems()
    for number, line in enumerate(lines, start=1):
        cells = line.split("\t")
        if not line.strip():
            yield None
        elif len(cells) != 2:
            columns = f"{len(cells)} column{'s' if len(cells) > 1 else ''}"
            problems.add(f"{columns}, expected speaker, tab, text (data.unit=turn)", path, number)
        else:
            yield Turn(cells[0].strip(), cells[1].strip(), number)
    problems.require_none()


def _records(lines: Sequence[str], path: Path) -> Iterator[Turn | None]:
    problems = Problems()
    for number, line in enumerate(lines, start=1):
        try:
            yield _turn_of(parse_record(line), number) if line.strip() else None
        except BadRecord as error:
            problems.add(str(error), path, number, error.column)
    problems.require_none()


def _turn_of(record: dict[str, Any], number: int) -> Turn:
    if "text" not in record:
        raise BadRecord(f"no member 'text'; there are {', '.join(record)[:80] or 'none'}")
    return Turn(require_text(record.get("speaker")) or "", (require_text(record["text"]) or "").strip(), number)


def read_turns(path: Path, *, encoding: str = "utf-8", on_bad: OnBad = "error") -> list[Turn | None]:
    """The turns of a play or chat, those of one speaker in a row joined; None where a scene ends.

    A turn without a text ends what is said before it too: it is not known what the next one replies to.
    """
    lines = list(LineReader(path, encoding, on_bad=on_bad))
    suffix = Path(bare_name(path)).suffix.lower()
    if suffix == ".tsv":
        spoken: Spoken = _table(lines, path)
    elif suffix == ".jsonl":
        spoken = _records(lines, path)
    else:
        spoken = _chat(lines) if is_chat(lines) else _play(lines)
    turns: list[Turn | None] = []
    for turn in spoken:
        before = turns[-1] if turns else None
        if turn is None or not turn.text:
            turns += [] if before is None else [None]
        elif before is not None and turn.speaker and before.speaker == turn.speaker:
            turns[-1] = before._replace(text=f"{before.text} {turn.text}")
        else:
            turns.append(turn)
    return turns


def read_replies(path: Path, *, history: int, encoding: str = "utf-8", on_bad: OnBad = "error") -> Iterator[Pair]:
    """Each turn of a file with up to `history` turns before it. A DataError says where a file has none."""
    turns = read_turns(path, encoding=encoding, on_bad=on_bad)
    known = [turn for turn in turns if turn is not None]
    if not known:
        first = next(((number, line) for number, line in enumerate(LineReader(path, encoding, on_bad=on_bad), start=1)
                      if line.strip()), None)  # fmt: skip
        shown = "the file is empty" if first is None else f"the text begins {first[1].strip()[:SHOWN]!r}"
        expected = 'no turns, expected "NAME:" before what is said, with a blank line between speeches, or "Name: text"'
        raise DataError(problems=[Problem(f"{expected} in each line; {shown}", str(path), first[0] if first else 1)])
    pairs = 0
    context: list[Turn] = []
    for turn in turns:
        if turn is None:
            context = []
            continue
        if context:
            pairs += 1
            yield Pair(BETWEEN.join(each.text for each in context), turn.text, turn.line)
        context = [*context, turn][-history:]
    if not pairs:
        problem = "only one turn" if len(known) == 1 else f"{len(known):,} turns, none of which follows another one"
        message = f"{problem}: there is no reply to learn; at least two turns in a row are needed"
        raise DataError(problems=[Problem(message, str(path), known[0].line)])


def formats_with_turns(
    history: int, *, paths: Iterable[Path], on_bad: OnBad = "error", formats: Sequence[Format]
) -> tuple[Format, ...]:
    """The formats, with files that are named like these read as replies to so many turns, whatever their ending."""
    suffixes = tuple(sorted({Path(bare_name(path)).suffix.lower() for path in paths}))

    def replies(path: Path, _languages: Languages, encoding: str) -> Iterator[Pair]:
        return read_replies(path, history=history, encoding=encoding, on_bad=on_bad)

    others = (replace(each, suffixes=tuple(set(each.suffixes) - set(suffixes))) for each in formats)
    return Format("turns", suffixes, pairs=replies), *others
