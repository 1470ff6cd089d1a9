"""What documents, URLs and names hold never reaches a terminal as a control character."""

from __future__ import annotations

import random
import re
from typing import Any

import pytest
from hypothesis import given

from tests.curate.conftest import Bench
from tests.fuzz.mutations import FUZZ, SEEDS

# Escapes of a terminal, 8-bit ones too, carriage returns, backspaces, and turns of direction.
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
HOSTILE = ["\x1b]0;owned\x07", "\x1b[2J", "\r", "\x08" * 9, "\x9b31m", "\x7f", "\u202e", "\x00"]
TEXT = "The river runs past the old mill and nobody works there any more."


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    return Bench(tmp_path_factory.mktemp("terminal"))


@FUZZ
@given(seed=SEEDS)
def test_no_control_character_of_a_document_is_printed(bench: Bench, seed: int) -> None:
    draw = random.Random(seed)

    def odd() -> str:
        return f"{draw.choice(HOSTILE)}x{draw.choice(HOSTILE)}"

    rows: list[dict[str, Any]] = [
        {"id": f"d{n}{odd()}", "text": f"{TEXT} {odd()} {TEXT}", "url": f"http://a.test/{odd()}",
         "lang": odd(), "title": odd()} for n in range(4)
    ]  # fmt: skip
    out = f"out{seed}"
    bench.run([{"dedup_exact": {}}, {"document_length": {"min": 5}}],
              bench.jsonl("in.jsonl", rows), out=out)  # fmt: skip
    looks = [["explain", rows[0]["id"], "--in", out], ["explain", "d0", "--in", out],
             ["stats", out], ["explain", odd(), "--in", out]]  # fmt: skip
    for look in looks:
        done = bench.command(*look)
        assert not CONTROL.search(done.stdout + done.stderr), look
