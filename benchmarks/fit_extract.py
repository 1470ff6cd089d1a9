"""Fits the network of curate/extract/net.py, and says what it is worth on sites not seen.

    python benchmarks/fit_extract.py [--write]

Truth: the development pages of WCXB (Foley 2026, CC-BY-4.0), seven kinds of pages with their whole
main text. Which blocks of ours make up that text is found by aligning words; what is fitted is the
mean over pages of the F1 of words (in its soft form: chances in the place of decisions), beside
the likelihood of the labels. So it is for news pages of the DAnIEL corpus (Lejeune et al. 2012) in
Greek, English, Polish, Russian and Chinese. Pages of trafilatura's evaluation (Apache-2.0), mostly
German, of which passages alone are known, add the likelihood of the blocks with these. The figures
are of five folds, all pages of a domain in one of them. --write also fits on all pages and writes
curate/extract/main-text.npz, the same bytes every time on one machine, and its figures to its card.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from itertools import islice, repeat
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.extract_pages import (
    NewsPage,
    Page,
    WholePage,
    fold_of,
    load_news_pages,
    load_pages,
    load_whole_pages,
    scores,
    tokens,
)
from benchmarks.shared_texts import sized
from curate.extract.attributes import KINDS as HINT_KINDS
from curate.extract.blocks import NetInputs, inputs_of, look_at
from curate.extract.evaluate import squeezed, word_scores
from curate.extract.net import GROUPS, KINDS, MODEL, SPAN
from curate.extract.tags import HINTS, N_ALL, N_OWN, N_PARENT, NODE

FOLDS = sized(5, 2)
HIDDEN, KIND_HIDDEN, LAYERS = 48, 24, 2
EPOCHS, PAGES, RATE, DECAY = 20, 24, 2e-3, 0.3
DROP, DROP_INPUT = 0.45, 0.35
LIKELIHOOD, KIND_WEIGHT = 0.6, 0.05
VARIED, PARTS_GONE, PART, HINTS_GONE = 0.5, 4, 0.4, 0.3  # see varied
# What logits are multiplied by on each kind of page: net.keep_best takes errors of blocks as
# independent, and they are not, least on pages of cards and offers; and what is taken off them,
# since whole paragraphs of articles and posts are never lost with a doubtful line. Both chosen by
# the folds (+0.002 each).
SURENESS = {"collection": 0.65, "listing": 0.65, "product": 0.65, "service": 0.65}
CAUTION = {"article": 1, "forum": 1, "product": 1}
LEAST = 10  # pages of a language that is told apart
UNKNOWN = -1
SHELL = 200  # words below which a page without main text is taken at its word
PASSAGES = 4  # what a block counts for in the likelihood where passages are known
GOLD = 500  # words of the main text of a page of which passages alone are known
MEAN_OF = 0.995  # of the weights that are kept: a moving mean over steps


def labels(texts: list[list[str]], gold: str) -> np.ndarray:
    """The share of each block's words that belong to the main text: in a run of five words that
    stands there (of three for short blocks), or being a line of it. Of equal blocks as many are
    labelled as the main text has, those in the thick of it."""
    y = np.zeros(len(texts))
    gold_words = tokens(gold)
    if not gold_words:
        return y
    runs = {n: set(zip(*(gold_words[k:] for k in range(n)), strict=False)) for n in (3, 5)}
    lines = {" ".join(tokens(line)) for line in gold.split("\n")}
    flat = [w for block in texts for w in block]
    covered = np.zeros(len(flat), bool)
    for k in range(len(flat) - 4):
        if tuple(flat[k : k + 5]) in runs[5]:
            covered[k : k + 5] = True
    starts = np.cumsum([0, *map(len, texts)])
    for i, block in enumerate(texts):
        if not block:
            continue
        own = covered[starts[i] : starts[i + 1]].copy()
        for k in range(len(block) - 2):
            if tuple(block[k : k + 3]) in runs[3]:
                own[k : k + 3] = True
        y[i] = own.mean()
        if len(block) < 8 and " ".join(block) in lines:
            y[i] = 1
    strong = [y[i] * min(len(b), 40) if len(b) >= 8 else 0.3 * y[i] for i, b in enumerate(texts)]
    sums = np.concatenate([[0], np.cumsum(strong)])
    whole = f" {' '.join(gold_words)} "
    copies = defaultdict(list)
    for i in np.flatnonzero(y > 0.5):
        copies[" ".join(texts[i])].append(i)
    for text, blocks in copies.items():
        most = max(1, whole.count(f" {text} "))
        near = sorted(blocks, key=lambda i: (sums[max(0, i - 7)] - sums[min(len(texts), i + 8)], i))
        y[near[most:]] = 0.1
    return y


AnyPage = WholePage | NewsPage | Page


@dataclass
class Labelled:
    """A page with at least one block. y: labels; known: what each counts for, 0 where
    there is none; words: how many each block has; gold: words of the main text, 0 where it is not
    whole; kind: of KINDS, or UNKNOWN."""

    site: str
    seen: NetInputs
    y: np.ndarray
    known: np.ndarray
    words: np.ndarray
    gold: float
    kind: int


def label(page: AnyPage) -> Labelled:
    """A page with what is known of its blocks."""
    if isinstance(page, Page):
        return label_passages(page)
    seen = look_at(page.html)
    texts = [tokens(text) for text in seen.texts]
    count = np.array([len(t) for t in texts], np.float32)
    text, kind = (
        (page.text, page.kind) if isinstance(page, WholePage) else (body(page, texts), "article")
    )
    gold = len(tokens(text))
    known = np.full(len(texts), gold > 0 or count.sum() < SHELL, np.float32)
    return Labelled(page.site, seen, labels(texts, text), known, count, gold, KINDS.index(kind))


def body(page: NewsPage, blocks: list[list[str]]) -> str:
    """The main text without its headline: one in thirty of WCXB's articles begins with it, nearly
    all of these do."""
    headline, _, rest = page.text.strip().partition("\n")
    return rest if rest.strip() and tokens(headline) in blocks else page.text


def label_passages(page: Page) -> Labelled:
    """Blocks with a passage that belongs are main text, those with one that does not are not."""
    seen = look_at(page.html)
    texts = [squeezed(text) for text in seen.texts]
    y, known = np.zeros(len(texts)), np.zeros(len(texts), np.float32)
    for passages, value in ((page.without, 0), (page.with_, 1)):
        for passage in map(squeezed, passages):
            for i, text in enumerate(texts):
                if passage in text:
                    y[i], known[i] = value, PASSAGES
    count = np.array([len(tokens(t)) for t in texts], np.float32)
    return Labelled(page.site, seen, y, known, count, 0, UNKNOWN)


def varied(page: Labelled, draw: np.random.Generator) -> Labelled:
    """The page as another site might have it: half of the pages lose up to PARTS_GONE elements,
    each of less than PART of the text; half lose each kind of hint with probability HINTS_GONE."""
    seen = page.seen
    blocks, nodes = seen.blocks.copy(), seen.nodes.copy()
    keep = np.ones(len(blocks), bool)
    if draw.random() < VARIED:
        parents, own = nodes[:, N_PARENT], blocks[:, NODE]
        size = np.bincount(own, page.words + 1, len(nodes))
        for k in range(len(nodes) - 1, 0, -1):
            size[parents[k]] += size[k]
        parts = 1 + np.flatnonzero((size[1:] > 0) & (size[1:] < PART * size[0]))
        if len(parts):
            chance = np.sqrt(size[parts])
            count = draw.integers(1, PARTS_GONE + 1)
            for part in draw.choice(parts, count, p=chance / chance.sum()):
                outside = np.flatnonzero(parents[part + 1 :] < part)
                end = part + 1 + outside[0] if len(outside) else len(nodes)
                keep &= (own < part) | (own >= end)
        if keep.sum() < 2:
            keep[:] = True
    if draw.random() < VARIED:
        gone = sum(1 << k for k in range(len(HINT_KINDS)) if draw.random() < HINTS_GONE)
        blocks[:, HINTS] &= ~gone
        nodes[:, [N_OWN, N_ALL]] &= ~gone
    gold = page.gold - float((page.y * page.words)[~keep].sum()) if page.gold else 0
    if page.gold and gold < 5:
        return page
    rows, whole, groups, mass = inputs_of(seen.text, blocks[keep], nodes, seen.title)
    seen = replace(seen, rows=rows, page=whole, groups=groups, mass=mass)
    y, known, count = page.y[keep], page.known[keep], page.words[keep]
    return replace(page, seen=seen, y=y, known=known, words=count, gold=gold)


def pack(pages: list[Labelled]) -> dict[str, Any]:
    """Tensors over the blocks of all pages; `page`: each block's page."""

    def whole(arrays: list[Any]) -> Tensor:
        return torch.from_numpy(np.concatenate(arrays))

    counts = [len(p.y) for p in pages]
    own = np.repeat(np.arange(len(pages)), counts)
    groups, base = [], np.zeros(GROUPS, np.int64)
    for p in pages:
        groups.append(p.seen.groups + base[:, None])
        base = base + p.seen.groups.max(axis=1) + 1
    near = []
    for d in range(-SPAN, SPAN + 1):
        if d:
            at = np.arange(len(own)) + d
            inside = (at >= 0) & (at < len(own))
            inside[inside] = own[at[inside]] == own[inside]
            near.append(torch.from_numpy(np.where(inside, at, len(own))))
    return {
        "rows": whole([p.seen.rows for p in pages]),
        "mass": whole([p.seen.mass for p in pages]).sqrt(),
        "y": whole([p.y for p in pages]).float(),
        "known": whole([p.known for p in pages]),
        "words": whole([p.words for p in pages]),
        "groups": torch.from_numpy(np.concatenate(groups, axis=1)),
        "group_counts": base.tolist(),
        "page": torch.from_numpy(own),
        "pages": len(pages),
        "near": near,
        "page_rows": torch.from_numpy(np.stack([p.seen.page for p in pages])),
        "gold": torch.tensor([float(p.gold) for p in pages]),
        "kind": torch.tensor([p.kind for p in pages]),
    }


