"""headroom: `compress`, which takes and gives Chat Completions messages."""

from __future__ import annotations

from headroom import compress

from ctxguard.harness.contestants import ChatContestant


class Compressed(ChatContestant):
    """Compress the history anew at each call."""

    def send(self, end: int) -> object:
        """Return the compressed messages; its ML model, which would be downloaded, is off."""
        messages = [dict(message) for message in self.course.messages[:end]]
        return compress(messages, model="gpt-4o", model_limit=self.course.available, kompress_model="disabled").messages
