"""Writes docs/config.md, the reference of all settings, from the descriptions that stand beside the fields.

python docs/generate_reference.py

A test compares the page with what this gives, so the page cannot fall behind.
"""

from collections.abc import Iterator
from pathlib import Path

from seqloom.core.config import FieldDoc, describe_fields
from seqloom.runs.config import RunConfig
from seqloom.serve.settings import ServerSettings

PAGE = Path(__file__).parent / "config.md"

HEAD = """\
# Settings

<!-- Written by docs/generate_reference.py from the code. Change the descriptions there, then run it again. -->

All settings of a run, with their defaults. They come from four places, the later ones winning: the defaults below,
sizes chosen from the data (`seqloom train` says which, and why), a YAML file, and `path.to.field=value` on the command
line, where the last value of a setting counts. There is no other source. An unknown key is an error that names the
nearest known one.

A default here is what holds if nothing else says otherwise; `seqloom config` prints the same as a file to start from,
and every run keeps its complete settings in `config.yaml`.
"""


SERVER = """\

The settings above are those of a run. `seqloom serve` has the following ones, which are given on its command line
([Serving](serving.md#limits-and-settings)).
"""


def render() -> str:
    """The whole page."""
    fields = describe_fields(RunConfig)
    top = [field for field in fields if "." not in field.path and not field.type.startswith("section")]
    parts = [HEAD, "## The run\n", *_table(top), *_sections(fields), SERVER.rstrip("\n")]
    return "\n".join([*parts, *_sections(describe_fields(ServerSettings))]) + "\n"


def _sections(fields: list[FieldDoc]) -> Iterator[str]:
    """A table for each section and kind."""
    sections = {field.path: field for field in fields if field.type.startswith("section")}
    for (name, kind), group in _groups(fields).items():
        title = f"`{name}`, kind `{kind}`" if kind else f"`{name}`"
        described = sections[name].description
        yield f"\n## {title}\n"
        if described:
            yield f"{described}\n"
        yield from _table(group)


def _groups(fields: list[FieldDoc]) -> dict[tuple[str, str | None], list[FieldDoc]]:
    """The fields of each section and kind; a section that several others have is described once."""
    groups: dict[tuple[str, str | None], list[FieldDoc]] = {}
    for field in fields:
        section = field.path.rpartition(".")[0]
        known = groups.setdefault((section, field.kind), []) if section else []
        if field not in known:
            known.append(field)
    return groups


def _table(fields: list[FieldDoc]) -> Iterator[str]:
    yield "| setting | type | default | meaning |"
    yield "|---|---|---|---|"
    for field in fields:
        meaning = " ".join(field.description.split()).replace("|", "\\|")
        yield f"| `{field.path}` | {field.type} | `{field.default}` | {meaning} |"


if __name__ == "__main__":
    PAGE.write_text(render(), encoding="utf-8")
