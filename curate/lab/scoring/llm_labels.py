"""Label a sample of documents with the scores of a language model.

FineWeb-Edu (Penedo et al. 2024, section 4) was made like this: a large model grades a sample, a
small classifier learns from the grades, and the classifier scores the corpus. OUT has a line for
each label, `{"id", "score", "text"}`, sorted by id. OUT.log has every answer, also those without a
score. Answers are found by the SHA-256 of their requests, so a repeated command sends only the
requests that have no answer yet.

The text of a document is data, never an instruction to the model. It stands between two lines with
a mark that the text cannot contain, tokens that end a turn of a chat are made harmless, and only
the score in an answer is used.
"""

from __future__ import annotations

import heapq
import json
import os
import re
import threading
from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timezone
from multiprocessing.pool import ThreadPool
from pathlib import Path
from typing import Any, NamedTuple

from curate.api.command_settings import QualityLabel
from curate.corpus.direct_input import DirectInput
from curate.fetch.sources import Failed, Refused
from curate.formats.read_settings import ReadSettings
from curate.lab.scoring.chat import ChatModel, completions_url
from llmcurate.base.disk.files import drawn_number, text_digest, write_text
from llmcurate.base.disk.units import counted
from llmcurate.base.errors import RunFailed, UsageError
from llmcurate.base.terminal import Progress, say

# Criteria in words of our own. fineweb-edu: the additive scale of Penedo et al. 2024, by which
# other models graded for Nemotron-CC (Su et al. 2024). dclm: what DCLM's classifier prefers, such
# as OpenHermes 2.5 and ELI5 (Li et al. 2024, section 4.4), from 0 to 5 as in FinePDFs.
PROMPTS = ("fineweb-edu", "dclm")
PLACE = "{text}"
HIGHEST = 5  # of the scale, which begins with 0
# Tokens that begin or end a turn of Qwen, Llama, Phi, DeepSeek, Gemma and Mistral.
_TURN = re.compile(r"<(?=[|\uff5c]|/?s>|(?:start|end)_of_turn>)|\[(?=/?INST\])")
_SCORE = re.compile(
    r"(?:\b|_)score\b(?: is| of)?\W{0,8}?(-?\d{1,9}(?:[.,]\d+)?)(?!\d|[.,]\d|\s*[-\u2013]\s*\d)",
    re.I,
)
BYTES_PER_TOKEN = 4  # an estimate for English
IN_A_ROW = 20  # number of documents in a row without a label that stops the command
MOST_UNANSWERED = 0.1  # share of the documents above which the command fails


def verdict(answer: dict[str, Any]) -> int | str:
    """Return the last score in an answer, or the reason why no score is usable: cut_short, no_score
    or off_scale. An answer that is only a number is a score."""
    text = answer["answer"]
    stated = _SCORE.findall(text) or re.findall(r"\A\s*(-?\d{1,9})\s*\Z", text)
    if answer["finish"] in ("length", "content_filter"):
        return "cut_short"
    if not stated:
        return "no_score"
    number = float(stated[-1].replace(",", "."))
    return int(number) if number in range(HIGHEST + 1) else "off_scale"


def prompt_text(name: str) -> str:
    """Return the text of a shipped prompt or of a file. Raises UsageError if it cannot be read or
    does not have `{text}`, the place of the document's text, exactly once."""
    shipped = Path(__file__).with_name("prompts") / f"{name}.txt"
    try:
        text = (shipped if name in PROMPTS else Path(name)).read_text("utf-8-sig")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "not UTF-8"
        raise UsageError(f"--prompt {name}: {reason}; give a file, fineweb-edu or dclm") from None
    if text.count(PLACE) != 1:
        raise UsageError(f"--prompt {name}: write {PLACE} once, where the document belongs")
    return text


class Document(NamedTuple):
    """A document of the sample."""

    id: str
    text: str  # its beginning, as far as it is sent
    request: str  # SHA-256 of the request


