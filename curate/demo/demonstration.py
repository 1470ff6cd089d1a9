"""The command `llmcurate demo`: run the recipe on the demo web, compare the result to the truth."""

from __future__ import annotations

import shutil
import sys
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.util import find_spec
from ipaddress import ip_address
from pathlib import Path

from curate.dedup.minhash.near_duplicates import DedupMinhash, predicted
from curate.demo.web import Page, build_web, read_truth
from curate.documents.attributes import DocumentsFile
from curate.documents.edits import EDITS, edits_of
from curate.documents.rejected import first_reasons, rejected_files
from curate.run.driver import run_planned
from curate.run.plan import plan_run
from curate.run.records import Options, Outcome, funnel, json_of, record
from curate.run.workspace import create, find
from curate.steps.recipe import Recipe, build, load
from llmcurate.base.disk.files import part_files, write_text
from llmcurate.base.disk.units import counted
from llmcurate.base.terminal import echo, echo_json, say, table

QUALITY = ("c4", "gopher_quality", "gopher_repetition", "fineweb_quality")
# The steps that may fulfil an expectation.
STEPS: dict[str, tuple[str, ...]] = {
    "dropped:url": ("url_filter",),
    "dropped:language": ("language",),
    "dropped:quality": (*QUALITY, "language"),  # the language step may drop a menu first
    "dropped:exact_url": ("dedup_exact.same_url",),
    "dropped:exact_text": ("dedup_exact.same_text",),
    "dropped:near": ("dedup_minhash",),
}
WANTED = {
    "kept": "kept",
    "dropped:url": "dropped by its URL",
    "dropped:language": "dropped by its language",
    "dropped:quality": "dropped by a text filter",
    "dropped:exact_url": "one page kept per URL",
    "dropped:exact_text": "one page kept per text",
    "dropped:near": "one of the two kept",
    "cut:substring": "one copy of the passage kept",
    "replaced:pii": "replaced in the text",
}
PII_RULES = {"email": "email", "ip": "ip", "phone": "phone"}  # type in the truth: rule of the step


@dataclass(frozen=True)
class Row:
    """A row of the table: one kind of planted page, and how many pages were treated as expected.
    `precision` is the share of planted pages among all that the steps for this kind dropped or
    replaced (None if they dropped nothing)."""

    kind: str
    expect: str  # expected treatment, such as `dropped:url`
    planted: int  # number of planted pages
    done: int  # how many of them were treated as expected
    expected: float  # the share that a correct pipeline would treat so; below 1 for MinHash
    precision: float | None
    by: Mapping[str, int] = field(default_factory=dict)  # documents per step

    @property
    def recall(self) -> float:
        return self.done / self.planted


@dataclass(frozen=True)
class Result:
    """The documents of a run, by id. `replaced` gives for each kept document the number of replaced
    spans per PII rule."""

    kept: Mapping[str, str]  # texts
    rejected: Mapping[str, tuple[str, str]]  # (step, rule) that first rejected the document
    replaced: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    cut: frozenset[str] = frozenset()  # kept documents that lost a passage found in other documents

    def step(self, name: str) -> str:
        """Return the step that dropped a document, or "". For exact dedup, return STEP.RULE."""
        step, rule = self.rejected.get(name, ("", ""))
        step = step.partition("#")[0]
        return f"{step}.{rule}" if step == "dedup_exact" else step


def score(truth: Sequence[Page], result: Result, predicted: Mapping[float, float]) -> list[Row]:
    """Return one row per kind of planted page, and for near duplicates one row per similarity.
    `predicted` maps a similarity to the share of pairs that MinHash should find."""
    right = _rightly_dropped(truth, result)
    ids = {r.id for r in truth}
    precision = {}
    for expect, steps in STEPS.items():
        dropped = {i for i in ids if result.step(i) in steps}
        precision[expect] = len(dropped & right) / len(dropped) if dropped else None
    rows = []
    order = list(WANTED)
    groups = {_group(r) for r in truth}
    for kind, expect, similarity in sorted(
        groups, key=lambda g: (order.index(g[1]), g[0], -(g[2] or 0))
    ):
        group = [r for r in truth if _group(r) == (kind, expect, similarity)]
        if expect == "replaced:pii":
            rows += _pii(group, result)
            continue
        if expect == "cut:substring":
            rows.append(_passages(group, result, truth))
            continue
        if expect.startswith("kept"):
            done = sum(_is_kept(r, result.kept, truth) for r in group)
            rows.append(Row(kind, expect, len(group), done, 1.0, None))
            continue
        hit = [r.id for r in group]
        if expect in ("dropped:exact_text", "dropped:near"):
            clusters = {r.cluster for r in group}
            hit = [r.id for r in truth if r.cluster in clusters]
        hit = [i for i in hit if i in right and result.step(i) in STEPS[expect]][: len(group)]
        by = dict(Counter(result.step(i) for i in hit))
        name = kind if similarity is None else f"{kind} {similarity:.2f}"
        expected = 1.0 if similarity is None else predicted[similarity]
        rows.append(Row(name, expect, len(group), len(hit), expected, precision[expect], by))
    return rows


