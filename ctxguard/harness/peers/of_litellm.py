"""litellm: `trim_messages`, which takes and gives Chat Completions messages."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import cast

os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # on import, it would fetch a list of prices

from litellm.utils import trim_messages

from ctxguard.harness.peers.course import Course, Message


class Trimmed:
    """Trim the history anew at each call."""

    def __init__(self, course: Course) -> None:
        self._course = course

    def send(self, end: int) -> object:
        """Return the trimmed messages."""
        return trim_messages(list(self._course.messages[:end]), model="gpt-4o", max_tokens=self._course.room)

    def chat(self, sent: object) -> Sequence[Message]:
        """Return them unchanged."""
        return cast("list[Message]", sent)
