"""litellm: `trim_messages`, which takes and gives Chat Completions messages."""

from __future__ import annotations

import os

os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # on import, it would fetch a list of prices

from litellm.utils import trim_messages

from ctxguard.harness.contestants import ChatContestant


class Trimmed(ChatContestant):
    """Trim the history anew at each call."""

    def send(self, end: int) -> object:
        """Return the trimmed messages."""
        return trim_messages(list(self.course.messages[:end]), model="gpt-4o", max_tokens=self.course.available)
