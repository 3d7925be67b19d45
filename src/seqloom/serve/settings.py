"""The settings of a server: its limits, and who may call it. `seqloom serve MODEL serve.texts=128` changes one."""

from typing import Annotated, Literal

from pydantic import Field

from seqloom.core.config import Config

MEBIBYTE = 1 << 20

Count = Annotated[int, Field(ge=1, le=1 << 30)]
Seconds = Annotated[float, Field(gt=0, le=86_400)]


class ServeConfig(Config):
    """Limits of requests. What exceeds one is refused with a sentence that names it."""

    texts: Count = 64
    """Texts per request."""

    characters: Count = 5_000
    """Characters per text."""

    alternatives: Annotated[int, Field(ge=0, le=1_000)] = 16
    """Further translations of a text; the beam grows to find them."""

    completions: Count = 8
    """Texts that a language model writes for one prompt (`n` and `best_of`)."""

    output_tokens: Count = 512
    """Tokens that a language model writes for one prompt."""

    depth: Count = 20
    """Levels of brackets in JSON."""

    body_bytes: Count = MEBIBYTE
    """Bytes of a request in JSON or as a form."""

    file_bytes: Count = 10 * MEBIBYTE
    """Bytes of an uploaded file, and of everything that a compressed one holds after extraction, ten times as many."""

    line_characters: Count = 50_000
    """Characters per line or paragraph of a file. A worker translates it at once, and others wait for that."""

    head_bytes: Count = 32 << 10
    """Bytes of address, query and headers of a request."""

    head_seconds: Seconds = 10.0
    """Time within which a client must have sent the head of a request."""

    body_seconds: Seconds = 10.0
    """Time within which a client must have sent the body of a request."""

    request_seconds: Seconds = 60.0
    """Time within which a request is answered, its wait in the queue included; a file has ten times as long."""

    keep_alive_seconds: Seconds = 5.0
    """How long an idle connection stays open."""

    grace_seconds: Seconds = 30.0
    """How long accepted requests may take to finish after SIGTERM."""

    queue: Count = 64
    """Requests that wait for a worker. Further ones wait to enter the queue; a request that cannot be answered in time
    at the measured speed gets 503."""

    connections: Count = 1_024
    """Connections at the same time; further ones are closed."""

    batch_tokens: Count = 4_096
    """Source tokens, by estimate, that a worker takes at once."""

    requests_per_minute: Annotated[int, Field(ge=0, le=1 << 30)] | None = None
    """Requests that each key, or each address without a key, may make in a minute; 0 is no limit. Left open: no limit
    on a loopback address, 1,200 elsewhere."""

    stored_bytes: Count = 256 * MEBIBYTE
    """Bytes of all translated files that are kept in memory, and as many of glossaries."""

    stored_seconds: Seconds = 600.0
    """How long a translated file is kept."""

    glossaries: Count = 1_000
    """Glossaries that are kept per key, in memory. Weblate deletes its oldest one when there are as many."""

    hosts: tuple[str, ...] = ()
    """Names under which the server may be called, besides its address; behind a proxy, the public name. `*` allows
    every name."""

    origins: tuple[str, ...] = ()
    """Web origins, such as https://example.org, whose pages may call the server (CORS)."""

    proxies: tuple[str, ...] = ()
    """Addresses of proxies whose `X-Forwarded-Proto`, `-Host` and `-For` headers are believed."""

    split: Literal["sentences", "long"] = "sentences"
    """Whether each line is translated sentence by sentence, or as a whole unless it is too long for the model."""

    name: str = "seqloom"
    """The name of this server in `/openapi.json` and in `/v1/models`."""


class ServerSettings(Config):
    """All settings that `seqloom serve` takes as words."""

    serve: ServeConfig = ServeConfig()
    """Limits, and who may call the server."""
