"""Catalogues made at random, of which it is known what stands where and how a filling has to look.

A catalogue is a row of fixed texts and holes. Filled, it must be the same row: every byte of the fixed texts, and of
holes whose segments got nothing; in the other holes exactly what belongs there. Nothing of the package is used to
write them, so that its readers and writers meet a second opinion.
"""

import ast
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from xml.sax.saxutils import escape

from hypothesis import strategies as st

from seqloom.text.formats.placeholders import count_placeholders
from seqloom.text.formats.segments import Code, Filling
from text.formats.generated_parts import CLOSING, INLINE, PLACEHOLDERS, WORDS

FORBIDDEN = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
STRING = r'"(?:[^"\\\r\n]|\\.)*"'


@dataclass(frozen=True)
class Message:
    """Text of a program, cut at its codes and placeholders."""

    pieces: tuple[str | Code, ...]
    placeholders: tuple[str, ...]
    """Those that have a space or nothing beside them, so that nobody can take them for anything else; those that touch
    each other are one."""
    percents: int = 0
    """How often a percent sign is written as two after a number and before a space."""

    @property
    def text(self) -> str:
        """Without codes."""
        return "".join(piece for piece in self.pieces if isinstance(piece, str))

    @property
    def codes(self) -> list[str]:
        """As they are written."""
        return [piece.text for piece in self.pieces if isinstance(piece, Code)]

    @property
    def xml(self) -> str:
        """With codes, and escaped."""
        return "".join(escape(piece) if isinstance(piece, str) else piece.text for piece in self.pieces)


@dataclass(frozen=True)
class Known:
    """What a reader has to find."""

    message: Message
    target: str
    state: str
    context: str = ""
    group: int = -1
    """Segments of one group become fuzzy together; those of -1 do so alone."""
    is_marked: bool = False
    """Whether the file marks it as fuzzy, be there a translation or not."""
    is_format: bool = False


@dataclass(frozen=True)
class Hole:
    """A place that fillings of these segments change."""

    segments: tuple[int, ...]
    kept: str
    """What stands there before."""
    pattern: Callable[[Mapping[int, Filling]], str]
    """What has to be there after, as a regular expression."""


@dataclass
class Written:
    """A catalogue as it is put together."""

    name: str
    parts: list[str | Hole] = field(default_factory=list)
    known: list[Known] = field(default_factory=list)
    line_end: str = "\n"

    @property
    def text(self) -> str:
        """Before anything is filled."""
        return "".join(part if isinstance(part, str) else part.kept for part in self.parts)

    def add(self, *parts: str | Hole) -> None:
        """Put texts and holes at the end, with the line ends of this file."""
        for part in parts:
            self.parts.append(part.replace("\n", self.line_end) if isinstance(part, str) else part)

    def hole(self, segments: Sequence[int], kept: str, pattern: Callable[[Mapping[int, Filling]], str]) -> Hole:
        """A hole with the line ends of this file."""
        return Hole(
            tuple(segments),
            kept.replace("\n", self.line_end),
            lambda made: pattern(made).replace("\n", re.escape(self.line_end)),
        )

    def matched(self, data: bytes, fillings: Mapping[int, Filling]) -> "re.Match[str] | None":
        """Whether the file is as it was but for what fillings must have changed; groups t0, t1 … are strings."""
        pattern = []
        for part in self.parts:
            if isinstance(part, str):
                pattern.append(re.escape(part))
                continue
            made = {number: fillings[number] for number in part.segments if number in fillings}
            pattern.append(part.pattern(made) if made else re.escape(part.kept))
        return re.compile("".join(pattern), re.DOTALL).fullmatch(data.decode())


# --- what is drawn ---------------------------------------------------------------------------------------------------


@st.composite
def messages(draw: st.DrawFn, *, with_codes: bool = False) -> Message:
    """Words with placeholders among them, and codes around both if asked for."""
    pieces: list[str | Code] = []
    apart: list[str] = []
    number, percents, is_parted = 0, 0, True
    chosen = draw(st.lists(st.tuples(st.booleans(), st.integers(0, 99)), min_size=1, max_size=9))
    for at, (is_word, choice) in enumerate(chosen):
        source = WORDS if is_word else PLACEHOLDERS
        text = source[choice % len(source)]
        code = INLINE[choice % 4] if with_codes and draw(st.booleans()) else None
        space = draw(st.sampled_from([" ", " ", " ", "", "  "])) if at + 1 < len(chosen) else ""
        # A line end swallows the spaces around it, and stands by itself wherever it is.
        if not is_word and code is None and is_parted and (space or at + 1 == len(chosen)) and text != "\n":
            apart.append(text)
        percents += is_word and text.endswith("%%") and bool(space or at + 1 == len(chosen))
        number += code is not None
        pieces += [Code(code.replace("{n}", str(number))), text] if code else [text]
        if code in CLOSING:
            pieces.append(Code(CLOSING[code].replace("{n}", str(number))))
        pieces.append(space)
        is_parted = bool(space)
    return Message(_joined(pieces), tuple(apart), percents)


