"""Licences: SPDX expressions mean what the specification says, wherever they stand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from curate.documents.documents import documents
from curate.lab.filters.license import License, allows, header_license

KEPT = frozenset({"mit", "apache-2.0"})
NAMES = ("MIT", "Apache-2.0", "GPL-3.0-only", "MPL-2.0")
expressions = st.recursive(
    st.sampled_from(NAMES).map(lambda n: (n, n.lower() in KEPT)),
    lambda inner: st.tuples(inner, st.sampled_from(["AND", "OR"]), inner).map(
        lambda t: (
            f"({t[0][0]} {t[1]} {t[2][0]})",
            (t[0][1] and t[2][1]) if t[1] == "AND" else (t[0][1] or t[2][1]),
        )
    ),
    max_leaves=8,
)


@given(expressions)
def test_or_needs_one_side_and_and_needs_both(case: tuple[str, bool]) -> None:
    assert allows(case[0], KEPT) == case[1]


def test_and_binds_closer_than_or() -> None:
    assert allows("MIT OR GPL-3.0-only AND MPL-2.0", KEPT)
    assert not allows("GPL-3.0-only AND MPL-2.0 OR MPL-2.0 AND MIT", KEPT)


def test_case_exceptions_and_later_versions_change_nothing() -> None:
    assert allows("mit", KEPT) and allows("apache-2.0+", KEPT)
    assert allows("Apache-2.0 WITH LLVM-exception", KEPT)
    assert not allows("GPL-2.0-only WITH Classpath-exception-2.0", KEPT)


@pytest.mark.parametrize(
    "text",
    ["", "(", "MIT OR", "MIT MIT", "(MIT", "MIT)", "AND", "WITH MIT", "MIT WITH (", "(" * 9999],
)
def test_an_invalid_licence_expression_allows_nothing(text: str) -> None:
    assert not allows(text, KEPT)


def test_a_head_names_its_licence() -> None:
    assert (
        header_license("/* SPDX-License-Identifier: MIT OR Apache-2.0 */\nint x;")
        == "MIT OR Apache-2.0"
    )
    assert (
        header_license("// Licensed under the Apache License,\n// Version 2.0 (the X)")
        == "Apache-2.0"
    )
    assert header_license("# under the terms of the GNU Lesser General\n# Public License") == "LGPL"
    assert header_license("x = 1\n" * 5000 + "# SPDX-License-Identifier: MIT") is None


def kept(step: License, **columns: list) -> list[str]:
    rows = len(columns["text"])
    docs = documents({"id": [str(i) for i in range(rows)], **columns})
    return step.apply(docs.within("license")).split()[0]["id"].to_pylist()


def test_the_head_counts_before_the_column_and_lists_need_all() -> None:
    texts = ["x", "x", "x", "// SPDX-License-Identifier: GPL-3.0-only", "x"]
    column = ["MIT", '["mit", "Apache-2.0"]', '["MIT", "GPL-3.0-only"]', "MIT", None]
    assert kept(License(), text=texts, license=column) == ["0", "1"]
    assert kept(License(header=False, unknown="keep"), text=texts, license=column) == [
        "0",
        "1",
        "3",
        "4",
    ]
    assert kept(License(column="other"), text=texts) == []
