"""Files of real shape, one in each format, and engines that know no language."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from seqloom.text.formats.carry import CannotCarry, Carrier, Rendering
from seqloom.text.formats.segments import Catalogue, Filling, Segment

PO = r"""# German translations for loom.
# Copyright (C) 2026 The authors
#, fuzzy
msgid ""
msgstr ""
"Project-Id-Version: loom 1.0\n"
"Language: de\n"
"MIME-Version: 1.0\n"
"Content-Type: text/plain; charset=UTF-8\n"
"Plural-Forms: nplurals=2; plural=(n != 1);\n"

#. Title of the window
#: src/window.c:42 src/window.c:57
msgid "Open file"
msgstr "Datei öffnen"

#: src/window.c:60
#, c-format
msgid "Cannot open \"%s\": %m\n"
msgstr ""

msgctxt "menu"
msgid "Open"
msgstr ""

#, c-format, fuzzy
#| msgid "%d document"
msgid "%d file"
msgid_plural "%d files"
msgstr[0] "%d Dokument"
msgstr[1] "%d Dokumente"

#: src/count.c:7
#, python-brace-format
msgid "{count} thread of <b>{name}</b>"
msgid_plural "{count} threads of <b>{name}</b>"
msgstr[0] ""
msgstr[1] ""

msgid ""
"A rather long text that goes on over several lines, because nobody wants to "
"read lines that are longer than their window.\n"
"See https://example.org/%s for more."
msgstr ""

#~ msgid "Close"
#~ msgstr "Schließen"
"""

XLIFF_1 = """<?xml version="1.0" encoding="UTF-8"?>
<!-- made by hand -->
<xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2">
  <file original="a.html" source-language="en" target-language="de" datatype="html">
    <header><note>Mind the &lt;tags&gt;</note></header>
    <body>
      <trans-unit id="1" approved="yes"><source>Hello</source><target state="final">Hallo</target></trans-unit>
      <trans-unit id="2">
        <source>Click <g id="1">here <x id="2"/></g> to &lt;b&gt;save&lt;/b&gt; %s.</source>
        <alt-trans><source>Click</source><target>Klick</target></alt-trans>
      </trans-unit>
      <trans-unit id="3"><source>Tom &amp; Jerry</source><target state="new" /></trans-unit>
      <trans-unit id="4" translate="no"><source>seqloom</source></trans-unit>
      <group id="g"><trans-unit id="5" xml:space="preserve">
        <source>First line
second line</source>
        <target state="needs-translation">First line
second line</target>
      </trans-unit></group>
      <trans-unit id="6">
        <source>One. Two.</source>
        <seg-source><mrk mtype="seg" mid="1">One.</mrk> <mrk mtype="seg" mid="2">Two.</mrk></seg-source>
      </trans-unit>
      <trans-unit id="7"><source><bpt id="1">&lt;i></bpt>slanted<ept id="1">&lt;/i></ept> text</source></trans-unit>
    </body>
  </file>
</xliff>
"""

XLIFF_2 = """<?xml version='1.0'?>
<xliff xmlns="urn:oasis:names:tc:xliff:document:2.0" version="2.0" srcLang="en-US">
 <file id="f1">
  <unit id="u1">
   <originalData><data id="d1">&lt;br/></data></originalData>
   <segment id="s1" state="initial">
    <source>Press <pc id="1">the <ph id="2" dataRef="d1"/> key</pc>.</source>
   </segment>
   <ignorable><source> </source></ignorable>
   <segment id="s2">
    <source>Then <sc id="3"/>wait<ec startRef="3"/> for {0}.</source>
    <target></target>
   </segment>
  </unit>
  <unit id="u2" translate="no"><segment><source>Do not</source></segment></unit>
  <unit id="u3"><segment state="final"><source>Done</source><target>Fertig</target></segment></unit>
 </file>
</xliff>
"""

TMX = """<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE tmx SYSTEM "tmx14.dtd">
<tmx version="1.4">
  <header creationtool="loom" creationtoolversion="1" segtype="sentence" o-tmf="x" adminlang="en" srclang="en"
          datatype="plaintext"/>
  <body>
    <tu tuid="1">
      <tuv xml:lang="en-GB"><seg>The colour is <bpt i="1">&lt;b></bpt>red<ept i="1">&lt;/b></ept>.</seg></tuv>
      <tuv xml:lang="de-DE"><seg>Die Farbe ist <bpt i="1">&lt;b></bpt>rot<ept i="1">&lt;/b></ept>.</seg></tuv>
      <tuv xml:lang="fr"><seg>La couleur est rouge.</seg></tuv>
    </tu>
    <tu tuid="2">
      <note>no German yet</note>
      <tuv xml:lang="en">
        <seg>Save <hi type="b">all</hi> files<ph x="1">{0}</ph> &amp; quit</seg>
      </tuv>
    </tu>
    <tu tuid="3">
      <tuv xml:lang="en"><seg>Over
        two lines</seg></tuv>
      <tuv xml:lang="de"><seg/></tuv>
    </tu>
  </body>
</tmx>
"""

JSONL = """{"id": 1, "source": "Hello", "target": "Hallo"}
{"id": 2,  "source": "Good morning, {name}!",  "target": "", "tags": ["a", "b"]}

{"id": 3, "source": "Save \\"%s\\"", "target":null}
{"source": "No target"}
{"translation": {"en": "Inside", "de": ""}, "id": 5}
{"source": "Doubtful", "target": "Zweifelhaft", "fuzzy": true}
"""

NAMES = {
    "messages.po": PO,
    "page.xlf": XLIFF_1,
    "page2.xliff": XLIFF_2,
    "memory.tmx": TMX,
    "pairs.jsonl": JSONL,
}
"""Each format under the name of a file."""

Engine = Callable[[str], str]


def reversed_words(line: str) -> str:
    """An engine that turns the order of words round."""
    return " ".join(reversed(line.split()))


def shouting(line: str) -> str:
    """An engine that writes capitals."""
    return line.upper()


def inventing(line: str) -> str:
    """An engine that puts placeholders in which nobody asked for."""
    return f"%s {line} {{0}} <b> &amp; 100%d"


def write(folder: Path, name: str, *, line_end: str = "\n") -> Path:
    """A sample in a file."""
    path = folder / name
    path.write_bytes(NAMES[name].replace("\n", line_end).encode())
    return path


def fill(
    catalogue: Catalogue, engine: Engine, *, states: Sequence[str] = ("untranslated",), aligned: bool = False
) -> Mapping[int, Filling]:
    """What an engine makes of the segments of these states; one whose markup cannot be carried is left as it is."""
    found = {}
    for number, segment in enumerate(catalogue.segments):
        if segment.state in states:
            with suppress(CannotCarry):
                filling = filling_of(segment, engine, aligned=aligned)
                if filling is not None:
                    found[number] = filling
    return found


def filling_of(segment: Segment, engine: Engine, *, aligned: bool = False) -> Filling | None:
    """What an engine makes of a segment; `aligned` if it tells that word n comes from word n."""
    from seqloom.text.words import word_spans

    carrier = Carrier(segment.source, is_format=segment.is_format)
    renderings = []
    for line in carrier.lines:
        text = engine(line)
        spans = word_spans(text) if aligned else []
        renderings.append(Rendering(text, spans, [(at, at) for at in range(len(spans))]))
    return carrier.filling(renderings)