def _joined(pieces: Sequence[str | Code]) -> tuple[str | Code, ...]:
    joined: list[str | Code] = []
    for piece in pieces:
        if isinstance(piece, str) and joined and isinstance(joined[-1], str):
            joined[-1] += piece
        elif piece != "":
            joined.append(piece)
    return tuple(joined)


@dataclass(frozen=True)
class Unit:
    """A message and what a file has of it; each format takes what it can write."""

    message: Message
    plural: Message | None
    old: str
    """The translation that is there."""
    mark: int
    """Chooses states and flags."""
    layout: int
    """Chooses comments, indentation and neighbours."""


def units(*, with_codes: bool) -> st.SearchStrategy[list[Unit]]:
    """A few units."""
    message = messages(with_codes=with_codes)
    old = st.sampled_from(["", "", "Alt %s", 'Zwei\nZeilen mit "Zitat" \\ und <b>', "ü" * 30 + " lang " * 20])
    each = st.builds(Unit, message, st.none() | message, old, st.integers(0, 11), st.integers(0, 11))
    return st.lists(each, min_size=1, max_size=4)


# --- PO --------------------------------------------------------------------------------------------------------------

_HEADERS = {
    0: "",
    1: "Plural-Forms: nplurals=1; plural=0;\\n",
    2: "Plural-Forms: nplurals=2; plural=(n != 1);\\n",
    3: "Plural-Forms: nplurals=3; plural=(n%10==1 && n%100!=11 ? 0 : n%10>=2 && n%10<=4 ? 1 : 2);\\n",
}
_ESCAPES = {"\n": "\\n", "\t": "\\t", '"': '\\"', "\\": "\\\\"}


def _quoted(text: str, *, is_broken: bool = False) -> str:
    """A string of C, or an empty one and then one for each line."""
    lines = re.split(r"(?<=\n)(?=.)", text, flags=re.DOTALL) if is_broken else [text]
    written = [f'"{"".join(_ESCAPES.get(each, each) for each in line)}"' for line in lines]
    return "\n".join(['""', *written] if is_broken else written)


def _text_hole(file: Written, number: int, kept: str, before: str = "") -> Hole:
    strings = f"{STRING}(?:\n{STRING})*"
    return file.hole([number], kept, lambda _made: f"{_literal(before)}(?P<t{number}>{strings})")


def _literal(text: str) -> str:
    """A pattern of this very text; its line ends are still to be turned into those of the file."""
    return re.escape(text).replace("\\\n", "\n")


def _forms(header: int, there: int, unit: Unit) -> list[Message]:
    """What each form is made from, as the header has it; for want of one the first is that of one."""
    assert unit.plural is not None
    count = header or there
    if count == 1:
        return [unit.plural]
    # Of three forms that of one serves 21 as well, for which a singular with other placeholders would be wrong.
    singular, plural = (
        count_placeholders(each.text, is_format=_is_format(unit)) for each in (unit.message, unit.plural)
    )
    is_same = singular == plural
    return [unit.message if header != 3 or is_same else unit.plural, *[unit.plural] * (count - 1)]


def write_po(drawn: Sequence[Unit], style: int) -> Written:
    """A catalogue of gettext; `style` chooses its line ends, header and end."""
    header = style % 4
    file = Written("a.po", line_end="\r\n" if style % 3 == 2 else "\n")
    file.add("# Täst\n", 'msgid ""\nmsgstr "Content-Type: text/plain; charset=UTF-8\\n"\n')
    file.add(f'"{_HEADERS[header]}"\n' if header else "")
    for group, unit in enumerate(drawn):
        file.add("\n" * (1 + unit.layout % 2))
        file.add(*[line for bit, line in ((1, "#. nöte\n"), (2, "#: a.c:7 b.c:9\n")) if unit.layout & bit])
        _write_entry(file, unit, group=group, header=header)
    if style % 2:
        file.add('\n#~ msgid "Old"\n#~ msgstr "Alt"')
    return file


