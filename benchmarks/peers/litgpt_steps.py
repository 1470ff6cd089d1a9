"""Training steps of litgpt, for bench_pretrain.py; runs in its own environment, prints a JSON line.

litgpt_steps.py SETTINGS    JSON: vocab, layers, hidden, heads, kv_heads, mlp_hidden, context, rows,
steps. The body of litgpt's `pretrain.fit`, without Fabric, logging and validation: forward, chunked
cross-entropy, backward, clipping, AdamW (fused), its schedule.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path


def main() -> None:
    import torch
    from litgpt.config import Config
    from litgpt.model import GPT
    from litgpt.utils import chunked_cross_entropy

    settings = json.loads(sys.argv[1])
    torch.set_num_threads(1)
    torch.manual_seed(0)
    config = Config(
        block_size=settings["context"],
        padded_vocab_size=settings["vocab"],
        vocab_size=settings["vocab"],
        n_layer=settings["layers"],
        n_head=settings["heads"],
        n_embd=settings["hidden"],
        n_query_groups=settings["kv_heads"],
        head_size=settings["hidden"] // settings["heads"],
        intermediate_size=settings["mlp_hidden"],
        rotary_percentage=1.0,
        parallel_residual=False,
        bias=False,
        norm_class_name="RMSNorm",
        mlp_class_name="LLaMAMLP",
    )
    model = GPT(config)
    model.lm_head.weight = model.transformer.wte.weight
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.1, fused=True)
    draw = torch.Generator().manual_seed(0)
    shape = (settings["rows"], settings["context"] + 1)
    seconds = []
    for _ in range(settings["steps"]):
        data = torch.randint(0, 300, shape, generator=draw)
        began = time.process_time()
        inputs, targets = data[:, :-1].contiguous().long(), data[:, 1:].contiguous().long()
        loss = chunked_cross_entropy(model(inputs), targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        seconds.append(time.process_time() - began)
    status = Path("/proc/self/status").read_text()
    peak = int(status.split("VmHWM:")[1].split()[0]) / 1024
    count = sum(weight.numel() for weight in model.parameters())
    print(json.dumps({"seconds": seconds[1:], "peak_mib": peak, "parameters": count}))


if __name__ == "__main__":
    main()
