"""What `seqloom translate` is asked to bring into its translations, or to keep out of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from seqloom.core.errors import DataError, Problem, UsageError

if TYPE_CHECKING:
    from seqloom.recipes.wishes import Wish
    from seqloom.text.glossary import Glossary


@dataclass(frozen=True)
class Asked:
    """The same for all lines, but for the prefixes."""

    glossary: "Glossary | None"
    prefixes: tuple[str, ...] | None
    prefix_file: Path | None
    forbidden: tuple[str, ...]
    stops: tuple[str, ...]
    dictionary: Mapping[str, str] | None = None

    def wishes(self, first: int, count: int) -> "list[Wish] | None":
        """The wishes for so many lines from the line of this number on, counted from 0; None if nothing is wished."""
        from seqloom.recipes.wishes import Wish

        if not (self.prefixes is not None or self.forbidden or self.stops):
            return None
        if self.prefixes is not None and len(self.prefixes) < first + count:
            message = (
                f"{len(self.prefixes):,} prefixes, but the text has more lines; each line needs one, a blank one too"
            )
            raise DataError(problems=[Problem(message, str(self.prefix_file))])
        prefixes = [""] * count if self.prefixes is None else self.prefixes[first : first + count]
        return [Wish(prefix, forbidden=self.forbidden, stops=self.stops) for prefix in prefixes]

    def require_lines(self, total: int | None) -> None:
        """Refuse prefixes that are not as many as lines, if it is known how many there are."""
        if self.prefixes is not None and total is not None and len(self.prefixes) != total:
            message = (
                f"{len(self.prefixes):,} prefixes for {total:,} lines of text; each line needs one, a blank one too"
            )
            raise DataError(problems=[Problem(message, str(self.prefix_file))])


def read_asked(
    *,
    glossary: Path | None,
    prefix: Path | None,
    forbid: Sequence[str] | None,
    stop: Sequence[str] | None,
    dictionary: Path | None,
) -> Asked:
    """Read the files; what is blank or wrong is refused."""
    from seqloom.core.files import read_lines
    from seqloom.text.glossary import read_glossary
    from seqloom.text.normalise import is_blank

    for flag, values in (("--forbid", forbid), ("--stop", stop)):
        if any(is_blank(value) for value in values or ()):
            raise UsageError(f"{flag} was given nothing that can be seen; name a word, such as {flag} 'Hund'")
    return Asked(
        glossary=None if glossary is None else read_glossary(glossary),
        prefixes=None if prefix is None else tuple("" if is_blank(line) else line for line in read_lines(prefix)),
        prefix_file=prefix,
        forbidden=tuple(forbid or ()),
        stops=tuple(stop or ()),
        dictionary=None if dictionary is None else dict(read_glossary(dictionary).terms),
    )