def _write_entry(file: Written, unit: Unit, *, group: int, header: int) -> None:
    is_plural = unit.plural is not None and unit.message.text != unit.plural.text
    there = (1 + unit.mark % 3) if is_plural else 1
    wanted = _forms(header, there, unit) if is_plural else [unit.message]
    # Of a plural only the first translation is there, so that some entries are half done.
    targets = [unit.old if form == 0 or unit.layout % 3 == 0 else "" for form in range(len(wanted))]
    is_fuzzy = unit.mark % 2 == 1
    first = len(file.known)
    numbers = list(range(first, first + len(wanted)))
    context = ["", "", "menu", 'a "b"'][unit.layout % 4]
    for form, message in enumerate(wanted):
        target = targets[form] if form < there else ""
        state = "untranslated" if not target else "fuzzy" if is_fuzzy else "translated"
        file.known.append(Known(message, target, state, context, group, is_fuzzy, _is_format(unit)))
    file.add(_marks(file, numbers, unit, is_fuzzy=is_fuzzy))
    file.add(f"msgctxt {_quoted(context)}\n" if context else "")
    file.add(f"msgid {_quoted(unit.message.text, is_broken=unit.layout % 2 == 0)}\n")
    if not is_plural:
        file.add("msgstr ", _text_hole(file, first, _quoted(unit.old)), "\n")
        return
    assert unit.plural is not None
    file.add(f"msgid_plural {_quoted(unit.plural.text)}")
    for form in range(max(there, len(wanted))):
        name = f"msgstr[{form}]"
        if form >= there:
            file.add(_text_hole(file, numbers[form], "", f"\n{name} "))
        elif form < len(wanted):
            file.add(f"\n{name} ", _text_hole(file, numbers[form], _quoted(targets[form])))
        else:
            file.add(f'\n{name} ""')  # more than the header allows: none of anybody's business
    file.add("\n")


def _is_format(unit: Unit) -> bool:
    return unit.mark % 3 != 1


def _marks(file: Written, numbers: Sequence[int], unit: Unit, *, is_fuzzy: bool) -> Hole:
    """The flags, and the lines that tell an earlier source."""
    others = ["c-format", *["no-wrap"] * (unit.mark % 3 == 2)] if _is_format(unit) else []
    flags = ["fuzzy", *others] if is_fuzzy and unit.mark % 4 == 1 else [*others, *["fuzzy"] * is_fuzzy]
    earlier = '#| msgid "früher"\n' if unit.mark > 7 else ""

    def line(flags: Sequence[str]) -> str:
        return f"#, {', '.join(flags)}\n" if flags else ""

    def pattern(made: Mapping[int, Filling]) -> str:
        if any(filling.is_fuzzy for filling in made.values()):
            return _literal((line(flags) if is_fuzzy else line(["fuzzy", *others])) + earlier)
        if is_fuzzy and len(made) == len(numbers):
            return _literal(line(others))
        return _literal(line(flags) + earlier)

    return file.hole(numbers, line(flags) + earlier, pattern)


# --- XML -------------------------------------------------------------------------------------------------------------


def _content(filling: Filling) -> str:
    """A filling as XML; what XML has no way to write goes."""
    pieces = (escape(FORBIDDEN.sub("", each)) if isinstance(each, str) else each.text for each in filling.content)
    return _literal("".join(pieces))


def _folded(text: str) -> str:
    return re.sub(r"[ \t]*\n\s*", " ", text)


def _seen(message: Message) -> Message:
    """As a reader sees it: line ends mean a space."""
    pieces = tuple(_folded(each) if isinstance(each, str) else each for each in message.pieces)
    return Message(pieces, message.placeholders, message.percents)


