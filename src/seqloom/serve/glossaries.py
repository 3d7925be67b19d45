"""Glossaries that clients store on a server, in memory, each for the caller that made it.

They are gone when the server ends. What a glossary forces is decided line by line: terms that no line of a request
has are not sent to a worker, and a term that a model cannot write is skipped there, since a terminology of thousands
of terms must not lose a translation because of one of them.
"""

import csv
import io
import re
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property

from seqloom.serve.refusal import Refusal, bad_request
from seqloom.serve.settings import ServeConfig
from seqloom.text.glossary import Glossary, Pair
from seqloom.text.normalise import Normaliser

MAX_TERM_CHARACTERS = 200
"""A longer term is stored and listed, but not looked for."""

MAX_NAME_CHARACTERS = 1_024
BYTES_PER_ENTRY = 400
"""What an entry takes in memory besides its characters, with its places in the tables by which it is found."""

_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")


@dataclass(frozen=True)
class StoredGlossary:
    """A glossary on the server."""

    identity: str
    owner: str
    name: str
    source: str
    """Code of the language of the terms."""
    target: str
    entries: tuple[Pair, ...]
    created: datetime

    @cached_property
    def glossary(self) -> Glossary:
        """The terms that are looked for."""
        return Glossary(tuple(pair for pair in self.entries if _is_usable(pair)))

    @cached_property
    def size(self) -> int:
        """About how many bytes it takes in memory."""
        return sum(BYTES_PER_ENTRY + 8 * (len(source) + len(target)) for source, target in self.entries)


@dataclass
class GlossaryStore:
    """The glossaries of all callers."""

    settings: ServeConfig
    _stored: dict[str, StoredGlossary] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """About how many bytes all of them take."""
        return sum(each.size for each in self._stored.values())

    def of(self, owner: str) -> list[StoredGlossary]:
        """Those of a caller, in the order in which they were made."""
        return [each for each in self._stored.values() if each.owner == owner]

    def get(self, identity: str, *, owner: str) -> StoredGlossary | None:
        """A glossary of a caller."""
        found = self._stored.get(identity)
        return found if found is not None and found.owner == owner else None

    def add(self, owner: str, name: str, *, source: str, target: str, entries: Sequence[Pair]) -> StoredGlossary:
        """Store a glossary, if there is room."""
        if len(self.of(owner)) >= self.settings.glossaries:
            raise bad_request(
                f"there are {self.settings.glossaries} glossaries already, which is the limit; delete one, or raise "
                "serve.glossaries"
            )
        made = StoredGlossary(
            str(uuid.uuid4()), owner, name[:MAX_NAME_CHARACTERS], source, target, tuple(entries), datetime.now(UTC)
        )
        if self.size + made.size > self.settings.stored_bytes:
            raise Refusal(413, "the server has no room for this glossary; delete others, or raise serve.stored_bytes")
        self._stored[made.identity] = made
        return made

    def remove(self, identity: str, *, owner: str) -> bool:
        """Delete a glossary of a caller; False if there is none."""
        if self.get(identity, owner=owner) is None:
            return False
        del self._stored[identity]
        return True


def joined_glossary(stored: Sequence[StoredGlossary]) -> Glossary | None:
    """The terms of several glossaries; of those with the same source, that of the first glossary counts."""
    if not stored:
        return None
    if len(stored) == 1:
        return stored[0].glossary
    return Glossary(tuple(pair for each in reversed(stored) for pair in each.glossary.terms))


def _is_usable(pair: Pair) -> bool:
    normal = Normaliser()
    return all(normal(term) and len(term) <= MAX_TERM_CHARACTERS for term in pair)


# --- entries as text --------------------------------------------------------------------------------------------------


def parse_entries(text: str, *, is_csv: bool) -> list[Pair]:
    """The pairs of a glossary: lines of two terms with a tab between them, or CSV, in which languages may follow."""
    entries: dict[str, str] = {}
    rows = _csv_rows(text) if is_csv else (line.rstrip("\r").split("\t") for line in text.split("\n"))
    for number, row in enumerate(rows, start=1):
        cells = [cell.strip() for cell in row]
        if not any(cells):
            continue
        if len(cells) not in ((2, 4) if is_csv else (2,)):
            form = "a comma" if is_csv else "a tab"
            raise bad_request(f"entry {number} of the glossary must be two terms with {form} between them")
        source, target = cells[:2]
        if not source or not target:
            raise bad_request(f"entry {number} of the glossary has an empty term")
        if _CONTROL.search(source) or _CONTROL.search(target):
            raise bad_request(f"entry {number} of the glossary has a control character or a line break in a term")
        if source in entries:
            raise bad_request(f"entry {number} of the glossary has a source term that an earlier entry has, too")
        entries[source] = target
    if not entries:
        raise bad_request("the glossary has no entries")
    return list(entries.items())


def _csv_rows(text: str) -> Iterable[list[str]]:
    try:
        yield from csv.reader(io.StringIO(text, newline=""), strict=True)
    except csv.Error as error:
        raise bad_request("the entries of the glossary are not valid CSV") from error


def write_entries(entries: Iterable[Pair]) -> str:
    """Pairs as lines with a tab between the terms."""
    return "\n".join(f"{source}\t{target}" for source, target in entries)
