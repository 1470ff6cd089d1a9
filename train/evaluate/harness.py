"""lm-evaluation-harness with our models: its tasks, few-shot prompts and measures.

Importing this module registers the model class ``llmcurate`` in the harness. A folder of
transformers gets the same figures as under the harness's class ``hf``, within rounding.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterable, Sequence
from contextlib import redirect_stdout
from difflib import get_close_matches
from pathlib import Path
from typing import Any

if os.environ.get("LLMCURATE_OFFLINE"):  # before the libraries of the hub are loaded
    os.environ |= {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"}

from lm_eval import simple_evaluate
from lm_eval.api.instance import Instance
from lm_eval.api.model import TemplateLM
from lm_eval.api.registry import register_model
from lm_eval.models.utils import (
    handle_stop_sequences,
    normalize_gen_kwargs,
    postprocess_generated_text,
)
from lm_eval.tasks import TaskManager
from lm_eval.utils import get_rolling_token_windows, make_disjoint_window

from llmcurate.base.disk.units import counted
from llmcurate.base.errors import RunFailed, UsageError, first_line
from llmcurate.base.tokenizer_file import load_tokenizer
from train.data.chat import Chat
from train.device import autocast
from train.evaluate.judge import Judged, open_model
from train.evaluate.questions import continuations
from train.generate import Sampling, continue_ids
from train.loop.distributed import Ranks
from train.loop.evaluate import Scoring

MAX_TOKENS = 256  # of a continuation, if a task sets no number, as for the class hf
Request = tuple[tuple[str, str], list[int], list[int]]  # texts, ids before, ids to score


@register_model("llmcurate")
class HarnessModel(TemplateLM):
    """A decoder under lm-evaluation-harness. ``pretrained``: a loaded model, or the folder of a run
    or of transformers. ``max_length``: context in tokens, by default the model's.
    ``max_batch_size``: ignored. ``add_bos_token``: True if the ids with which texts began in
    training come before each text. As in training, special tokens spelled in a text are encoded as
    such."""

    def __init__(
        self,
        pretrained: str | Judged,
        *,
        device: str = "auto",
        batch_size: int | str = 8,
        max_batch_size: int | None = None,
        precision: str = "auto",
        checkpoint: str = "best",
        max_length: int | None = None,
        add_bos_token: bool = True,
    ) -> None:
        super().__init__()
        if not str(batch_size).isdecimal():
            raise UsageError(f"batch_size is {batch_size!r}: give a number of texts, such as 8")
        if not isinstance(pretrained, Judged):
            pretrained = open_model(Path(pretrained), device=device, which=checkpoint)
        self.judged, self.model = pretrained, pretrained.model
        self.tokenizer = load_tokenizer(pretrained.tokenizer_file)
        self.tokenizer.encode_special_tokens = False
        self.batch, self.precision = int(batch_size), precision
        self.max_length = min(max_length or self.model.config.context, self.model.config.context)
        self._device = self.model.embedding.weight.device
        self._before = [*self.model.special.before] if add_bos_token else []
        self._chat: Chat | None = None

    @property
    def eot_token_id(self) -> int:
        end = self.model.special.end
        return self.prefix_token_id if end is None else end

    @property
    def prefix_token_id(self) -> int:
        if self.judged.begin is None:
            raise UsageError(
                f"{self.judged.folder}: no token of its tokenizer begins or ends a text"
            )
        return self.judged.begin

    def tok_encode(
        self, string: str, add_special_tokens: bool | None = None, **_: Any
    ) -> list[int]:
        """Return the ids of a text. Before them come the ids with which texts began in training,
        unless ``add_special_tokens`` is False or the text's ids begin with them already."""
        ids: list[int] = self.tokenizer.encode(string, add_special_tokens=False).ids
        if add_special_tokens is False or ids[: len(self._before)] == self._before:
            return ids
        return [*self._before, *ids]

    def _loglikelihood_tokens(
        self, requests: Sequence[Request], disable_tqdm: bool = False, **_: Any
    ) -> list[tuple[float, bool]]:
        longest = max((len(after) for *_, after in requests), default=0)
        if longest > self.max_length:
            number = counted(longest, "token")
            raise UsageError(f"{number} to score, the context is {self.max_length}")
        scoring = Scoring(Ranks(device=self._device), self.batch, self.precision)
        pairs = [(before, after) for _, before, after in requests]
        nats, exact = continuations(self.model, pairs, scoring, self.max_length)
        return [(-float(loss), bool(hit)) for loss, hit in zip(nats, exact, strict=True)]

    def loglikelihood_rolling(
        self, requests: list[Instance], disable_tqdm: bool = False
    ) -> list[float]:
        windows: list[Request] = []
        counts = []
        for (text,) in (request.args for request in requests):
            rolling = get_rolling_token_windows(
                token_list=self.tok_encode(text),
                prefix_token=self.prefix_token_id,
                max_seq_len=self.max_length,
                context_len=1,
            )
            own = [(("", ""), *make_disjoint_window(window)) for window in rolling]
            windows += own
            counts.append(len(own))
        scores = iter(self._loglikelihood_tokens(windows))
        return [sum(next(scores)[0] for _ in range(count)) for count in counts]

    def generate_until(self, requests: list[Instance], disable_tqdm: bool = False) -> list[str]:
        """Continue texts up to their stop strings. Texts with equal settings run together."""
        texts = [""] * len(requests)
        alike: dict[str, list[int]] = {}
        for number, request in enumerate(requests):
            alike.setdefault(repr(request.args[1]), []).append(number)
        for numbers in alike.values():
            prompts = [requests[number].args[0] for number in numbers]
            settings = normalize_gen_kwargs(requests[numbers[0]].args[1], MAX_TOKENS)
            for number, text in zip(numbers, self._continue(prompts, settings), strict=True):
                texts[number] = text
        return texts

    def _continue(self, prompts: list[str], settings: dict[str, Any]) -> Iterable[str]:
        most = settings["max_gen_toks"]
        if most >= self.max_length:
            number = counted(most, "token")
            raise UsageError(f"{number} to write, the context is {self.max_length}")
        stop = handle_stop_sequences(settings.get("until"), self._text([self.eot_token_id]))
        sampling = Sampling(
            temperature=settings.get("temperature", 0.0),
            top_k=settings.get("top_k", 0),
            top_p=settings.get("top_p", 1.0),
        )

        def stops(written: list[int]) -> bool:
            return any(end in self.tokenizer.decode(written) for end in stop if end)

        with autocast(self._device, self.precision):
            continued = continue_ids(
                self.model,
                self.tokenizer,
                [self.tok_encode(prompt)[most - self.max_length :] for prompt in prompts],
                max_tokens=most,
                sampling=sampling,
                seed=0,
                batch=self.batch,
                stops=stops,
            )
        for written, _ in continued:
            yield postprocess_generated_text(self.tokenizer.decode(written), stop, None)

    def _text(self, ids: list[int]) -> str:
        text: str = self.tokenizer.decode(ids, skip_special_tokens=False)
        return text

    @property
    def tokenizer_name(self) -> str:
        return str(self.judged.tokenizer_file).replace("/", "__")

    def chat_template(self, chat_template: bool | str = False) -> str | None:
        """Return where the tokenizer's chat template is, or None if no template is to be used."""
        if not chat_template:
            return None
        self._chat = Chat(self.judged.tokenizer_file)
        return self._chat.where

    def apply_chat_template(
        self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True
    ) -> str:
        chat = self._chat or Chat(self.judged.tokenizer_file)
        ids, _ = chat.encode(chat_history, prompt=add_generation_prompt)
        return self._text(ids.tolist())