def means(hidden: Tensor, weights: Tensor, group: Tensor, count: int) -> Tensor:
    """The weighted mean of each group."""
    total = torch.zeros(count, hidden.shape[1]).index_add_(0, group, hidden * weights[:, None])
    return total / torch.zeros(count).index_add_(0, group, weights).clamp_min(1e-6)[:, None]


class Network(nn.Module):
    """curate.extract.net.judge, to be fitted: inputs are brought to mean 0 and deviation 1."""

    def __init__(self, pages: list[Labelled]) -> None:
        super().__init__()
        rows = np.concatenate([p.seen.rows for p in pages])
        page_rows = np.stack([p.seen.page for p in pages])
        self.scales = [
            torch.from_numpy(v) for r in (rows, page_rows) for v in (r.mean(0), r.std(0) + 0.05)
        ]
        inputs, page_inputs = rows.shape[1], page_rows.shape[1]
        parts = 1 + 2 * SPAN + GROUPS + 1
        self.first = nn.Linear(inputs, HIDDEN)
        self.page = nn.Linear(page_inputs, HIDDEN, bias=False)
        self.kind_in = nn.Linear(page_inputs + HIDDEN, KIND_HIDDEN)
        self.kind_out = nn.Linear(KIND_HIDDEN, len(KINDS))
        self.kind_hidden = nn.Linear(len(KINDS), HIDDEN, bias=False)
        self.layers = nn.ModuleList(nn.Linear(parts * HIDDEN, HIDDEN) for _ in range(LAYERS))
        self.out = nn.Linear((LAYERS + 1) * HIDDEN, 1)
        self.drop, self.drop_input = nn.Dropout(DROP), nn.Dropout(DROP_INPUT)

    def forward(self, batch: dict[str, Any]) -> tuple[Tensor, Tensor]:
        """(logits of the blocks, logits of the pages' kinds)."""
        mean, deviation, page_mean, page_deviation = self.scales
        own, mass = batch["page"], batch["mass"]
        rows = self.drop_input((batch["rows"] - mean) / deviation)
        page = (batch["page_rows"] - page_mean) / page_deviation
        hidden = self.drop(torch.relu(self.first(rows) + self.page(page)[own]))
        pooled = means(hidden, mass, own, batch["pages"])
        kinds = self.kind_out(torch.relu(self.kind_in(torch.cat([page, pooled], 1))))
        every = [hidden]
        hidden = hidden + self.kind_hidden(torch.softmax(kinds, 1).detach())[own]
        for layer in self.layers:
            padded = torch.cat([hidden, torch.zeros(1, HIDDEN)])
            parts = [hidden, *(padded[at] for at in batch["near"])]
            for group, count in zip(batch["groups"], batch["group_counts"], strict=True):
                parts.append(means(hidden, mass, group, count)[group])
            parts.append(means(hidden, mass, own, batch["pages"])[own])
            hidden = self.drop(torch.relu(layer(torch.cat(parts, 1))))
            every.append(hidden)
        return self.out(torch.cat(every, 1))[:, 0], kinds

    def arrays(self) -> dict[str, np.ndarray]:
        """The fields of net.Net: scales are in the weights."""

        def weights(layer: nn.Module) -> np.ndarray:
            return layer.weight.detach().numpy().T.astype(np.float32)

        def bias(layer: nn.Module) -> np.ndarray:
            return layer.bias.detach().numpy().astype(np.float32)

        mean, deviation, page_mean, page_deviation = (s.numpy() for s in self.scales)
        first = weights(self.first) / deviation[:, None]
        page = weights(self.page) / page_deviation[:, None]
        kind_in = weights(self.kind_in)
        kind_page = kind_in[: len(page_mean)] / page_deviation[:, None]
        return {
            "first": first,
            "first_bias": bias(self.first) - mean @ first - page_mean @ page,
            "page": page,
            "kind_page": kind_page,
            "kind_mean": kind_in[len(page_mean) :],
            "kind_bias": bias(self.kind_in) - page_mean @ kind_page,
            "kind_out": weights(self.kind_out),
            "kind_out_bias": bias(self.kind_out),
            "kind_hidden": weights(self.kind_hidden),
            "layers": np.stack([weights(y).reshape(-1, HIDDEN, HIDDEN) for y in self.layers]),
            "layer_biases": np.stack([bias(layer) for layer in self.layers]),
            "out": weights(self.out)[:, 0].reshape(LAYERS + 1, HIDDEN),
            "out_bias": bias(self.out),
            "sureness": np.array([SURENESS.get(kind, 1) for kind in KINDS], np.float32),
            "caution": np.array([CAUTION.get(kind, 0) for kind in KINDS], np.float32),
        }


