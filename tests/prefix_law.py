"""Law 5: between cuts prompts only grow."""

from __future__ import annotations


def grown(previous, result):
    """Return the prompt of a result, once it is sure that it extends the previous one, or differs where its cut says."""
    now = [(a.kind, a.content, a.calls) for a in result.artifacts]
    if previous is not None and now[: len(previous)] != previous:
        cut = result.report.cut
        assert cut is not None, "the prefix changed without a cut"
        assert cut.fresh, "the prefix changed without a cut"
        assert now[: cut.position] == previous[: cut.position]
    return now
