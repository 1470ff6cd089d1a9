"""JSON objects with a checksum that reveals damage, and JSON files from untrusted sources."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import xxhash

from llmcurate.base.errors import UsageError


def encode_json(value: Any) -> bytes:
    """Return JSON for people to read: indented by two spaces, UTF-8, with a final newline."""
    return (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode("utf-8")


def checksum(data: bytes) -> str:
    """Return the xxh3-128 hash of `data` in hexadecimal."""
    return xxhash.xxh3_128_hexdigest(data)


def seal(values: dict[str, Any]) -> dict[str, Any]:
    """Return the values and, under ``checksum``, the hash of their JSON with sorted keys."""
    text = json.dumps(values, sort_keys=True, separators=(",", ":"))
    return {**values, "checksum": checksum(text.encode())}


def unseal(values: Any) -> dict[str, Any]:
    """Return the values given to the function seal. Raises ValueError if the checksum is wrong."""
    if not isinstance(values, dict):
        raise ValueError("not a JSON object")
    content = {name: value for name, value in values.items() if name != "checksum"}
    if seal(content) != values:
        raise ValueError("its checksum differs")
    return content


def read_json(path: Path, limit: int = 64_000_000) -> dict[str, Any]:
    """Read a JSON object from an untrusted file. Raises UsageError, which names the file."""
    try:
        if path.stat().st_size > limit:
            raise UsageError(f"{path}: larger than {limit} bytes")
        values = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(f"{path}: cannot be read ({error})") from error
    if not isinstance(values, dict):
        raise UsageError(f"{path}: expected a JSON object")
    return values