def _group(record: Page) -> tuple[str, str, float | None]:
    return record.kind, record.expect[0], record.similarity


def _members(truth: Iterable[Page], kinds: Sequence[str]) -> dict[str, list[str]]:
    of_kinds = {r.cluster for r in truth if r.kind in kinds}
    clusters: dict[str, list[str]] = {}
    for page in truth:
        if page.cluster and page.cluster in of_kinds:
            clusters.setdefault(page.cluster, []).append(page.id)
    return clusters


def _rightly_dropped(truth: Sequence[Page], result: Result) -> set[str]:
    junk = ("dropped:url", "dropped:language", "dropped:quality", "dropped:exact_url")
    right = {r.id for r in truth if r.expect[0] in junk and r.id in result.rejected}
    for members in _members(truth, ("exact_dup", "near_dup")).values():
        gone = [i for i in members if result.step(i).startswith("dedup_")]
        stays = any(i in result.kept for i in members)
        right.update(gone if stays else gone[1:])  # if none is kept, one too many was dropped
    return right


def _is_kept(record: Page, kept: Mapping[str, str], truth: Sequence[Page]) -> bool:
    if record.id in kept:
        return True
    cluster = record.cluster
    copies = ("exact_dup", "near_dup")
    return bool(cluster) and any(
        r.id in kept for r in truth if r.cluster == cluster and r.kind in copies
    )


def _passages(group: Sequence[Page], result: Result, truth: Sequence[Page]) -> Row:
    passages = [r.planted["passage"] for r in group]
    done = sum(sum(p in text for text in result.kept.values()) == 1 for p in passages)
    right = {i for r in group for i in (r.id, r.source_id)}
    # Kept near duplicates share passages too, so cutting those is right as well.
    right.update(i for members in _members(truth, ("near_dup",)).values() for i in members)
    precision = len(result.cut & right) / len(result.cut) if result.cut else None
    by = {"dedup_suffix_array": done} if done else {}
    return Row(group[0].kind, "cut:substring", len(group), done, 1.0, precision, by)


def _pii(group: Sequence[Page], result: Result) -> list[Row]:
    rows = []
    for kind, rule in PII_RULES.items():
        planted = done = spans = 0
        for page in group:
            text = result.kept.get(page.id, "")
            values = [p["value"] for p in page.planted["pii"] if p["type"] == kind]
            # Private and documentation addresses should stay; replacing them costs precision.
            public = [v for v in values if kind != "ip" or ip_address(v).is_global]
            planted += len(public)
            done += sum(bool(text) and v not in text for v in public)
        spans = sum(rules.get(rule, 0) for rules in result.replaced.values())
        if planted:
            precision = min(1.0, done / spans) if spans else None
            by = {"pii": done}
            rows.append(Row(f"pii: {kind}", "replaced:pii", planted, done, 1.0, precision, by))
    return rows


def format_table(rows: Sequence[Row]) -> str:
    head = ("planted", "what should happen", "pages", "done", "recall", "ideal", "precision", "by")
    body = [
        (
            r.kind.replace("_", " "),
            WANTED[r.expect],
            str(r.planted),
            str(r.done),
            f"{r.recall:.3f}",
            f"{r.expected:.3f}",
            "-" if r.precision is None else f"{r.precision:.3f}",
            ", ".join(f"{k} {n}" for k, n in sorted(r.by.items(), key=lambda kv: -kv[1])),
        )
        for r in rows
    ]
    lines = table(head, body, left=(0, 1, 7))
    lines.append(
        "recall: done / planted. ideal: the recall of a correct pipeline (MinHash misses some near"
        " duplicates, the more the less similar they are). precision: of all that the steps on the"
        " right dropped or replaced, the share that was planted for them."
    )
    return "\n".join(lines)


