"""The search for names that the conversation had introduced before a text was masked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ctxguard.artifacts import Artifact
from ctxguard.draft import Draft
from ctxguard.pii.detect.echo import Names
from ctxguard.tokens.text_cache import TextCache

if TYPE_CHECKING:
    from ctxguard.pii import RuleSet, Span


class KnownNames:
    """Find names in the result that earlier messages of the history introduced.

    A text is masked when it arrives, and again at the last cut if it is older. It is therefore searched for the names
    that the history had introduced by the later of the two; a text that a stage wrote, for those introduced by the cut.
    The names are computed here, from the unmasked history, independently of the stage that masked.

    Args:
        rules: the rules that recognize where a name is introduced.
        read: cache of the names that each text introduces.
        clean: cache of texts that contain none of the given names.
        draft: the finished draft.
    """

    def __init__(
        self, rules: RuleSet, read: TextCache[Sequence[str]], clean: TextCache[tuple[str, ...]], draft: Draft
    ) -> None:
        self._rules = rules
        self._clean = clean
        self._names = Names()
        self._forms: list[str] = []
        self._counts: list[int] = []
        self._signs: dict[int, tuple[str, ...]] = {}
        self._places = {id(artifact.root): place for place, artifact in enumerate(draft.history)}
        for artifact in draft.history:
            for _, text in artifact.texts():
                values = read.get(text)
                if values is None:
                    values = rules.names(text)
                    read.put(text, values)
                self._forms += self._names.learn(values)
            self._counts.append(len(self._forms))
        self._cut_at = -1 if draft.cut_at is None else draft.cut_at

    def find(self, artifact: Artifact, text: str) -> Sequence[Span]:
        """Return the spans of introduced names in a text of an artifact."""
        place = max(self._places.get(id(artifact.root), -1), self._cut_at)
        known = self._counts[place] if 0 <= place < len(self._counts) else 0
        if not known:
            return ()
        sign = self._signs.setdefault(known, tuple(self._forms[:known]))
        if self._clean.get(text) == sign:
            return ()
        spans = self._rules.known(text, self._names, until=known)
        if not spans:
            self._clean.put(text, sign)
        return spans
