"""Charts are plain SVG, and what they show is what they were given."""

from __future__ import annotations

import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmcurate.base.pages import charts

BASE, TOP = charts.HEIGHT - charts.BOTTOM, charts.TOP
LEFT, WIDE = charts.LEFT, charts.WIDTH - charts.LEFT - charts.RIGHT


def outline(svg: str, colour: str) -> list[tuple[float, float]]:
    """The points of the path in that colour."""
    (path,) = re.findall(rf'<path d="M([^"]*?)Z?" [^>]*"{re.escape(colour)}"', svg)
    points = []
    for point in path.split("L"):
        x, y = point.split()
        points.append((float(x), float(y)))
    return points


def labels(svg: str) -> list[str]:
    return re.findall(r">([^<]+)</text>", svg)


def test_charts_have_no_ids_of_their_own_and_no_mathematics() -> None:
    data = {"scale": "log", "edges": [0.0, 10.0, 100.0], "counts": [5, 1]}
    svg = charts.histogram(data | {"marked": [1, 0]}, "a $b$ <c>", threshold=10.0)
    assert svg.startswith("<svg viewBox=") and 'aria-label="a $b$ &lt;c&gt;"' in svg
    assert "limit 10" in svg and " id=" not in svg and "<?xml" not in svg
    assert "var(--accent)" in svg and "#" not in svg
    assert svg == charts.histogram(data | {"marked": [1, 0]}, "a $b$ <c>", threshold=10.0)


def test_an_empty_histogram_is_a_chart_too() -> None:
    assert "<svg" in charts.histogram({"scale": "linear", "edges": [0.0, 1.0], "counts": [0]}, "x")


def test_a_curve_of_two_points_is_drawn() -> None:
    assert "<svg" in charts.curve([[(1.0, 3.0), (2.0, 2.0)], [(2.0, 2.5)]], "loss", "steps")


def test_bars_are_as_high_as_the_roots_of_the_counts() -> None:
    data = {"scale": "linear", "edges": [0.0, 1.0, 2.0, 4.0], "counts": [100, 25, 0]}
    bars = outline(charts.histogram(data, "x"), charts.ACCENT)
    full = (BASE - TOP) / 1.02
    ends = [LEFT, LEFT, LEFT + WIDE / 4, LEFT + WIDE / 4, LEFT + WIDE / 2, LEFT + WIDE / 2]
    assert [x for x, _ in bars[:6]] == pytest.approx(ends, abs=0.01)
    heights = [BASE - y for _, y in bars]
    assert heights == pytest.approx([0, full, full, full / 2, full / 2, 0, 0, 0], abs=0.01)


def test_dropped_bars_are_drawn_behind_kept_ones() -> None:
    data = {"scale": "linear", "edges": [0.0, 1.0, 2.0], "counts": [4, 9]}
    svg = charts.histogram(data | {"marked": [4, 0]}, "x", threshold=1.0)
    full = (BASE - TOP) / 1.02
    assert min(y for _, y in outline(svg, charts.GONE)) == pytest.approx(BASE - full, abs=0.1)
    kept = outline(svg, charts.ACCENT)
    assert [BASE - y for _, y in kept] == pytest.approx([0, 0, 0, full, full, 0], abs=0.01)
    assert f'd="M{LEFT + WIDE // 2} {BASE}V{TOP}"' in svg and "limit 1" in labels(svg)


def test_a_curve_goes_through_its_points_and_leaves_out_what_is_no_number() -> None:
    lines = [[(1.0, 3.0), (2.0, math.nan), (3.0, 1.0)], [(2.0, math.inf)]]
    svg = charts.curve(lines, "loss", "steps")
    (x0, y0), (x1, y1) = outline(svg, charts.ACCENT + '" stroke-width="1.9')
    assert x0 - LEFT == pytest.approx(charts.WIDTH - charts.RIGHT - x1) and y0 < y1
    assert "nan" not in svg and "inf" not in svg and "<circle" not in svg
    assert {"1", "2", "3", "steps"} <= set(labels(svg))
    assert "no point to draw" in charts.curve([[(1.0, math.nan)], []], "loss", "steps")


def test_doublings_have_equal_distances_on_the_axis() -> None:
    points = [(512.0, 4.0), (1024.0, 3.0), (2048.0, 2.0)]
    svg = charts.curve([points], "bytes", "vocabulary", [512, 1024, 2048])
    (a, _), (b, _), (c, _) = outline(svg, charts.ACCENT + '" stroke-width="1.9')
    assert b - a == pytest.approx(c - b, abs=0.02) and "1,024" in labels(svg)


