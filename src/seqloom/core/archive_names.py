"""Names inside an archive: plain ones that mean the same file on every system."""

import re
from collections.abc import Iterable

LONGEST_NAME = 200
"""Characters of a whole name."""

_PART = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._+-]{0,98}[A-Za-z0-9_+-])?", re.ASCII)
"""A folder or a file: no dot at either end, so neither `..` nor a hidden file nor what Windows would shorten."""

_DEVICES = re.compile(r"(?:con|prn|aux|nul|com[0-9]|lpt[0-9]|conin\$|conout\$)(?:\..*)?", re.IGNORECASE | re.DOTALL)
"""What Windows takes for a device in every folder, whatever comes after a dot."""

_DEEPEST = 8
"""Folders in one another, the file counted."""


def fault_of_name(name: str) -> str | None:
    """What is wrong with the name of a file in an archive, as the rest of a sentence; None for a good one."""
    parts = name.split("/")
    if "\\" in name:
        return "has a backslash, which some systems take for a folder"
    if name.startswith("/") or re.match(r"[A-Za-z]:", name):
        return "starts at the root of a disk"
    if ".." in parts:
        return "leads out of the folder"
    if len(name) > LONGEST_NAME or len(parts) > _DEEPEST:
        return f"is longer than {LONGEST_NAME} characters or deeper than {_DEEPEST} folders"
    if any(_DEVICES.fullmatch(part) for part in parts):
        return "is that of a device on Windows"
    if not all(_PART.fullmatch(part) for part in parts):
        return "has parts other than letters, digits, dots, dashes and underscores of ASCII"
    return None


def clash(names: Iterable[str]) -> tuple[str, str] | None:
    """Two names that would be one on some system, or of which one is a file and a folder; None where there are none.

    Names of ASCII have one form under every Unicode normalisation, so only the case of letters is left to compare.
    """
    files: dict[str, str] = {}
    folders: dict[str, str] = {}
    names = list(names)
    for name in names:
        if (folded := name.casefold()) in files:
            return files[folded], name
        files[folded] = name
    for name in names:
        parts = name.split("/")
        for end in range(1, len(parts)):
            folder = "/".join(parts[:end])
            if folder.casefold() in files:
                return files[folder.casefold()], name
            if (other := folders.setdefault(folder.casefold(), folder)) != folder:
                return f"{other}/", name
    return None
