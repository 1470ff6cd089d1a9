"""Our FlashAttention-2 (Dao 2023) in Triton, forward and backward, for every mask of the trainer
but T5's learned bias.

A query sees one interval of keys, which causality, window and document bound, and besides it the
sinks and the prefix of its document; a key is seen by one interval of queries. So from a few
numbers a position each block knows which blocks it needs, and which of them need no mask; the
others are never read. spans.py has these numbers, ranges.py the intervals, forward.py and
backward.py the kernels, op.py their block sizes and the operator that ``torch.compile`` keeps in
its graph.
"""
