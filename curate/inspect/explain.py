"""The account of one document: why it was dropped, its cuts, and the copy of it that stays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pyarrow.parquet as pq

from curate.documents.edits import edits_of
from curate.documents.rejected import FOLDER, reasons_of
from curate.errors import UsageError
from curate.run.homes import kept_folder


def _find(folder: Path, name: str) -> dict[str, Any] | None:
    for path in sorted(folder.glob("part-*.parquet")):
        rows = pq.read_table(path, filters=[("id", "=", name)])
        if rows.num_rows:
            row: dict[str, Any] = rows.slice(0, 1).to_pylist()[0]
            return row
    return None


def find(out: Path, name: str) -> dict[str, Any] | None:
    """What OUT knows of the document with that id: status, row, reasons, edits, decisions."""
    if not (out / "corpus").is_dir() and not (out / FOLDER).is_dir():
        return None
    for status, folder in (("rejected", out / FOLDER), ("kept", kept_folder(out))):
        row = _find(folder, name)
        if row is not None:
            decisions = []
            path = out / "decisions.parquet"
            if path.exists():
                decisions = pq.read_table(path, filters=[("id", "=", name)]).to_pylist()
            return {
                "id": name,
                "out": str(out),
                "status": status,
                "url": row.get("url"),
                "source": row.get("source"),
                "reasons": [reason._asdict() for reason in reasons_of(row)],
                "edits": [edit._asdict() for edit in edits_of(row)],
                "decisions": decisions,
                "measured": {k: v for k, v in row.items() if "." in k and v is not None},
                "explained": _by_steps(out, row),
                "text": row.get("text") or "",
            }
    return None


def _by_steps(out: Path, row: dict[str, Any]) -> dict[str, list[str]]:
    """What steps that measured this document say of its text, where they can say more than the
    value. The text is the one in OUT: later steps may have edited it since."""
    from curate.steps.contracts import Settings
    from curate.steps.recipe import load

    if not row.get("text") or not (out / "recipe.yaml").exists():
        return {}
    try:
        steps = load(str(out / "recipe.yaml")).steps
    except UsageError as error:
        return {"recipe": [str(error)]}
    measured = {name.rpartition(".")[0] for name, v in row.items() if "." in name and v is not None}
    accounts = {}
    for step in steps:
        if type(step).explain is not Settings.explain and step.label in measured:
            try:
                accounts[step.label] = step.explain(row["text"])
            except UsageError as error:
                accounts[step.label] = [f"cannot be explained: {error}"]
    return accounts


def near_ids(out: Path, name: str, most: int = 3) -> list[str]:
    """Ids that hold the given text, for a helpful error."""
    matches: list[str] = []
    for folder in (FOLDER, "corpus"):
        for path in sorted((out / folder).glob("part-*.parquet")):
            ids = pq.read_table(path, columns=["id"])["id"]
            hits = ids.filter(pc.match_substring(ids, name))
            matches += hits.slice(0, most).to_pylist()
            if len(matches) >= most:
                return matches[:most]
    return matches


def explain(outs: list[Path], name: str) -> dict[str, Any]:
    """The first of the folders that knows the id; UsageError where none does."""
    for out in outs:
        account = find(out, name)
        if account is not None:
            return account
    near = [n for out in outs[:1] for n in near_ids(out, name)]
    hint = f"; did you mean {near[0]}?" if near else ""
    raise UsageError(f"no document {name!r} in {', '.join(str(o) for o in outs[:3])}{hint}")


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:g}"


def _partner(decision: dict[str, Any]) -> str | None:
    """The id of the partner, with the earlier corpus that it lies in."""
    corpus = decision.get("partner_corpus")
    return f"{decision['partner_id']} in {corpus}" if corpus else decision["partner_id"]


def _passage(decision: dict[str, Any], name: str) -> str:
    """One line on a passage that stands more than once."""
    start, end = decision["span_start"], decision["span_end"]
    partner = _partner(decision)
    which = f"  {decision['method']}: bytes {start} to {end} of its input"
    if decision["cluster"] is None:
        return f"{which} had been seen before ({decision['similarity']:.0%}), where is not known"
    if partner is None:
        return f"{which} are the copy that stays of cluster {decision['cluster']}"
    if decision["kept_id"] is None:
        keeper = f"stand in {'it' if partner == name else partner} too; no copy stays"
    else:
        keeper = "stand in it before" if partner == name else f"are a copy; {partner} keeps them"
    return f"{which} {keeper} (cluster {decision['cluster']})"


def text(account: dict[str, Any], most: int = 40) -> str:
    """The explanation for a terminal."""
    lines = [f"{account['id']}: {account['status']}", f"  url     {account['url'] or '(none)'}"]
    lines += [f"  source  {account['source'] or '(none)'}", f"  in      {account['out']}"]
    for reason in reasons_of(account):
        line = f"  dropped by {reason.name}"
        if reason.value is not None:
            line += f": value {_number(reason.value)}"
            if reason.threshold is not None:
                line += f", threshold {_number(reason.threshold)}"
        lines.append(line + (f" ({reason.detail})" if reason.detail else ""))
    passages = [d for d in account["decisions"] if d["span_start"] is not None]
    for d in account["decisions"]:
        if d["span_start"] is not None:
            continue
        similar = f" with similarity {d['similarity']:.3f}" if d["similarity"] else ""
        if d["cluster"] is None:
            lines.append(f"  {d['method']}: seen before{similar}, where is not known")
        elif d["method"].startswith("decontaminate"):
            lines.append(
                f"  {d['method']}: holds {d['similarity']:.0%} of the item {_partner(d)}, which is"
                " in an evaluation set"
            )
        elif d["partner_id"]:
            lines.append(
                f"  {d['method']}: copy of {_partner(d)}{similar};"
                f" {d['kept_id']} stays (cluster {d['cluster']})"
            )
        else:
            lines.append(f"  {d['method']}: the copy that stays of cluster {d['cluster']}")
    lines += [_passage(d, account["id"]) for d in passages[:most]]
    if len(passages) > most:
        lines.append(f"  and {len(passages) - most} more passages (--json shows all)")
    cuts = [edit for edit in edits_of(account) if edit.rule != "white_space"]
    for edit in cuts[:most]:
        swap = f", replaced by {edit.replacement!r}" if edit.replacement else ""
        lines.append(f"  cut by {edit.name}: bytes {edit.start} to {edit.end} of its input{swap}")
    if len(cuts) > most:
        lines.append(f"  and {len(cuts) - most} more cuts (--json shows all, white space too)")
    if account["measured"]:
        pairs = ", ".join(f"{k} {v}" for k, v in account["measured"].items())
        lines.append(f"  measured: {pairs}")
    for step, sentences in account["explained"].items():
        lines += [f"  {step}: {line}" for line in sentences[:1]] + [
            f"    {line}" for line in sentences[1:]
        ]
    if account["text"]:
        head = " ".join(account["text"][:300].split())
        lines.append(f"  text: {head}{'...' if len(account['text']) > 300 else ''}")
    return "\n".join(lines)
