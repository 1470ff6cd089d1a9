"""Filter by licence: SPDX identifiers and expressions from a column or from the head of a file.

SPDX: specification 2.3, annex D (expressions) and annex E (`SPDX-License-Identifier:` in files).
"""

from __future__ import annotations

import json
import re
from typing import ClassVar, Literal

import numpy as np
import pyarrow as pa
from pydantic import PrivateAttr, model_validator

from curate.documents.documents import Documents
from curate.steps.contracts import Step, step

HEAD_CHARS = 4000
MOST_DEPTH = 100  # nested brackets
_TAG = re.compile(r"SPDX-License-Identifier:\s*([^\r\n]+)")
_TOKEN = re.compile(r"[()]|[A-Za-z0-9.+:-]+")
_TERM = re.compile(r"[()]|([A-Za-z0-9.+:-]+)(?:\s+WITH\s+[A-Za-z0-9.+:-]+)?", re.I)
_SIGNS = {"(": "(", ")": ")", "and": "&", "or": "|", "with": "?"}
_INNERMOST = re.compile(r"\(([^()]*)\)")
# Sentences that occur only under one licence; the more specific ones come first.
_PHRASES = (
    ("AGPL-3.0", "gnu affero general public license"),
    ("LGPL", "gnu lesser general public license"),
    ("LGPL", "gnu library general public license"),
    ("GPL", "gnu general public license"),
    ("MPL-2.0", "mozilla public license, v. 2.0"),
    ("EPL", "eclipse public license"),
    ("Apache-2.0", "licensed under the apache license, version 2.0"),
    ("Apache-2.0", "apache license version 2.0"),
    ("MIT", "permission is hereby granted, free of charge, to any person obtaining a copy"),
    ("BSD-3-Clause", "neither the name of"),
    ("BSD-2-Clause", "redistribution and use in source and binary forms"),
    ("Unlicense", "this is free and unencumbered software released into the public domain"),
)
_WORDS = re.compile(r"[\s/*#;!\"'-]+")


def header_license(text: str) -> str | None:
    """Return the licence in a file's head, from its SPDX tag or a known sentence, or None."""
    head = text[:HEAD_CHARS]
    tag = _TAG.search(head)
    if tag:
        tokens = _TOKEN.findall(re.split(r"\*/|-->", tag[1])[0])
        return " ".join(tokens) or None
    plain = _WORDS.sub(" ", head.lower())
    return next((name for name, phrase in _PHRASES if phrase in plain), None)


def allows(expression: str, kept: frozenset[str]) -> bool:
    """Return True if the `kept` licences (lower case) satisfy an SPDX expression. `A OR B` needs
    one of the two, `A AND B` both. `WITH` and a final `+` are ignored. Invalid expressions give
    False."""

    def sign(term: re.Match[str]) -> str:
        name = (term[1] or term[0]).lower()
        return _SIGNS.get(name) or "FT"[name in kept or name.removesuffix("+") in kept]

    signs = "".join(map(sign, _TERM.finditer(expression)))
    for _ in range(min(signs.count("("), MOST_DEPTH)):
        signs = _INNERMOST.sub(lambda inside: _value(inside[1]), signs)
    return _value(signs) == "T"


def _value(signs: str) -> str:
    sides = [side.split("&") for side in signs.split("|")]
    if any(name not in ("T", "F") for names in sides for name in names):
        return "?"
    return "FT"[any("F" not in names for names in sides)]


def _expression(value: object) -> str | None:
    if isinstance(value, str) and value.lstrip().startswith("["):
        try:
            value = json.loads(value)
        except ValueError:
            return None
    if isinstance(value, list):
        names = [str(v) for v in value if v]
        return " AND ".join(f"({name})" for name in names) or None
    return str(value).strip() or None if value is not None else None


@step("license")
class License(Step):
    """Keeps documents under chosen licences.

    Column: `name`, the document's licence expression.
    """

    paper: ClassVar[str] = "SPDX 2.3, annexes D and E; RedPajama-Data-1T (MIT, BSD, Apache)"
    only_measures: ClassVar[bool] = True

    keep: tuple[str, ...] = ("MIT", "BSD-2-Clause", "BSD-3-Clause", "Apache-2.0")
    """SPDX identifiers of the licences to keep. The default is RedPajama's choice."""
    column: str = "license"
    """The column with an SPDX expression, an identifier or a list of identifiers."""
    header: bool = True
    """Look in the file's head for an SPDX-License-Identifier, else for the words of a common
    licence. A licence found there overrides the column."""
    unknown: Literal["drop", "keep"] = "drop"
    """Drop or keep documents that name no licence."""
    _kept: frozenset[str] = PrivateAttr(default=frozenset())

    @model_validator(mode="after")
    def _lower(self) -> License:
        self._kept = frozenset(name.lower() for name in self.keep)
        return self

    def apply(self, docs: Documents) -> Documents:
        rows = len(docs)
        stated = [None] * rows
        if self.column in docs.table.column_names:
            stated = docs.table[self.column].to_pylist()
        names = [_expression(value) for value in stated]
        if self.header:
            heads = (header_license(text or "") for text in docs.text.to_pylist())
            names = [head or name for head, name in zip(heads, names, strict=True)]
        docs = docs.annotate("name", pa.array(names, pa.string()))
        missing = np.array([name is None for name in names], np.bool_)
        kept = np.array([name is not None and allows(name, self._kept) for name in names], np.bool_)
        docs = docs.drop(~kept & ~missing, "not_kept", detail=names)
        return docs.drop(missing, "unknown") if self.unknown == "drop" else docs
