"""litellm: `trim_messages` and `compress`, which take and give Chat Completions messages."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import cast

os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # on import, it would fetch a list of prices

from litellm.utils import trim_messages

from ctxguard.harness.contestants import ChatContestant, Message

MODEL = "gpt-4o"
"""Whose tokens it counts: the vocabulary of the bench."""


class Trimmed(ChatContestant):
    """Trim the history anew at each call."""

    def send(self, end: int) -> object:
        """Return the trimmed messages."""
        return trim_messages(list(self.course.messages[:end]), model=MODEL, max_tokens=self.course.available)


class Compressed(ChatContestant):
    """Replace what has little to do with the latest question by stubs, anew at each call.

    The schema of the tool by which a model would read the originals is not counted here.
    """

    def send(self, end: int) -> object:
        """Return the compressed messages; the target is the default, 70% of the trigger."""
        import litellm

        messages = [dict(message) for message in self.course.messages[:end]]
        made = litellm.compress(messages, model=MODEL, compression_trigger=self.course.available)
        return cast("Sequence[Message]", made["messages"])
