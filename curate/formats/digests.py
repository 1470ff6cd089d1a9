"""Digests that WARC records state: WARC-Block-Digest and WARC-Payload-Digest (ISO 28500).

A digest is `algorithm:value`; the standard leaves both open. Known are sha1, sha256 and md5, in
hexadecimal digits or base32 (RFC 4648); what else stands there is not compared.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable

_ALGORITHMS = {"sha1": 20, "sha-1": 20, "sha256": 32, "sha-256": 32, "md5": 16}  # bytes


def parse(stated: str) -> tuple[str, bytes] | None:
    """(algorithm as hashlib has it, digest); None where it is none that is known."""
    name, _, value = stated.strip().partition(":")
    name, value = name.strip().lower(), value.strip().rstrip("=").upper()
    size = _ALGORITHMS.get(name, 0)
    try:
        if len(value) == 2 * size:
            digest = bytes.fromhex(value)
        else:
            digest = base64.b32decode(value + "=" * (-len(value) % 8))
    except ValueError:
        return None
    return (name.replace("-", ""), digest) if size and len(digest) == size else None


def differs(stated: str | None, contents: Iterable[bytes | memoryview]) -> bool | None:
    """Whether a digest is that of none of the contents; None where there is nothing to compare."""
    digest_of = parse(stated) if stated else None
    if digest_of is None:
        return None
    name, digest = digest_of
    return all(hashlib.new(name, c, usedforsecurity=False).digest() != digest for c in contents)