def loss_of(logits: Tensor, kinds: Tensor, batch: dict[str, Any]) -> Tensor:
    """1 - soft F1 of words, a mean over the pages that have a main text; likelihoods of the blocks'
    labels, and of the kinds."""
    own, y, count, gold = batch["page"], batch["y"], batch["words"], batch["gold"]

    def total(values: Tensor) -> Tensor:
        return torch.zeros(batch["pages"]).index_add_(0, own, values)

    chances, has = torch.sigmoid(logits), (gold > 0).float()
    f1 = 2 * total(chances * y * count) / (total(chances * count) + gold + 1e-6)
    typical = gold + GOLD * (1 - has)
    weight = (count.clamp(max=200) / (typical[own] + 30)).sqrt() * batch["known"]
    entropy = nn.functional.binary_cross_entropy_with_logits
    likelihood = entropy(logits, y, weight=weight, reduction="sum") / weight.sum().clamp_min(1)
    kind = nn.functional.cross_entropy(kinds, batch["kind"], ignore_index=UNKNOWN, reduction="sum")
    kind = kind / (batch["kind"] != UNKNOWN).sum().clamp_min(1)
    ratio = ((1 - f1) * has).sum() / has.sum().clamp_min(1)
    return ratio + LIKELIHOOD * likelihood + KIND_WEIGHT * kind