def run_tasks(
    model: HarnessModel,
    tasks: Sequence[str],
    *,
    folder: Path | None = None,
    few_shot: int | None = None,
    limit: int | None = None,
    seed: int = 0,
) -> dict[str, dict[str, Any]]:
    """Return the measures of each task and group by name, as the harness gives them, with their
    standard errors. ``folder``: where task files of one's own are. ``few_shot``: examples before
    each question, by default what the task says. ``limit``: questions of each task, by default all.
    Raises ``LlmcurateError`` for an unknown task or one whose data cannot be read."""
    manager = TaskManager(include_path=folder, include_defaults=False)
    if not {*tasks} <= {*manager.all_subtasks}:  # then thousands of files of the harness are read
        manager = TaskManager(include_path=folder)
    for task in tasks:
        if not manager.match_tasks([task]):
            close = ", ".join(get_close_matches(task, manager.all_tasks)) or "none"
            raise UsageError(
                f"--task {task}: not a task of lm-evaluation-harness, nor in --task-folder;"
                f" similar: {close}"
            )
    logging.getLogger("lm_eval").setLevel(logging.ERROR)
    try:
        with redirect_stdout(sys.stderr):  # it prints notes beside its results
            results = simple_evaluate(
                model=model,
                tasks=manager.match_tasks([*tasks]),
                num_fewshot=few_shot,
                limit=limit,
                task_manager=manager,
                log_samples=False,
                fewshot_random_seed=seed,
            )
    except (OSError, ValueError, KeyError) as error:
        reason = first_line(error)
        if isinstance(error, ConnectionError):
            reason += "; --task-folder DIR takes tasks with local data"
        raise RunFailed(f"--task {', '.join(tasks)}: {reason}") from error
    assert results is not None
    measures: dict[str, dict[str, Any]] = results["results"]
    return measures
