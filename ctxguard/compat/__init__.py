"""Helpers of the documents that stand on their own: `ContextManager`, `truncate_messages`, metrics."""
