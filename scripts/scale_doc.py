"""Print the forecasts in docs/scale.md again: every block that begins with `$ llmcurate`.

    python scripts/scale_doc.py

Run it after scripts/measure_scale.py, which measures their figures. A test compares them.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DOC = ROOT / "docs" / "scale.md"
BLOCK = re.compile(r"^```\n\$ llmcurate ([^\n]+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def printed(command: str, folder: Path) -> str:
    """Return the output of the command; `| grep WORD` keeps only the lines with that word."""
    line, _, wanted = command.partition(" | grep ")
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "200"}  # wide tables
    done = subprocess.run(
        [sys.executable, "-m", "curate.cli.app", *shlex.split(line)],
        cwd=folder, env=environment, capture_output=True, text=True,
    )  # fmt: skip
    if done.returncode:
        sys.exit(f"{command}: {done.stderr}")
    pattern = re.compile(shlex.split(wanted)[-1] if wanted else "")
    return "".join(text for text in done.stdout.splitlines(keepends=True) if pattern.search(text))


def main() -> None:
    with tempfile.TemporaryDirectory() as name:

        def anew(match: re.Match[str]) -> str:
            return f"```\n$ llmcurate {match[1]}\n{printed(match[1], Path(name))}```"

        text = DOC.read_text(encoding="utf-8")
        DOC.write_text(BLOCK.sub(anew, text), encoding="utf-8")


if __name__ == "__main__":
    main()
