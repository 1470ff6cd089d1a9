"""Record what Chromium's TextDecoder makes of bytes (tests/curate/text/encodings.json).

python scripts/encoding_digests.py [CHROMIUM]            # its command, else chromium
python scripts/encoding_digests.py [CHROMIUM] --check    # exit status 1 where the file differs
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
RECORD = ROOT / "tests" / "curate" / "text" / "encodings.json"
SCRIPT = ROOT / "tests" / "curate" / "text" / "encoding_bytes.js"
PAGE = """<!DOCTYPE html><meta charset=utf-8><pre id=out></pre><script>{script}
answers({labels}).then(found => document.getElementById("out").textContent = JSON.stringify(found));
</script>"""


def answers(chromium: str) -> dict[str, Any]:
    """names: the encoding of each label; digests: sha256 of what each encoding's decoder gives."""
    with np.load(ROOT / "curate" / "text" / "encodings.npz") as tables:
        lines = tables["labels"].tobytes().decode("ascii").splitlines()
    labels = json.dumps([line.split()[0] for line in lines])
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "page.html"
        page.write_text(PAGE.format(script=SCRIPT.read_text(encoding="utf-8"), labels=labels))
        options = ["--headless", "--no-sandbox", "--virtual-time-budget=600000", "--dump-dom"]
        command = [chromium, *options, f"--user-data-dir={folder}/profile", page.as_uri()]
        dom = subprocess.run(
            command, capture_output=True, text=True, check=True, timeout=300
        ).stdout
    found = re.search(r"<pre id=\"out\">(.*?)</pre>", dom, re.S)
    return dict(json.loads(unescape(found[1]))) if found else {}


def main() -> int:
    named = [argument for argument in sys.argv[1:] if argument != "--check"]
    found = answers(named[0] if named else "chromium")
    if "--check" in sys.argv:
        return found != json.loads(RECORD.read_text(encoding="utf-8"))
    RECORD.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
