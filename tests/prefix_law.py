"""Law 5: between cuts prompts only grow behind the newest exchange of the call before."""

from __future__ import annotations


def grown(previous, result):
    """Return the prompt of a result, once it is sure that it extends the previous one, or differs where its cut says."""
    now = [(a.kind, a.content, a.calls) for a in result.artifacts]
    if previous is not None and now[: len(previous)] != previous:
        cut = result.report.cut
        assert cut is not None, "the prefix changed without a word"
        assert now[: cut.position] == previous[: cut.position]
        newest = max((n for n, (kind, _, _) in enumerate(previous) if kind == "assistant"), default=0)
        # What was new in the call before may be sent in another form once; what stands before it may not.
        assert cut.fresh or cut.position >= newest, "the prefix changed without a cut"
    return now