def write_xliff(drawn: Sequence[Unit], style: int) -> Written:
    """XLIFF 1.2."""
    file = Written("a.xlf", line_end="\r\n" if style % 3 == 2 else "\n")
    named = ' target-language="de"'
    file.add('<?xml version="1.0" encoding="UTF-8"?>\n<xliff version="1.2"><file source-language="en"')
    everyone = range(len(drawn))
    file.add(named if style % 2 else file.hole(everyone, "", lambda _made: re.escape(named)), "><body>\n")
    for number, unit in enumerate(drawn):
        state = [None, "translated", "new", "needs-review-translation"][unit.mark % 4]
        old = _folded(unit.old)
        approved = ' approved="yes"' if unit.mark == 11 else ""
        is_good = state in (None, "translated") or bool(approved)
        reads = "untranslated" if not old else "translated" if is_good else "fuzzy"
        file.known.append(Known(_seen(unit.message), old, reads, f"n{number}", is_marked=not is_good))
        file.add(f'<trans-unit id="{number}" resname="n{number}"', _approved(file, number, approved), ">")
        file.add(f"\n <source>{unit.message.xml}</source>", _xliff_target(file, number, unit, state))
        file.add("<!-- <target> --><alt-trans><target>x</target></alt-trans>" if unit.layout % 2 else "")
        file.add("\n</trans-unit>\n")
        if unit.layout % 3 == 0:
            file.add('<trans-unit id="no" translate="no"><source>No %s</source></trans-unit>\n')
    file.add("</body></file></xliff>\n")
    return file


def _approved(file: Written, number: int, approved: str) -> Hole:
    """Nobody has approved what somebody should look at."""
    return file.hole(
        [number], approved, lambda made: approved.replace("yes", "no") if made[number].is_fuzzy else approved
    )


def _xliff_target(file: Written, number: int, unit: Unit, state: str | None) -> Hole:
    review = "needs-review-translation"
    said = "" if state is None else f' state="{state}"'
    inside = escape(unit.old)
    is_there = bool(inside) or unit.layout % 4 > 0
    kept = ""
    if is_there:
        kept = f"\n <target{said}>{inside}</target>" if inside or unit.layout % 4 == 1 else f"\n <target{said} />"

    def pattern(made: Mapping[int, Filling]) -> str:
        filling = made[number]
        has_state = filling.is_fuzzy or (is_there and state is not None)
        new = f' state="{review if filling.is_fuzzy else "translated"}"' if has_state else ""
        return f"\n <target{new}>{_content(filling)}</target>"

    return file.hole([number], kept, pattern)


def write_xliff_2(drawn: Sequence[Unit], style: int) -> Written:
    """XLIFF 2."""
    file = Written("a.xliff", line_end="\r\n" if style % 3 == 2 else "\n")
    named = ' trgLang="de"'
    file.add('<xliff version="2.0" srcLang="en"')
    file.add(named if style % 2 else file.hole(range(len(drawn)), "", lambda _made: re.escape(named)))
    file.add('><file id="f">\n')
    for number, unit in enumerate(drawn):
        state = [None, "translated", "initial", "final"][unit.mark % 4]
        old = _folded(unit.old)
        reads = "untranslated" if not old else "fuzzy" if state == "initial" else "translated"
        file.known.append(Known(_seen(unit.message), old, reads, f"n{number}", is_marked=state == "initial"))
        file.add(f'<unit id="{number}" name="n{number}">\n <segment', _segment_state(file, number, state))
        file.add(f">\n  <source>{unit.message.xml}</source>")
        file.add(_segment_target(file, number, unit), "\n </segment>")
        file.add("\n <ignorable><source> </source></ignorable>" if unit.layout % 2 else "", "\n</unit>\n")
    file.add("</file></xliff>")
    return file


def _segment_state(file: Written, number: int, state: str | None) -> Hole:
    def pattern(made: Mapping[int, Filling]) -> str:
        return f' state="{"initial" if made[number].is_fuzzy else "translated"}"'

    return file.hole([number], "" if state is None else f' state="{state}"', pattern)


def _segment_target(file: Written, number: int, unit: Unit) -> Hole:
    inside = escape(unit.old)
    kept = (
        f"\n  <target>{inside}</target>" if inside else ["", "\n  <target/>", "\n  <target></target>"][unit.layout % 3]
    )
    return file.hole([number], kept, lambda made: f"\n  <target>{_content(made[number])}</target>")


