"""The `curl` of the documentation: the options that its pages use, so that tests need no such program."""

import getopt
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

BOUNDARY = "part-of-the-form"


def curl(words: Sequence[str]) -> str:
    """Carry out a command, without its name; what it prints. An HTTP error is an AssertionError."""
    options, (url,) = getopt.gnu_getopt(list(words), "d:F:H:o:", ["data-urlencode="])
    headers = dict(value.split(": ", 1) for name, value in options if name == "-H")
    fields = [value for name, value in options if name == "-d"]
    for name, value in options:
        if name == "--data-urlencode":
            key, _, text = value.partition("=")
            fields.append(f"{key}={quote(text)}")
    parts = [value for name, value in options if name == "-F"]
    data = None
    if parts:
        data = b"".join(map(_part, parts)) + f"--{BOUNDARY}--\r\n".encode()
        headers["Content-Type"] = f"multipart/form-data; boundary={BOUNDARY}"
    elif fields:
        data = "&".join(fields).encode()
    try:
        with urllib.request.urlopen(urllib.request.Request(url, data, headers), timeout=60) as answer:
            body: bytes = answer.read()
    except urllib.error.HTTPError as error:
        with error:
            raise AssertionError(f"curl {url}: {error.code} {error.read().decode()}") from error
    if outputs := [value for name, value in options if name == "-o"]:
        Path(outputs[-1]).write_bytes(body)
        return ""
    return body.decode()


def _part(value: str) -> bytes:
    """A field of a form, or a file if its value begins with @."""
    name, _, content = value.partition("=")
    head = f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{name}"'
    if content.startswith("@"):
        file = Path(content[1:])
        return f'{head}; filename="{file.name}"\r\n\r\n'.encode() + file.read_bytes() + b"\r\n"
    return f"{head}\r\n\r\n{content}\r\n".encode()
