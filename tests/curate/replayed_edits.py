"""Recorded edits, applied to the text that a step received."""

from __future__ import annotations


def replayed(text: str, edits: list[dict] | None) -> str:
    """The recorded spans applied to what the step received."""
    data, at, out = text.encode(), 0, b""
    for edit in edits or []:
        assert at <= edit["start"] <= edit["end"] <= len(data), "spans overlap or leave the text"
        assert edit["start"] < edit["end"] or edit["replacement"], "a span that does nothing"
        out += data[at : edit["start"]] + edit["replacement"].encode()
        at = edit["end"]
    return (out + data[at:]).decode()