class Labeller:
    """Labels a sample of documents. The sample `documents` has the smallest hashes of id and seed,
    so the order of the input does not matter. `missing` are the documents of the sample that have
    no answer in the log yet. Raises UsageError for wrong settings."""

    def __init__(
        self, inputs: list[str], read: ReadSettings, chosen: QualityLabel, out: Path, quiet: bool
    ) -> None:
        self.chosen, self.out, self.log = chosen, out, out.with_name(f"{out.name}.log")
        self.prompt = prompt_text(chosen.prompt)
        self._answers: dict[str, dict[str, Any]] = {}  # by the SHA-256 of their requests
        try:
            self._extra = dict(json.loads(chosen.extra))
        except (ValueError, TypeError):
            raise UsageError("--extra: give a JSON object, such as '{\"top_p\": 1}'") from None
        direct = DirectInput.of_texts(inputs, read, quiet)

        def ranked() -> Iterator[tuple[int, str, str]]:
            for batch in direct.batches(["id", "text"]):
                for id, text in zip(*(batch[n].to_pylist() for n in ("id", "text")), strict=True):
                    if text.strip():
                        yield drawn_number(chosen.seed, id), id, text[: chosen.max_chars]

        drawn = heapq.nsmallest(chosen.sample, ranked())
        if unread := direct.tally["rejected"] + direct.tally["corrupt"]:
            say(f"left out {counted(unread, 'record')}: without text, or not readable", quiet)
        self.documents = [Document(*d[1:], text_digest(self._body(d[2]))) for d in drawn]
        if self.log.exists():
            self._read_log()
        missing = {d.request: d for d in self.documents if d.request not in self._answers}
        self.missing = [*missing.values()]

    def _body(self, text: str) -> str:
        mark = f"--- document {text_digest(text)[:16]} ---"
        broken = _TURN.sub(r"\g<0> ", text)
        message = self.prompt.replace(PLACE, f"{mark}\n{broken}\n{mark}")
        fields = {
            "model": self.chosen.model,
            "messages": [{"role": "user", "content": message}],
            "temperature": 0,
            "max_tokens": self.chosen.max_tokens,
        }
        return json.dumps({n: v for n, v in (fields | self._extra).items() if v is not None})

    def plan(self) -> str:
        """Return one line with the number, tokens and cost of the requests still to be sent."""
        size = sum(len((self.prompt + document.text).encode()) for document in self.missing)
        tokens = size // BYTES_PER_TOKEN, len(self.missing) * self.chosen.max_tokens
        cost, answered = self._cost(*tokens), len(self.documents) - len(self.missing)
        return (
            f"{counted(len(self.missing), 'request')} to {completions_url(self.chosen.endpoint)}:"
            f" about {counted(tokens[0], 'token')}, and at most {tokens[1]:,} of answers"
            f"{f'; at most {cost:,.2f} USD' if cost else ''}"
            f"{f' ({answered:,} answered before)' if answered else ''}"
        )

    def _cost(self, tokens_in: int, tokens_out: int) -> float:
        return (tokens_in * self.chosen.price_in + tokens_out * self.chosen.price_out) / 1e6

    def _read_log(self) -> None:
        with self.log.open("rb") as file:
            for line in file:
                try:
                    answer = json.loads(line)
                    verdict(answer)
                    self._answers[answer["request"]] = answer
                except (ValueError, LookupError, TypeError):
                    pass  # a line that a kill cut off, or the settings of a run

    def ask(self, model: ChatModel, quiet: bool) -> Counter[str]:
        """Send the missing requests and write each answer to the log at once. Return {reason:
        number of requests without an answer}. Raises RunFailed if IN_A_ROW documents in a row get
        no label."""
        failed, lock, in_a_row = Counter[str](), threading.Lock(), 0
        prompt = text_digest(self.prompt)

        def write(**line: Any) -> None:
            line["time"] = datetime.now(timezone.utc).isoformat(timespec="seconds")
            with lock:
                file.write(json.dumps(line).encode() + b"\n")
                file.flush()

        def work(document: Document) -> int | str:
            try:
                answer = model.ask(self._body(document.text).encode())
            except (Failed, Refused) as error:
                with lock:
                    failed[str(error)] += 1
                return str(error)
            about = {"id": document.id, "request": document.request, "model": self.chosen.model}
            write(**about, prompt=prompt, **answer)
            self._answers[document.request] = answer
            return verdict(answer)

        with (
            self.log.open("ab+") as file,
            Progress("label", len(self.missing), quiet) as progress,
            ThreadPool(self.chosen.parallel) as threads,
        ):
            if file.seek(0, os.SEEK_END):
                file.write(b"\n")  # ends a line that a kill cut off
            settings = self.chosen.model_dump(exclude={"key_env"})
            write(settings=settings, prompt=prompt, prompt_text=self.prompt)
            try:
                for result in threads.imap_unordered(work, self.missing):
                    in_a_row = in_a_row + 1 if isinstance(result, str) else 0
                    if in_a_row == IN_A_ROW:
                        raise RunFailed(
                            f"stopped: {counted(in_a_row, 'document')} in a row got no label, the"
                            f" last one because of: {result}; {self.log} has the answers"
                        )
                    progress.update()
            finally:
                model.stop.set()
        return failed

    def write(self) -> dict[str, Any]:
        """Write the labels. Return the numbers of documents, labels and tokens, the number of
        labels by score, the number of unusable answers by reason, and the cost in USD."""
        lines, results, tokens = [], Counter[int | str](), [0, 0]
        for document in sorted(self.documents):
            answer = self._answers.get(document.request)
            if answer is None:
                continue
            result = verdict(answer)
            results[result] += 1
            tokens = [tokens[0] + answer["tokens_in"], tokens[1] + answer["tokens_out"]]
            if isinstance(result, int):
                row = {"id": document.id, "score": result, "text": document.text}
                lines.append(json.dumps(row, ensure_ascii=False) + "\n")
        if lines:
            write_text(self.out, "".join(lines))
        return {
            "documents": len(self.documents),
            "labels": len(lines),
            "scores": {n: results[n] for n in range(HIGHEST + 1)},
            "refused": {str(n): results[n] for n in sorted(results, key=str) if isinstance(n, str)},
            "tokens_in": tokens[0],
            "tokens_out": tokens[1],
            "cost": self._cost(*tokens),
        }
