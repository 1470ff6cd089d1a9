"""The network that chooses main text, against a plain reference."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curate.extract import inputs, net
from curate.extract.blocks import NetInputs, look_at, main_text, main_texts, tables, title_of
from curate.extract.inputs import COUNT, INPUTS, MASS, MEASURES, PAGE_COUNT, PAGE_INPUTS
from curate.extract.links import link_table
from curate.extract.net import GROUPS, KINDS, SPAN, Net, fitted
from curate.extract.scan import count_tags, scan
from tests.callable_kernels import callable_kernel

POST = "<div class='post post-{0}'><h4>User {0}</h4><p>My answer number {0}, a short one.</p></div>"
PAGE = (
    "<nav class=menu><a href=/>Home</a><a href=/x>News</a></nav><h1>A question about mills</h1>"
    + "".join(POST.format(k) for k in range(4))
    + "<table><tr><td>one<td>two<tr><td>three<td>four</table><footer>© 2024 Example</footer>"
)


def judged(page: str, weights: Any) -> tuple[np.ndarray, np.ndarray]:
    """(logits, kinds) by the kernel."""
    data = np.frombuffer(page.encode(), np.uint8).copy()
    tags = count_tags(data, 0, len(data))
    text, blocks, nodes, meta = scan(data, 0, len(data), tags, tables(), link_table(0))
    seen = callable_kernel(inputs.page_data)(text, blocks, nodes, title_of(data, meta))
    result: tuple[np.ndarray, np.ndarray] = callable_kernel(net.judge)(blocks, nodes, seen, weights)
    return result


def reference(seen: NetInputs, weights: Net) -> tuple[np.ndarray, np.ndarray]:
    """The same, in float64 matrices."""
    w = Net(*(np.asarray(a, np.float64) for a in weights))
    rows, page, mass = seen.rows.astype(float), seen.page.astype(float), np.sqrt(seen.mass)

    def mean(hidden: np.ndarray, group: np.ndarray) -> np.ndarray:
        same = (group[:, None] == group[None, :]) * mass[None, :]
        return same @ hidden / np.maximum(same.sum(1, keepdims=True), 1e-6)

    whole = np.zeros(len(rows), int)
    hidden = np.maximum(rows @ w.first + w.first_bias + page @ w.page, 0)
    inner = page @ w.kind_page + mean(hidden, whole)[0] @ w.kind_mean + w.kind_bias
    kinds = np.exp(np.maximum(inner, 0) @ w.kind_out + w.kind_out_bias)
    kinds /= kinds.sum()
    logits = w.out_bias[0] + hidden @ w.out[0]
    hidden = hidden + kinds @ w.kind_hidden
    for k, (layer, bias) in enumerate(zip(w.layers, w.layer_biases, strict=True)):
        parts = [hidden]
        for d in range(-SPAN, SPAN + 1):
            if d:
                moved = np.zeros_like(hidden)
                here = np.arange(max(0, -d), min(len(hidden), len(hidden) - d))
                moved[here] = hidden[here + d]
                parts.append(moved)
        parts += [mean(hidden, seen.groups[g]) for g in range(GROUPS)]
        parts.append(mean(hidden, whole))
        hidden = np.maximum(sum(p @ m for p, m in zip(parts, layer, strict=True)) + bias, 0)
        logits = logits + hidden @ w.out[k + 1]
    return logits, kinds


@pytest.mark.parametrize("page", [PAGE, "<p>x", "<ul>" + "<li>a b" * 30])
def test_the_kernel_computes_what_matrices_do(page: str) -> None:
    logits, kinds = judged(page, fitted())
    expected, expected_kinds = reference(look_at(page), fitted())
    assert np.abs(logits - expected).max() < 1e-3
    assert np.abs(kinds - expected_kinds).max() < 1e-4
    assert abs(kinds.sum() - 1) < 1e-5


def test_the_model_fits_what_it_is_given_and_its_size_has_a_limit() -> None:
    weights = fitted()
    width = weights.first.shape[1]
    assert weights.first.shape == (COUNT, width) and weights.page.shape == (PAGE_COUNT, width)
    assert weights.layers.shape[1:] == (net.PARTS, width, width)
    assert len(weights.kind_out_bias) == len(KINDS)
    assert len(INPUTS) == len(set(INPUTS)) == COUNT and len(set(PAGE_INPUTS)) == PAGE_COUNT
    path = net.files("curate.extract").joinpath(net.MODEL)
    with path.open("rb") as file:
        assert len(file.read()) <= 300_000


def test_posts_of_equal_shape_are_one_group_and_each_its_own_unit() -> None:
    seen = look_at(PAGE)
    posts = [k for k, t in enumerate(seen.texts) if t.startswith("My answer")]
    names = [k for k, t in enumerate(seen.texts) if t.startswith("User")]
    siblings, units = seen.groups[4], seen.groups[5]
    assert len(set(siblings[posts + names])) == 1  # class post-0, post-1: digits aside
    assert units[posts].tolist() == units[names].tolist() and len(set(units[posts])) == 4
    paths = seen.groups[2]
    assert len(set(paths[posts])) == 1 and paths[posts[0]] != paths[names[0]]
    value = {name: seen.rows[:, k] for k, name in enumerate(INPUTS)}
    assert value["ordinal of its unit"][posts].tolist() == [0, 0.25, 0.5, 0.75]
    assert value["being of its unit"][0] == 0  # a menu's links are no units


@pytest.mark.parametrize("page", ["{}", "<div>{}</div>", "<body><p>{}", "<table><td>{}</table>"])
@pytest.mark.parametrize("times", [1, 4, 20])
def test_a_page_of_text_alone_is_its_text(page: str, times: int) -> None:
    text = " ".join(["The mill turns by the river when the water is high."] * times)
    assert main_text(page.format(text)) == text


@pytest.mark.parametrize("name", ["cookie-consent", "popup-overlay"])
def test_overlays_of_a_page_without_links_are_left_out(name: str) -> None:
    text = " ".join(["The mill turns by the river when the water is high."] * 4)
    assert main_text(f"<div>{text}</div><div class={name}>We use cookies to count you.") == text


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.floats(0.0625, 0.9375), st.integers(1, 300)), min_size=1, max_size=9))
def test_no_other_choice_of_blocks_has_a_higher_expected_ratio(
    blocks: list[tuple[float, int]],
) -> None:
    chances = np.array([c for c, _ in blocks], np.float32)
    measures = np.zeros((len(blocks), MEASURES), np.float32)
    measures[:, MASS] = [m for _, m in blocks]
    mass = measures[:, MASS].astype(float)

    def score(kept: list[int]) -> float:
        if not kept:  # F1 is 1 where there is no main text
            return float(np.prod(1 - chances))
        return 2 * (chances[kept] * mass[kept]).sum() / (mass[kept].sum() + (chances * mass).sum())

    keep = callable_kernel(net.keep_best)(measures, chances)
    everything = range(len(blocks))
    best = max(
        score(list(kept)) for n in range(len(blocks) + 1) for kept in combinations(everything, n)
    )
    assert score(np.flatnonzero(keep).tolist()) >= best - 1e-5


def test_what_a_page_hides_or_keeps_for_browsers_without_scripts_is_seen_as_such() -> None:
    seen = look_at(
        "<p>Shown to all.</p><noscript><p>For old browsers.</p></noscript>"
        "<div style='display: none'><p>Unfolded by a click.</p></div><h3><button>Why?</button></h3>"
        "<button>Send</button><template><p>No text.</p></template>"
    )
    assert seen.texts == ["Shown to all.", "For old browsers.", "Unfolded by a click.", "Why?"]
    value = {name: seen.rows[:, k].tolist() for k, name in enumerate(INPUTS)}
    assert value["hint noscript"] == [0, 1, 0, 0] and value["hint unseen"] == [0, 0, 1, 0]


def test_a_page_has_a_kind_with_a_probability_and_an_empty_one_has_none() -> None:
    import pyarrow as pa

    result = main_texts(pa.array([PAGE, "", None], pa.large_string()))
    assert 0 <= result.kinds[0] < len(KINDS) and 1 / len(KINDS) <= result.chances[0] <= 1
    assert result.kinds[1:].tolist() == [-1, -1] and result.chances[1:].tolist() == [0, 0]
