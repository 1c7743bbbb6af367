"""A store that refuses to be used in the code of a workflow."""

from __future__ import annotations

from ctxguard.stores import SQLiteStore


class WatchedStore(SQLiteStore):
    """A SQLite store.

    Args:
        path: The file.
        in_workflow_code: Function that returns whether the caller is in the code of a workflow and in none of its steps.
    """

    def __init__(self, path, in_workflow_code):
        super().__init__(path)
        self.in_workflow_code = in_workflow_code


def watched(name):
    def method(self, *args, **kwargs):
        assert not self.in_workflow_code(), f"{name} of a store was called in the code of a workflow"
        return getattr(super(WatchedStore, self), name)(*args, **kwargs)

    return method


for name in ("get", "put", "put_new", "delete", "delete_namespace", "keys"):
    setattr(WatchedStore, name, watched(name))
