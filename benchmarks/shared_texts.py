"""Real texts for measurements: where they are, English pieces of one size, figures of a process.

The texts are no part of the project: LLMCURATE_SHARED names their folder, else ../shared is tried.
"""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from curate.documents.documents import Documents

ROOT = Path(__file__).resolve().parents[1]
SHARED = Path(os.environ.get("LLMCURATE_SHARED", ROOT.parent / "shared"))
PEER = ROOT / ".bench" / "datatrove" / "bin" / "python"
FIGURES: list[str] = []  # what the processes of this one have measured
SMOKE = "LLMCURATE_SMOKE" in os.environ  # smoke.py
NO_TEXTS = SMOKE and not SHARED.is_dir()
Size = TypeVar("Size")


def sized(full: Size, smallest: Size) -> Size:
    """The size of a measurement, or the smallest one that tries its code."""
    return smallest if SMOKE else full


def reached(target: bool) -> bool:
    """Whether a target is reached, which none need be on the smallest input."""
    return target or SMOKE


def without(peer: str, python: Path) -> None:
    """Ends a smoke run where a peer is not installed."""
    if SMOKE and not python.exists():
        print(f"without {peer}, not installed: {' '.join(FIGURES[-1:])}")
        sys.exit(0)


def need(pattern: str) -> list[Path]:
    """The shared files of that pattern; ends the script with a message if there is none."""
    paths = sorted((SHARED / "corpora").glob(pattern))
    if not paths and SMOKE:
        print(f"without {pattern}, which is not in {SHARED}/corpora")
        sys.exit(0)
    if not paths:
        sys.exit(f"no {SHARED}/corpora/{pattern}: set LLMCURATE_SHARED to the folder of real texts")
    return paths


def own_pages() -> Iterator[str]:
    """The pages of docs/, which stand for prose that is not there in a smoke run."""
    return (page.read_text("utf-8") for page in sorted((ROOT / "docs").rglob("*.md")))


def english() -> Iterator[str]:
    """English novels and documentation, one document each."""
    return longtext("en-*")


def novels() -> Iterator[str]:
    """English novels alone, a chapter a document."""
    return longtext("en-novels")


def longtext(name: str) -> Iterator[str]:
    """The texts of the files of that name; of a smoke run without them the pages of docs/."""
    if NO_TEXTS:
        yield from own_pages()
        return
    import zstandard

    for path in need(f"longtext/{name}.jsonl.zst"):
        with path.open("rb") as file:
            lines = io.TextIOWrapper(zstandard.ZstdDecompressor().stream_reader(file), "utf-8")
            for line in islice(lines, sized(None, 24)):
                yield json.loads(line)["text"]


def pieces(size: int = 3400) -> list[str]:
    """The English documents in pieces of `size` characters; what is left over goes."""
    return [text[i : i + size] for text in english() for i in range(0, len(text) - size + 1, size)]


def shifted(count: int, size: int = 3400) -> list[str]:
    """That many different English pieces: the documents are cut again, each time from a later
    character on, until there are enough."""
    cut: list[str] = []
    for shift in range(0, size, size // 8):
        for text in english():
            cut += [text[i : i + size] for i in range(shift, len(text) - size + 1, size)]
            if len(cut) >= count:
                return cut[:count]
    return cut


def in_batches(path: str, size: int) -> list[Documents]:
    """The texts of a file of JSON lines as batches of that many documents."""
    from curate.documents.documents import documents

    texts = [json.loads(line)["text"] for line in Path(path).read_text().split("\n")[:-1]]
    return [
        documents({"id": [str(k) for k in range(i, i + len(part))], "text": part})
        for i in range(0, len(texts), size)
        for part in [texts[i : i + size]]
    ]


def peak_mib(pid: int | str = "self") -> float:
    """The most memory a process has held (Linux); ru_maxrss would count its parent too."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


def peer_python() -> str:
    """The interpreter of the library we compare with; its environment is built when absent."""
    without("DataTrove", PEER)
    subprocess.run(["sh", str(ROOT / "benchmarks" / "peer_env.sh")], check=True, stdout=sys.stderr)
    return str(PEER)


def last_json(command: list[str]) -> dict[str, Any]:
    """The last line that a command prints, as JSON."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=environment)
    if done.returncode:
        sys.exit(f"{' '.join(command)} failed:\n{done.stderr[-2000:]}")
    FIGURES.append(done.stdout.splitlines()[-1])
    if SMOKE and FIGURES[-1].startswith("without "):  # a text that is not there
        print(FIGURES[-1])
        sys.exit(0)
    result: dict[str, Any] = json.loads(FIGURES[-1])
    return result


@dataclass
class Watched:
    """A command that has ended: wall seconds, and the most memory one of its processes held."""

    seconds: float
    peak_mib: float
    total_mib: float  # all processes together, at the worst sample
    workers_mib: float  # the most that one of the processes it started held
    status: int
    output: str


def watched(command: list[str], interval: float = 0.02) -> Watched:
    """Runs a command and samples the resident memory of it and of every process it starts."""
    import psutil

    peaks: dict[int, float] = {}
    total = 0.0
    begin = time.perf_counter()
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
        me = psutil.Process(process.pid)
        while process.poll() is None:
            now = 0.0
            with suppress(psutil.Error):
                for member in (me, *me.children(recursive=True)):
                    with suppress(psutil.Error):
                        size = member.memory_info().rss / 2**20
                        now += size
                        peaks[member.pid] = max(peaks.get(member.pid, 0.0), size)
            total = max(total, now)
            time.sleep(interval)
        seconds = time.perf_counter() - begin
        output.seek(0)
        text = output.read()
    workers = max((v for k, v in peaks.items() if k != process.pid), default=0.0)
    peak = max(peaks.values(), default=0.0)
    return Watched(seconds, peak, total, workers, process.returncode, text)