def fit(pages: list[Labelled], seed: int = 0) -> dict[str, np.ndarray]:
    """Weights from these pages, as net.Net has them."""
    return fit_network(pages, seed).arrays()


def fit_network(pages: list[Labelled], seed: int = 0) -> Network:
    """A network fitted on these pages, varied anew in each pass: a moving mean over the steps."""
    torch.manual_seed(seed)
    torch.set_num_threads(1)
    pages = [page for page in pages if len(page.y)]
    draw, numbers = random.Random(seed), np.random.default_rng(seed)
    network = Network(pages)
    kept = [p.detach().clone() for p in network.parameters()]
    optimizer = torch.optim.AdamW(network.parameters(), lr=RATE, weight_decay=DECAY)
    steps = EPOCHS * -(-len(pages) // PAGES)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, steps, pct_start=0.15)
    step = 0
    for _ in range(EPOCHS):
        order = draw.sample(pages, len(pages))
        for a in range(0, len(order), PAGES):
            batch = pack([varied(page, numbers) for page in order[a : a + PAGES]])
            loss = loss_of(*network(batch), batch)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(network.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            step += 1
            share = min(MEAN_OF, (1 + step) / (10 + step))
            with torch.no_grad():
                for mean, weights in zip(kept, network.parameters(), strict=True):
                    mean.mul_(share).add_(weights, alpha=1 - share)
    with torch.no_grad():
        for weights, mean in zip(network.parameters(), kept, strict=True):
            weights.copy_(mean)
    return network


def _fit_without(fold: int, pages: Sequence[AnyPage]) -> dict[str, np.ndarray]:
    return fit([label(page) for page in pages if fold_of(page.site, FOLDS) != fold])


def texts_of_unseen_sites(*groups: Sequence[AnyPage]) -> list[list[str]]:
    """Our texts of the pages of each group, by weights fitted on the other folds of all groups."""
    import pyarrow as pa

    from curate.extract.blocks import main_texts
    from curate.extract.net import Net

    every = [page for group in groups for page in group]
    fold = np.array([fold_of(page.site, FOLDS) for page in every])
    texts = [""] * len(every)
    with ProcessPoolExecutor(mp_context=get_context("fork")) as pool:  # torch with a thread each
        fitted = list(pool.map(_fit_without, range(FOLDS), repeat(every)))
    for k, arrays in enumerate(fitted):
        chosen = np.flatnonzero(fold == k)
        html = pa.array([every[n].html for n in chosen], pa.large_string())
        net = Net(*(np.ascontiguousarray(arrays[name]) for name in Net._fields))
        for n, text in zip(chosen, main_texts(html, net=net).text.to_pylist(), strict=True):
            texts[n] = text
    remaining = iter(texts)
    return [list(islice(remaining, len(group))) for group in groups]


FIGURES = "<!-- figures: benchmarks/fit_extract.py --write -->\n"


Measure = Callable[[list[int]], float]  # of the pages with these numbers


def table(head: str, groups: list[str], measure: Measure) -> str:
    """A measure of the pages of each group, of which those of fewer than LEAST pages are one."""
    members: dict[str, list[int]] = defaultdict(list)
    for k, group in enumerate(groups):
        members[group if groups.count(group) >= LEAST else "others"].append(k)
    order = sorted(members, key=lambda g: (g == "others", -len(members[g]), g))
    members["all"] = list(range(len(groups)))
    rows = (f"| {g} | {len(members[g])} | {measure(members[g]):.3f} |" for g in [*order, "all"])
    return "\n".join([f"| {head} |", "|---|---|---|", *rows]) + "\n"


def languages_of(pages: Sequence[AnyPage]) -> list[str]:
    """What the pages state, without regions."""
    import pyarrow as pa

    from curate.extract.blocks import main_texts
    from curate.extract.metadata import language_tag

    result = main_texts(pa.array([page.html for page in pages], pa.large_string()))
    stated = (language_tag(result.stated(row)[3]) or "none" for row in range(len(pages)))
    return [tag.split("-")[0] for tag in stated]


def ratio(page: WholePage | NewsPage, text: str) -> float:
    """F1 of tokens."""
    return word_scores(Counter(tokens(text)), Counter(tokens(page.text)))[2]


def tables(pages: list[WholePage], news: list[NewsPage], partly: list[Page]) -> str:
    """What texts of sites not seen are worth, in Markdown."""
    texts, of_news, others = texts_of_unseen_sites(pages, news, partly)

    def mean_of(pages: Sequence[WholePage | NewsPage], texts: list[str]) -> Measure:
        f1 = [ratio(page, text) for page, text in zip(pages, texts, strict=True)]
        return lambda rows: float(np.mean([f1[k] for k in rows]))

    def pooled(rows: list[int]) -> float:
        return scores([partly[k] for k in rows], [others[k] for k in rows])["f1"]

    mean, language = mean_of(pages, texts), "language that the page states"
    of_language = [page.lang for page in news]
    return "\n".join(
        [
            table("kind of page (WCXB) | pages | F1 of words", [p.kind for p in pages], mean),
            table(f"{language} (WCXB) | pages | F1 of words", languages_of(pages), mean),
            table("language (news) | pages | F1 of words", of_language, mean_of(news, of_news)),
            table(f"{language} | pages | F1 of passages", languages_of(partly), pooled),
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--write", action="store_true", help="write the weights, and their card")
    arguments = parser.parse_args()
    pages, news, partly = load_whole_pages(), load_news_pages(), load_pages()
    figures = tables(pages, news, partly)
    print(figures)
    if arguments.write:
        path = Path(__file__).resolve().parents[1] / "curate" / "extract" / MODEL
        np.savez_compressed(path, **fit([label(page) for page in (*pages, *news, *partly)]))
        card = path.with_suffix(".md")
        text, _, _ = card.read_text().partition(FIGURES)
        card.write_text(text + FIGURES + figures)


if __name__ == "__main__":
    main()
