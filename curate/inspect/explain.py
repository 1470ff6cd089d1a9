"""Explain one document: why it was dropped, what was cut, and which duplicate of it is kept."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pyarrow.parquet as pq

from curate.corpus.decisions import Decision
from curate.documents.attributes import unpack
from curate.documents.edits import EDITS, Edit, edited, edits_of
from curate.documents.rejected import FOLDER, Reason, reasons_of
from curate.inspect.browse.originals import Originals
from curate.run.homes import kept_folder, removed_file
from curate.run.records import stages_of
from curate.steps.contracts import DescribesDecisions, Explains, Settings
from llmcurate.base.disk.files import part_files
from llmcurate.base.disk.units import format_measure
from llmcurate.base.errors import UsageError
from llmcurate.base.messages import OPTIONAL
from llmcurate.base.pages.html import plain
from llmcurate.base.terminal import one_line

SHOWN = 80  # characters shown of a passage or a value


def _find(folder: Path, name: str) -> tuple[Path, dict[str, Any]] | None:
    for path in part_files(folder):
        rows = unpack(pq.read_table(path, filters=[("id", "=", name)]))
        if rows.num_rows:
            return path, rows.slice(0, 1).to_pylist()[0]
    return None


@dataclass
class Cut:
    """An edit of a text: bytes `start` to `end` were replaced."""

    step: str
    rule: str
    start: int  # byte offset in the text that entered the step
    end: int
    replacement: str | None
    text: str | None = field(default=None, metadata=OPTIONAL)  # the text cut, if known


@dataclass(frozen=True)
class Account:
    """Everything that a run records of one document. `str()` gives the lines for the terminal."""

    id: str
    out: str
    status: str
    url: str | None
    source: str | None
    reasons: list[Reason]
    settings: dict[str, str]  # `step.rule` -> the setting that holds the rule's limit
    edits: list[Cut]
    decisions: list[Decision]  # about its duplicates, with the texts of passages if known
    measured: dict[str, Any]  # `step.column` -> value
    explained: dict[str, list[str]]  # step -> sentences on what it measured
    text: str

    def __str__(self) -> str:
        return "\n".join(map(one_line, _lines(self)))

    __repr__ = __str__


def find(out: Path, name: str) -> Account | None:
    """Return what OUT records of the document with the id `name`, or None if it has no such
    document."""
    if not (out / "corpus").is_dir() and not (out / FOLDER).is_dir():
        return None
    for status, folder in (("rejected", out / FOLDER), ("kept", kept_folder(out))):
        place = _find(folder, name)
        if place is not None:
            part, row = place
            decisions: list[Decision] = []
            path = out / "decisions.parquet"
            if path.exists():
                decisions = Decision.rows(pq.read_table(path, filters=[("id", "=", name)]))
            steps, problem = _steps(out)
            account = Account(
                id=name,
                out=str(out),
                status=status,
                url=row.get("url"),
                source=row.get("source"),
                reasons=reasons_of(row),
                settings=_settings(steps),
                edits=[Cut(*edit) for edit in edits_of(row)],
                decisions=decisions,
                measured={k: v for k, v in row.items() if "." in k and v is not None},
                explained={"recipe": [problem]} if problem and row.get("text") else {},
                text=row.get("text") or "",
            )
            if EDITS not in row:
                lacks = "written with --plain or --columns, so scores and cuts are not recorded"
                account.explained["corpus/"] = [lacks]
            _explain(steps, account)
            explains = (s for s in steps if isinstance(s, DescribesDecisions))
            by_method = {getattr(s, "method", ""): s for s in explains}
            for decision in decisions:
                if decision.method in by_method:
                    decision.description = by_method[decision.method].describe(decision)
            if not problem:
                inputs = _inputs(out, part, name, row.get("text"), edits_of(row))
                _quote(steps, inputs, account)
            return account
    return None


def _gone(out: Path, name: str) -> Account | None:
    path = removed_file(kept_folder(out).resolve())
    rows = pq.read_table(path, filters=[("id", "=", name)]).to_pylist() if path else []
    if not rows:
        return None
    url, by, since = (rows[-1][column] for column in ("url", "by", "snapshot"))
    status = "replaced by a newer version" if by == "superseded" else f"forgotten (matched {by})"
    gone = {"home": [f"gone since snapshot {since}"]}
    return Account(name, str(out), status, url, None, [], {}, [], [], {}, gone, "")


def _steps(out: Path) -> tuple[tuple[Settings, ...], str]:
    from curate.steps.recipe import load

    if not (out / "recipe.yaml").exists():
        return (), ""
    try:
        return load(str(out / "recipe.yaml")).steps, ""
    except UsageError as error:
        return (), str(error)


def _settings(steps: tuple[Settings, ...]) -> dict[str, str]:
    limits = [(step.label, limit) for step in steps for limit in step.limits() if limit.setting]
    return {f"{label}.{limit.rule}": limit.setting for label, limit in limits}


def _inputs(
    out: Path, part: Path, name: str, final: str | None, edits: list[Edit]
) -> dict[str, bytes]:
    record = out / "run.json"
    if not edits or not record.is_file():
        return {}
    stages = stages_of(json.loads(record.read_text(encoding="utf-8")))
    text = Originals(out, stages).find((part.name, 0), name, final, edits)
    inputs: dict[str, bytes] = {}
    for step, of_step in groupby(edits, key=lambda edit: edit.step):
        if text is not None:
            inputs[step] = text
            text = edited(text, of_step)
    return inputs if text == (final or "").encode() else {}


def _quote(steps: tuple[Settings, ...], inputs: dict[str, bytes], account: Account) -> None:
    for edit in account.edits:
        if edit.step in inputs:
            edit.text = _slice(inputs[edit.step], edit.start, edit.end)
    if account.edits and not inputs:
        return
    labels = [step.label for step in steps]
    methods = {getattr(step, "method", None): at for at, step in enumerate(steps)}
    final = account.text.encode()
    for decision in account.decisions:
        at = methods.get(decision.method)
        if decision.span_start is None or at is None:
            continue
        text = next((inputs[label] for label in labels[at:] if label in inputs), final)
        decision.text = _slice(text, decision.span_start, decision.span_end)


def _slice(text: bytes, start: int, end: int | None) -> str:
    return text[start:end].decode("utf-8", "replace")


def _explain(steps: tuple[Settings, ...], account: Account) -> None:
    if not account.text:
        return
    measured = {name.rpartition(".")[0] for name in account.measured}
    for step in steps:
        if isinstance(step, Explains) and step.label in measured:
            try:
                account.explained[step.label] = step.explain(account.text)
            except UsageError as error:
                account.explained[step.label] = [f"cannot be explained: {error}"]


def near_ids(out: Path, name: str, most: int = 3) -> list[str]:
    """Return up to `most` ids that contain the text `name`, for an error message."""
    matches: list[str] = []
    for folder in (FOLDER, "corpus"):
        for path in part_files(out / folder):
            ids = pq.read_table(path, columns=["id"])["id"]
            hits = ids.filter(pc.match_substring(ids, name))
            matches += hits.slice(0, most).to_pylist()
            if len(matches) >= most:
                return matches[:most]
    return matches


def explain(outs: list[Path], name: str) -> Account:
    """Return the account of a document from the first of the folders that has its id. The account
    of a document that a HOME removed says why, and since which snapshot. Raises UsageError if no
    folder has the id."""
    for look in (find, _gone):
        for out in outs:
            account = look(out, name)
            if account is not None:
                return account
    near = [n for out in outs[:1] for n in near_ids(out, name)]
    hint = f"; did you mean {near[0]}?" if near else ""
    raise UsageError(f"no document {name!r} in {', '.join(str(o) for o in outs[:3])}{hint}")


def _quoted(span: str | None) -> str:
    text = " ".join((span or "").split())
    return f': "{plain(text, SHOWN)}"' if text else ""


def _shown(value: Any) -> str:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return format_measure(value)
    return plain(value, SHOWN)


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:g}"


def _passage(decision: Decision, name: str) -> str:
    partner = decision.partner
    span = f"  {decision.method}: bytes {decision.span_start} to {decision.span_end} of its input"
    if decision.cluster is None:
        return f"{span} were seen before ({decision.similarity:.0%}); the place is not recorded"
    if partner is None:
        return f"{span} are the duplicate that is kept (cluster {decision.cluster})"
    if decision.kept_id is None:
        keeper = f"also occur in {'it' if partner == name else partner}; no duplicate is kept"
    else:
        keeper = (
            "occur earlier in it"
            if partner == name
            else f"are a duplicate; the one in {partner} is kept"
        )
    return f"{span} {decision.description or keeper} (cluster {decision.cluster})"


def _whole(decision: Decision) -> str:
    similar = f" with similarity {decision.similarity:.3f}" if decision.similarity else ""
    if decision.cluster is None:
        return f"  {decision.method}: seen before{similar}; the earlier document is not recorded"
    if decision.description:
        return f"  {decision.method}: {decision.description}"
    if decision.partner_id:
        kept = f"{decision.kept_id or 'no duplicate'} is kept"
        return (
            f"  {decision.method}: duplicate of {decision.partner}{similar};"
            f" {kept} (cluster {decision.cluster})"
        )
    return f"  {decision.method}: the duplicate that is kept (cluster {decision.cluster})"


def _lines(account: Account, most: int = 40) -> list[str]:
    lines = [f"{account.id}: {account.status}", f"  url     {account.url or '(none)'}"]
    lines += [f"  source  {account.source or '(none)'}", f"  in      {account.out}"]
    for reason in account.reasons:
        line = f"  dropped by {reason.name}"
        if reason.value is not None:
            line += f": value {_number(reason.value)}"
            if reason.threshold is not None:
                setting = account.settings.get(reason.name)
                line += f", threshold {_number(reason.threshold)}"
                line += f" of {setting}" if setting else ""
        lines.append(line + (f" ({reason.detail})" if reason.detail else ""))
    passages = [d for d in account.decisions if d.span_start is not None]
    lines += [_whole(d) for d in account.decisions if d.span_start is None]
    lines += [_passage(d, account.id) + _quoted(d.text) for d in passages[:most]]
    if len(passages) > most:
        lines.append(f"  and {len(passages) - most} more passages (--json shows all)")
    cuts = [edit for edit in account.edits if edit.rule != "white_space"]
    for edit in cuts[:most]:
        swap = f", replaced by {edit.replacement!r}" if edit.replacement else ""
        lines.append(
            f"  cut by {edit.step}.{edit.rule}: bytes {edit.start} to {edit.end} of its"
            f" input{swap}{_quoted(edit.text)}"
        )
    if len(cuts) > most:
        lines.append(
            f"  and {len(cuts) - most} more cuts (--json shows all, including white space)"
        )
    measured: dict[str, list[str]] = {}
    for name, value in account.measured.items():
        step, _, column = name.rpartition(".")
        measured.setdefault(step, []).append(f"{column} {_shown(value)}")
    lines += [f"  {step} measured: {', '.join(values)}" for step, values in measured.items()]
    for step, sentences in account.explained.items():
        lines += [f"  {step}: {line}" for line in sentences[:1]] + [
            f"    {line}" for line in sentences[1:]
        ]
    if account.text:
        lines.append(f"  text: {plain(' '.join(account.text[:400].split()), 300)}")
    return lines