@given(st.floats(-1e9, 1e9), st.floats(1e-6, 1e9), st.integers(2, 8), st.booleans())
def test_ticks_are_few_round_and_within(low, span, most, whole):
    values = charts.round_values(low, low + span, most, whole)
    slack = 1e-6 * (abs(low) + span)
    assert len(values) <= most + 1
    assert all(low - slack <= v <= low + span + slack for v in values)
    assert not whole or all(v % 1 == 0 for v in values)


def written(svg: str) -> list[tuple[float, float, float, str]]:
    """(left end, right end, line, text) of every text, by the width that letters have about."""
    texts = []
    for x, y, anchor, text in re.findall(
        r'<text x="([^"]+)" y="([^"]+)" text-anchor="(\w+)"[^>]*>([^<]*)<', svg
    ):
        wide = len(text) * charts.LETTER
        start = float(x) - wide * {"start": 0, "middle": 0.5, "end": 1}[anchor]
        texts.append((start, start + wide, float(y), text))
    return texts


def inside_and_apart(svg: str) -> None:
    texts = written(svg)
    assert all(a >= -0.01 and b <= charts.WIDTH + 0.01 for a, b, _, _ in texts)
    for i, (a, b, line, _) in enumerate(texts):
        for start, end, other, _ in texts[i + 1 :]:
            assert line != other or b <= start + 0.01 or end <= a + 0.01


NUMBER = st.floats(-1e12, 1e12).map(lambda v: float(f"{v:.6g}"))


@given(NUMBER, st.floats(1e-9, 1e12), st.integers(0, 10**9), st.sampled_from(["linear", "log"]))
def test_labels_of_histograms_and_yields_are_whole_and_apart(low, span, count, scale) -> None:
    edges = [low, low + span / 2, low + span]
    data = {"scale": scale, "edges": edges, "counts": [count, 1], "open": scale == "linear"}
    inside_and_apart(charts.histogram(data, "x"))
    points = [(v, count / 2, float(count)) for v in edges]
    inside_and_apart(charts.yields(points, scale, "x", []))


@given(st.lists(st.tuples(NUMBER, NUMBER), min_size=1, max_size=5))
def test_labels_of_curves_are_whole_and_apart(points) -> None:
    inside_and_apart(charts.curve([points], "loss", "steps of training"))


def test_the_name_of_the_x_axis_is_below_its_labels() -> None:
    svg = charts.curve([[(0.0, 1.0), (5.0, 2.0)]], "loss", "steps")
    lines = {text: y for _, _, y, text in written(svg)}
    assert lines["steps"] > lines["0"] == lines["4"]
    assert lines["steps"] < float(re.search(r'viewBox="0 0 \d+ (\d+)"', svg)[1])


def test_charts_of_one_range_put_the_same_value_at_the_same_place() -> None:
    lines = ([(0.5, 1.0), (0.6, 0.5)], [(0.5, 1.0), (1.0, 0.5)])
    svgs = [charts.curve([points], "found", "x", x_range=(0.4, 1.0)) for points in lines]
    (a, *_), (b, *_) = (outline(s, charts.ACCENT + '" stroke-width="1.9') for s in svgs)
    assert a[0] == b[0] > charts.LEFT
    assert [t for t in written(svgs[0]) if t[2] > 180] == [
        t for t in written(svgs[1]) if t[2] > 180
    ]


def test_bars_are_as_long_as_their_values_and_say_them() -> None:
    rows = [("all", [4.0, 2.0]), ("a longer name", [None, 1.0])]
    svg = charts.bars(rows, "bytes a token", lambda v: "-" if v is None else f"{v:.1f}")
    wide = [float(w) for w in re.findall(r'<rect [^>]*width="([^"]+)"', svg)]
    assert wide == pytest.approx([wide[0], wide[0] / 2, 0, wide[0] / 4], abs=0.01)
    assert labels(svg) == ["all", "4.0", "2.0", "a longer name", "-", "1.0"]
    inside_and_apart(svg)


