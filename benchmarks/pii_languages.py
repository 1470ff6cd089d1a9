"""Addresses planted into sentences of many languages: how many are replaced, whole and alone.

    python benchmarks/pii_languages.py

One e-mail or public IP address is put into each of 45,000 sentences of 161 languages (the texts for
language identification): between two words, or for scripts without spaces directly between two
of their characters. It counts as replaced when the text before and behind it is as it was. Ours and
DataTrove's PIIFormatter get the same texts. Exit status 1 under 99 % of either kind.
"""

from __future__ import annotations

import gzip
import json
import random
import sys
import tempfile
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.shared_texts import ROOT, last_json, need, peer_python, reached

TARGET = 0.99
UNSPACED = ("zh", "ja", "th", "lo", "km", "my", "bo", "dz", "yue")
NAMES = "jane.doe j_smith maria-lopez wei.zhang info contact+web kim2024 o.petrov a.b.c x9".split()
HOSTS = (
    "mail.test post.example.org mail.co.uk web.de mail.ru mail.cn mail.co.jp sub.uni.edu".split()
)


def plant(draw: random.Random, text: str, lang: str) -> tuple[str, str, str, str]:
    """(kind, before, planted, behind)."""
    if draw.random() < 0.7:
        kind, planted = "email", f"{draw.choice(NAMES)}@{draw.choice(HOSTS)}"
    else:
        first = draw.choice([5, 8, 31, 46, 77, 93, 114, 151, 185, 212])
        planted = ".".join(map(str, (first, *(draw.randrange(256) for _ in range(3)))))
        kind = "ip"
    places = [i for i in range(1, len(text)) if min(text[i - 1], text[i]) > "\x7f"]
    if lang in UNSPACED and places:
        at = draw.choice(places)
        return f"{kind} between characters", text[:at], planted, text[at:]
    words = text.split(" ")
    at = draw.randrange(len(words) + 1)
    before, behind = " ".join(words[:at]), " ".join(words[at:])
    return kind, before + " " * (at > 0), planted, " " * (at < len(words)) + behind


def main() -> None:
    from curate.documents.documents import documents
    from curate.filters.pii import Pii

    draw = random.Random(0)
    cases = []
    languages = set()
    for line in gzip.decompress(need("langid/langid-dev.jsonl.gz")[0].read_bytes()).splitlines():
        row = json.loads(line)
        text = " ".join(row["text"].split())
        if len(text) > 3 and not any(c in text for c in "@0123456789"):
            cases.append(plant(draw, text, row["lang"]))
            languages.add(row["lang"])
    texts = [before + planted + behind for _, before, planted, behind in cases]
    own = Pii().apply(documents({"text": texts}).within("pii")).text.to_pylist()
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
        file.writelines(json.dumps({"text": text}) + "\n" for text in texts)
        file.flush()
        peer = ROOT / "benchmarks" / "peers" / "datatrove_pii.py"
        theirs = last_json([peer_python(), str(peer), file.name, "texts"])
    total: Counter[str] = Counter(c[0] for c in cases)
    print(f"{len(cases)} sentences of {len(languages)} languages, one address in each")
    good = True
    for name, outputs in (("llmcurate", own), ("DataTrove 0.10.1", theirs)):
        counts: Counter[str] = Counter()
        for (kind, before, planted, behind), out in zip(cases, outputs, strict=True):
            counts[kind] += (
                out != before + planted + behind
                and out.startswith(before)
                and out.endswith(behind)
                and len(out) > len(before) + len(behind)
            )
        shares = {kind: counts[kind] / total[kind] for kind in sorted(total)}
        print(f"  {name:<18}" + ", ".join(f"{k} {100 * v:.2f} %" for k, v in shares.items()))
        good = good and (name != "llmcurate" or min(shares.values()) >= TARGET)
    sys.exit(0 if reached(good) else 1)


if __name__ == "__main__":
    main()