# Settings of url_filter, each a file with these lines. A domain covers its subdomains. The word
# `sex` must not block Essex or a sextet.
LISTS: dict[str, tuple[str, tuple[str, ...]]] = {
    "domains": ("blocked-domains.txt", ("luckyspins.example",)),
    "banned_words": ("blocked-words.txt", ("casino", "sex")),
}


def _result(out: Path) -> Result:
    kept: dict[str, str] = {}
    replaced: dict[str, Counter[str]] = {}
    cut = set()
    for path in part_files(out / "corpus"):
        for row in DocumentsFile(path).read(["id", "text", EDITS]).to_pylist():
            name = row["id"].strip("<>")
            kept[name] = row["text"]
            edits = edits_of(row)
            replaced[name] = Counter(edit.rule for edit in edits if edit.step == "pii")
            if any(edit.step == "dedup_suffix_array" for edit in edits):
                cut.add(name)
    rejected = {
        name.strip("<>"): (step, rule) for name, step, rule in first_reasons(rejected_files(out))
    }
    return Result(kept, rejected, replaced, frozenset(cut))


def _recipe(out: Path, sets: tuple[str, ...], quiet: bool) -> Recipe:
    lists = []
    for key, (name, lines) in LISTS.items():
        path = out / "web" / name
        if not path.exists() or path.read_text() != "\n".join([*lines, ""]):
            write_text(path, "\n".join([*lines, ""]))
        lists.append(f"url_filter.{key}={path}")
    missing = []
    model = []
    if find_spec("fasttext") is None:
        missing.append("language")
        say("fasttext is not installed: the demo skips its language step")
    else:
        from curate.demo.language import train_demo_model

        model = [f"language.model={train_demo_model(out / 'language', quiet)}"]
    if find_spec("torch") is None:
        missing.append("pretrain")
        say("torch is not installed: no model is trained (pip install 'llmcurate[train]')")
    models = () if any(s.startswith("language.model=") for s in sets) else tuple(model)
    recipe = load("demo", (*lists, *models, *sets))
    steps = [s for s in recipe.steps if s.name not in missing]
    if len(steps) == len(recipe.steps):
        return recipe
    return build("demo", steps, read=recipe.read, description=recipe.description)


def run_demo(
    out: Path, workers: int, as_json: bool, quiet: bool, sets: tuple[str, ...] = ()
) -> Outcome:
    """Create a workspace in `out` with web/ and runs/0001-demo, run the demo, print the table."""
    began = time.perf_counter()
    create(out)
    web = build_web(out / "web")
    truth = read_truth(web.truth)
    others = f"{web.others} other records (robots.txt, images, redirects)"
    say(f"wrote {counted(web.documents, 'page')} and {others} to {out / 'web'}", quiet)
    recipe = _recipe(out, sets, quiet)
    from curate.formats.inputs import plan_inputs

    inputs = [str(path) for path in web.paths]
    plan = plan_run(recipe, plan_inputs(inputs, recipe.read.partition_bytes))
    space = find(out)
    target = space.out_for("demo", plan.digest) if space else out / "runs" / "0001-demo"
    target = out / target.relative_to(out.resolve())
    outcome = run_planned(plan, target, Options(workers, quiet))
    near = next(s for s in recipe.steps if isinstance(s, DedupMinhash))
    similarities = {page.similarity for page in truth if page.similarity is not None}
    shares = {s: predicted(*near.banding, s) for s in similarities}
    rows = score(truth, _result(target), shares)
    echo(funnel(record(outcome)))
    if outcome.products and outcome.products[-1]["makes"] == "model":
        sample = outcome.products[-1]["summary"]["sample"]
        echo(f"a sample of the model: {' '.join(sample[:200].split())}")
    echo("\nwhat was planted, and what the steps did with it:")
    echo(format_table(rows))
    echo(f"\nreport: {target / 'report.html'}")
    beside = str(Path(sys.executable).parent / "llmcurate")
    command = "llmcurate" if shutil.which("llmcurate") else beside
    echo(f"next: cd {out} && {command} tokenizer train --vocab 8000 && {command} pretrain")
    if as_json:
        plants = [asdict(row) | {"recall": row.recall} for row in rows]
        seconds = {"wall_seconds": round(time.perf_counter() - began, 1)}
        totals = json_of(outcome.totals()) | {"paths": outcome.paths()}
        echo_json({**totals, "plants": plants, **seconds})
    return outcome