def test_named_curves_share_axes_and_a_high_first_value_does_not_flatten_them() -> None:
    lines = [(name, [(x, 9.0 if x == 0 else y) for x in range(20)]) for name, y in pairs_of("ab")]
    svg = charts.curves([*lines, ("gone", [(0.0, math.nan)])], "loss", "tokens")
    assert labels(svg)[-3:] == ["a", "b", "gone"]
    heights = [float(v) for v in re.findall(r'text-anchor="end"[^>]*>([\d.]+)<', svg)]
    assert max(heights) <= 2.05 and min(heights) >= 0.95
    assert len(re.findall(r"stroke-dasharray", svg)) == 2  # b's line and its name
    assert "could not be drawn" in charts.curves([("x", [])], "loss", "tokens")


def pairs_of(names: str) -> list[tuple[str, float]]:
    return [(name, float(nth + 1)) for nth, name in enumerate(names)]


def test_intervals_are_drawn_around_their_values_with_a_line_at_zero() -> None:
    rows = [("b", -0.2, (-0.3, -0.1)), ("one seed", 0.1, None)]
    svg = charts.intervals(rows, "differences", "bits a byte")
    assert svg.count("<circle") == 2 and ">one seed<" in svg and ">bits a byte<" in svg
    centres = [float(part.split('"')[0]) for part in svg.split('cx="')[1:]]
    assert centres[0] < centres[1] and "could not be drawn" not in svg
    assert re.search(r'd="M[\d.]+ [\d.]+H[\d.]+" stroke="var\(--accent\)"', svg)


def test_a_sparkline_is_the_histogram_without_axes() -> None:
    data = {"scale": "linear", "edges": [0.0, 1.0, 2.0], "counts": [4, 9], "marked": [4, 0]}
    svg = charts.value_sparkline(data, "a <b>", threshold=1.0)
    assert "<text" not in svg and 'aria-label="a &lt;b&gt;"' in svg
    wide, high = charts.SPARK
    assert f'd="M{wide // 2} {high}V0"' in svg  # the limit
    assert min(y for _, y in outline(svg, charts.GONE)) == 0
    assert [y for _, y in outline(svg, charts.ACCENT)] == [high, high, high, 0, 0, high]


def test_a_single_sparkline_has_the_accent_colour_and_an_empty_one_a_message() -> None:
    svg = charts.sparkline([[(0.0, 0.0), (1.0, 2.0), (2.0, 0.0)]], "x")
    assert charts.ACCENT in svg and charts.GONE not in svg
    assert "could not be drawn" in charts.sparkline([], "x")


def test_the_lowest_point_of_the_last_curve_is_labelled() -> None:
    lines = [[(1.0, 9.0), (4.0, 1.0)], [(1.0, 8.0), (2.0, 5.0), (3.0, 6.0)]]
    svg = charts.curve(lines, "loss", "steps", y_name="nats per token")
    assert "lowest 5 at 2" in labels(svg) and "nats per token" in labels(svg)


def test_series_of_bars_have_hues_and_names() -> None:
    svg = charts.bars([("all", [1.0, 2.0]), ("en", [3.0, 1.0])], "x", "{:.0f}".format, ["a", "b"])
    assert labels(svg) == ["all", "1 a", "2 b", "en", "3", "1"]
    assert svg.count(charts.COLOURS[0]) == svg.count(charts.COLOURS[1]) == 2


def test_a_scatter_has_dots_lines_and_axes_of_decades() -> None:
    line = [(10.0**k, 10.0 ** (k / 2)) for k in range(8, 18)]
    dots = [(1e10, 1e5), (1e14, 1e7)]
    svg = charts.scatter([("best", dots, line), ("none", [], [])], "best size", "FLOPs", "xy")
    assert labels(svg)[-2:] == ["best", "none"] and "1e16" in labels(svg)
    assert "1e10" in labels(svg) and "10G" not in labels(svg)  # one way on an axis
    centres = re.findall(r'cx="([\d.]+)" cy="([\d.]+)"', svg)
    (left, low), (right, high) = (tuple(map(float, pair)) for pair in centres[:2])
    assert charts.LEFT < left < right < charts.WIDTH and low > high > 0
    (path,) = re.findall(r'<path d="M([^"]*L[^"]*)" fill="none"', svg)
    xs = [float(point.split()[0]) for point in path.split("L")]
    assert min(xs) >= charts.LEFT and max(xs) <= charts.WIDTH
    inside_and_apart(charts.scatter([("a", [(1.0, 2.0)], [])], "one point", "x"))
    assert "could not be drawn" in charts.scatter([("x", [], [])], "loss", "tokens")
