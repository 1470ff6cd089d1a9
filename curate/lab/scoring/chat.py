"""Send requests to a language model with OpenAI's `/v1/chat/completions`: vLLM, llama.cpp, hosted.

The key comes only from an environment variable, and is removed from all that a server sends back,
so that the key reaches no file and no message.
"""

from __future__ import annotations

import json
import os
import re
import threading
from typing import Any
from urllib.parse import urlsplit

from curate.api.command_settings import QualityLabel
from curate.fetch.download import forbid_offline
from curate.fetch.sources import Failed, Http, Refused, error_line
from curate.fetch.transfer import Options
from llmcurate.base.errors import UsageError

KEY = "OPENAI_API_KEY"
THIS_MACHINE = ("localhost", "127.0.0.1", "::1")
MOST_BYTES = 1 << 20  # of an answer
EXPLAINED = (400, 404, 413, 422)  # HTTP statuses whose text is shown: not about the key
_ENDPOINT = re.compile(r"(https?://(?:[\w.-]+|\[[\da-f:.]+\])(?::\d{1,5})?)((?:/[\w.~%+-]*)*)")


def completions_url(endpoint: str) -> str:
    """Return the URL for requests. Raises UsageError if `endpoint` has a user or a query."""
    match = _ENDPOINT.fullmatch(endpoint)
    if match is None:
        raise UsageError(
            "--endpoint: give a URL such as http://localhost:8000/v1, without user or query; a key"
            " is read from the environment variable that --key-env names"
        )
    path = match[2].rstrip("/").removesuffix("/chat/completions")
    return f"{match[1]}{path or '/v1'}/chat/completions"


def key_for(url: str, variable: str | None) -> str:
    """Return the key to send to a URL, or "". The environment variable `variable`, or else KEY, has
    the key. The key in KEY may be for another server, so it is not sent unencrypted over a network.
    Raises UsageError if the key is missing. The message does not show `variable`, which a user may
    have set to the key itself."""
    parts = urlsplit(url)
    is_private = parts.scheme == "https" or parts.hostname in THIS_MACHINE
    key = os.environ.get(variable or KEY, "") if variable or is_private else ""
    named = "the environment variable that --key-env names" if variable else KEY
    if not key and (variable or parts.scheme == "https"):
        raise UsageError(f"{named} is not set: set it to the key for {parts.hostname}")
    if not (key.isascii() and key.isprintable()) or " " in key:
        raise UsageError(f"{named} has a character that no key has: set it again")
    return key


class ChatModel:
    """A client of a language model's server. Set the event `stop` to end a wait between two
    tries."""

    def __init__(self, chosen: QualityLabel) -> None:
        self._url = completions_url(chosen.endpoint)
        if urlsplit(self._url).hostname not in THIS_MACHINE:
            forbid_offline(self._url)
        self._key = key_for(self._url, chosen.key_env)
        self.stop = threading.Event()
        self._options = Options(chosen.tries, stop=self.stop)
        self._http = Http(chosen.parallel, chosen.timeout)
        self._headers = {"Content-Type": "application/json"}
        if self._key:
            self._headers["Authorization"] = f"Bearer {self._key}"

    def ask(self, body: bytes) -> dict[str, Any]:
        """Send a request (JSON) until the server answers it. Return a dictionary of `answer`,
        `finish` (why the model stopped), `tokens_in` and `tokens_out`. Raises Refused if the server
        refuses the request, or Failed after the last try."""
        options = self._options
        for number in range(1, options.tries):
            try:
                return self._ask_once(body)
            except Failed as error:
                wait = max(options.pause * 2 ** (number - 1), error.wait or 0)
                if wait > options.patience:
                    raise
                options.wait(wait)
        return self._ask_once(body)

    def _ask_once(self, body: bytes) -> dict[str, Any]:
        status, data = self._http.post(self._url, body, self._headers, MOST_BYTES)
        try:
            text = json.dumps(json.loads(data), ensure_ascii=False)
            text = text.replace(json.dumps(self._key)[1:-1] or "\0", "***")
        except (ValueError, RecursionError):
            text = "null"
        if status == 200:
            return _reply(json.loads(text))
        reason = f"the server answers {status}"
        if status in (401, 403):
            reason += f" (check the key in {KEY}, or in the variable that --key-env names)"
        if 300 <= status < 400:
            reason += " (a redirect: give the final URL as --endpoint)"
        raise Refused(f"{reason}: {error_line(Exception(text))}" if status in EXPLAINED else reason)


def _reply(values: Any) -> dict[str, Any]:
    try:
        choice, counts = values["choices"][0], values.get("usage") or {}
        return {
            "answer": (choice["message"]["content"] or "").encode("utf-8", "replace").decode(),
            "finish": str(choice.get("finish_reason") or ""),
            "tokens_in": int(counts.get("prompt_tokens") or 0),
            "tokens_out": int(counts.get("completion_tokens") or 0),
        }
    except (LookupError, TypeError, AttributeError, ValueError, OverflowError, RecursionError):
        raise Failed("the answer is not a chat completion in JSON") from None
