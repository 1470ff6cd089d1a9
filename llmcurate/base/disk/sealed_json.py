"""JSON objects in files, with a checksum that shows damage, and read from anyone's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import xxhash

from llmcurate.base.errors import UsageError


def encode_json(value: Any) -> bytes:
    """JSON as people read it: two spaces, UTF-8 kept, a final newline."""
    return (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode("utf-8")


def checksum(data: bytes) -> str:
    """xxh3-128, in hexadecimal."""
    return xxhash.xxh3_128_hexdigest(data)


def seal(values: dict[str, Any]) -> dict[str, Any]:
    """The values, and under ``checksum`` that of their JSON with sorted keys."""
    text = json.dumps(values, sort_keys=True, separators=(",", ":"))
    return {**values, "checksum": checksum(text.encode())}


def unseal(values: Any) -> dict[str, Any]:
    """What ``seal`` was given; raises ``ValueError`` where it is anything else."""
    if not isinstance(values, dict):
        raise ValueError("no JSON object")
    content = {name: value for name, value in values.items() if name != "checksum"}
    if seal(content) != values:
        raise ValueError("it is not what was written")
    return content


def read_json(path: Path, limit: int = 64_000_000) -> dict[str, Any]:
    """An object from a file that anyone may have written; ``LlmcurateError`` names it."""
    try:
        if path.stat().st_size > limit:
            raise UsageError(f"{path}: larger than {limit} bytes")
        values = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(f"{path}: cannot be read ({error})") from error
    if not isinstance(values, dict):
        raise UsageError(f"{path}: expected a JSON object")
    return values
