"""Bytes as people write them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmcurate.base.disk.units import (
    as_whole,
    counted,
    format_bytes,
    format_duration,
    format_measure,
    format_percent,
    format_scaled,
    format_short,
    parse_count,
    parse_size,
)
from llmcurate.base.errors import UsageError


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("100TB", 10**14), ("1.5 GiB", 3 << 29), ("2000", 2000), ("7kB", 7000), ("7K", 7000),
        ("7 KB", 7000), ("2KiB", 2048), ("3 PB", 3 * 10**15),
    ],
)  # fmt: skip
def test_sizes_are_decimal_and_binary_with_an_i(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize(
    ("number", "text"), [(0, "0 files"), (1, "1 file"), (2, "2 files"), (12345, "12,345 files")]
)
def test_one_thing_is_no_plural(number: int, text: str) -> None:
    assert counted(number, "file") == text


@pytest.mark.parametrize("text", ["", "0", "TB", "-1TB", "1 XB", "ten"])
def test_an_invalid_size_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--as-if"):
        parse_size(text)


@given(st.integers(1, 10**20))
def test_an_amount_reads_back_within_a_hundredth(size: int) -> None:
    assert parse_size(format_bytes(size)) == pytest.approx(size, rel=0.01)


def test_three_figures() -> None:
    scaled = [format_scaled(n) for n in (1.0, 999, 999.6, 12_345, 5.96e6, 1e14)]
    assert scaled == ["1 ", "999 ", "1.00 k", "12.3 k", "5.96 M", "100 T"]
    borders = [format_scaled(n) for n in (999.4, 999.5, 9994, 9995, 99_940, 99_950, 999_500, -1e3)]
    assert borders == ["999 ", "1.00 k", "9.99 k", "10.0 k", "99.9 k", "100 k", "1.00 M", "-1.00 k"]
    assert [format_bytes(n) for n in (999.4, 999.5, 1000)] == ["999 B", "1.00 kB", "1.00 kB"]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0.0 s"), (59.9, "59.9 s"), (60, "1.0 min"), (3599, "60.0 min"), (3600, "1.0 h"),
        (172_799, "48.0 h"), (172_800, "2.0 d"),
    ],
)  # fmt: skip
def test_a_duration_has_the_largest_unit_that_it_fills(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


def test_measures_have_four_digits_at_most() -> None:
    assert [format_measure(v) for v in (None, 3.0, 0.123456, 1234567.0, 1e-9)] == [
        "",
        "3",
        "0.1235",
        "1,234,567",
        "1e-09",
    ]


@pytest.mark.parametrize(
    ("text", "number"),
    [("100k", 1e5), ("1.5M", 1.5e6), ("2B", 2e9), ("1e5", 1e5), ("100_000", 1e5), (7, 7)],
)
def test_counts_are_written_with_letters_and_powers(text: str | int, number: float) -> None:
    assert parse_count(text) == number


@pytest.mark.parametrize("text", ["", "k", "-5", "1,000", "5 lives", "nan", "1e", "5kB"])
def test_an_invalid_count_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="100k or 1e5"):
        parse_count(text)


def test_large_numbers_have_no_power_of_ten() -> None:
    assert [format_measure(v) for v in (10_253.4, 1613.2, 999.94)] == ["10,253", "1,613", "999.9"]
    assert [format_short(v) for v in (1e11, 1e12)] == ["100G", "1T"]
    assert [format_short(v) for v in (999, 1e3, 1e6, -1e9, 0)] == ["999", "1k", "1M", "-1G", "0"]


def test_shares_have_the_digits_asked_for_and_what_is_not_nothing_is_not_shown_as_nothing() -> None:
    shares = [format_percent(s) for s in (None, 0.0, 0.0004, 0.0005, 0.053, 1.0)]
    assert shares == ["-", "0.0 %", "< 0.1 %", "0.1 %", "5.3 %", "100.0 %"]
    assert [format_percent(s, 2) for s in (0.00004, 0.05301)] == ["< 0.01 %", "5.30 %"]


def test_sizes_are_written_with_powers_and_underscores_too():
    assert parse_size("1e12") == parse_size("1_000GB") == parse_size("1TB") == 10**12


@pytest.mark.parametrize("text", ["100k", "1e5", "100_000", " 100000 ", 100_000, 1e5])
def test_a_whole_number_has_many_spellings(text):
    assert as_whole(text) == 100_000 and isinstance(as_whole(text), int)


@pytest.mark.parametrize("value", ["tiny", "", None, True, 1.5, (1,)])
def test_what_is_no_whole_number_stays_as_it_is(value):
    assert as_whole(value) is value


def test_large_whole_numbers_keep_all_digits():
    assert as_whole(str(2**63 - 1)) == 2**63 - 1