def write_tmx(drawn: Sequence[Unit], style: int) -> Written:
    """A translation memory with a third language that nobody asked for."""
    file = Written("a.tmx", line_end="\r\n" if style % 3 == 2 else "\n")
    file.add(
        '<?xml version="1.0"?>\n<!DOCTYPE tmx SYSTEM "tmx14.dtd">\n<tmx version="1.4"><header srclang="en"/><body>\n'
    )
    for number, unit in enumerate(drawn):
        old, mark = _folded(unit.old), [None, "true", "false"][unit.mark % 3]
        is_there = bool(unit.old) or unit.layout % 3 > 0
        is_fuzzy = is_there and mark == "true"
        reads = "untranslated" if not old else "fuzzy" if is_fuzzy else "translated"
        file.known.append(Known(_seen(unit.message), old, reads, f"n{number}", is_marked=is_fuzzy))
        file.add(f'<tu tuid="n{number}">\n <note>%s</note>\n <tuv xml:lang="en-GB"><seg>{unit.message.xml}</seg></tuv>')
        file.add('\n <tuv xml:lang="fr"><seg>Lã</seg></tuv>' if unit.layout % 2 else "")
        if is_there:
            file.add('\n <tuv xml:lang="de-AT">', _tmx_mark(file, number, mark), _tmx_segment(file, number, unit))
            file.add("</tuv>")
        else:
            file.add(_tmx_variant(file, number))
        file.add("\n</tu>\n")
    file.add("</body></tmx>\n")
    return file


_TMX_MARK = '<prop type="x-fuzzy">{}</prop>'


def _tmx_mark(file: Written, number: int, mark: str | None) -> Hole:
    kept = "" if mark is None else _TMX_MARK.format(mark)

    def pattern(made: Mapping[int, Filling]) -> str:
        new = "true" if made[number].is_fuzzy else None if mark is None else "false"
        return "" if new is None else _TMX_MARK.format(new)

    return file.hole([number], kept, pattern)


def _tmx_segment(file: Written, number: int, unit: Unit) -> Hole:
    kept = f"<seg>{escape(unit.old)}</seg>" if unit.old or unit.layout % 2 else "<seg/>"
    return file.hole([number], kept, lambda made: f"<seg>{_content(made[number])}</seg>")


def _tmx_variant(file: Written, number: int) -> Hole:
    def pattern(made: Mapping[int, Filling]) -> str:
        mark = _TMX_MARK.format("true") if made[number].is_fuzzy else ""
        return f'\n <tuv xml:lang="de">{mark}<seg>{_content(made[number])}</seg></tuv>'

    return file.hole([number], "", pattern)


# --- JSONL -----------------------------------------------------------------------------------------------------------


def write_jsonl(drawn: Sequence[Unit], style: int) -> Written:
    """A record per line, with members that are nobody's business."""
    file = Written("a.jsonl", line_end="\r\n" if style % 3 == 2 else "\n")
    for number, unit in enumerate(drawn):
        is_there = bool(unit.old) or unit.layout % 3 > 0
        mark = [None, "true", "false"][unit.mark % 3] if is_there else None
        reads = "untranslated" if not unit.old else "fuzzy" if mark == "true" else "translated"
        file.known.append(Known(unit.message, unit.old, reads, is_marked=mark == "true"))
        file.add(f'{{ "n":{number},  "source": {json.dumps(unit.message.text, ensure_ascii=False)}')
        old = "null" if not unit.old and unit.layout % 2 else json.dumps(unit.old, ensure_ascii=False)
        if mark is not None:
            file.add(', "fuzzy" :', _json_mark(file, number, mark), ' , "target":', _json_text(file, number, old))
            file.add(', "z": [1, {"target": ""}]}\n')
            continue
        file.add(', "target":' if is_there else "")
        file.add(_json_text(file, number, old) if is_there else _json_text(file, number, "", ', "target": '))
        file.add(_json_added(file, number), " }\n")
    return file


def _json_text(file: Written, number: int, kept: str, before: str = "") -> Hole:
    return file.hole([number], kept, lambda _made: f"{re.escape(before)}(?P<t{number}>{STRING})")


def _json_mark(file: Written, number: int, mark: str) -> Hole:
    return file.hole([number], mark, lambda made: "true" if made[number].is_fuzzy else "false")


def _json_added(file: Written, number: int) -> Hole:
    return file.hole([number], "", lambda made: ', "fuzzy": true' if made[number].is_fuzzy else "")


def read_string(name: str, written: str) -> str:
    """What a string in a file means, by the rules of Python, which are those of C and of JSON where they write it."""
    if name == "a.jsonl":
        return str(json.loads(written))
    return "".join(str(ast.literal_eval(line)) for line in re.findall(STRING, written))


WRITERS = {
    "a.po": (write_po, units(with_codes=False)),
    "a.jsonl": (write_jsonl, units(with_codes=False)),
    "a.xlf": (write_xliff, units(with_codes=True)),
    "a.xliff": (write_xliff_2, units(with_codes=True)),
    "a.tmx": (write_tmx, units(with_codes=True)),
}
"""Each format with its writer and what that takes."""
