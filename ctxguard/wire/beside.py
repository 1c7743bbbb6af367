"""What a request holds beside its history: instructions, tools, schemas, settings.

Where a rule matches in their texts, these texts join the history for the time of the call, as one system artifact, so
that one value gets one placeholder in the whole request. What became of them is put back into the body.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ctxguard.adapting.editing import copy_with
from ctxguard.adapting.fields import Path
from ctxguard.artifacts import Artifact, Kind, Part
from ctxguard.errors import CheckFailedError
from ctxguard.wire.formats import Format
from ctxguard.wire.texts import Use, texts_of

__all__ = ["Beside"]

_BESIDE: Final = object()
"""The source of the artifact that stands for these texts."""
_MASK_TOKENS: Final = 8
"""Tokens by which a text may grow where values in it become placeholders."""


@dataclass(frozen=True, slots=True)
class Beside:
    """Stand for the texts beside a history in which a rule matches.

    Attributes:
        artifact: Holds them; None where there are none.
        paths: Their places in the body.
    """

    artifact: Artifact | None
    paths: tuple[Path, ...]

    @classmethod
    def of(cls, body: Mapping[str, object], kind: Format, is_found: Callable[[str], object]) -> Beside:
        """Return what stands for the texts beside the history of a request.

        Args:
            body: The request.
            kind: Its format.
            is_found: Tells whether a rule matches in a text.
        """
        rest = {key: value for key, value in body.items() if key not in kind.read_by_adapter}
        placed = [(path, text) for path, text, use in texts_of(rest) if use is Use.TEXT and is_found(text)]
        if not placed:
            return cls(None, ())
        parts = tuple(Part("text", text) for _, text in placed)
        return cls(Artifact(Kind.SYSTEM, parts, 0, source=_BESIDE), tuple(path for path, _ in placed))

    @property
    def growth(self) -> int:
        """Tokens by which masking may make the texts longer."""
        return _MASK_TOKENS * len(self.paths)

    def restored(
        self, body: Mapping[str, object], artifacts: Sequence[Artifact]
    ) -> tuple[Mapping[str, object], list[Artifact]]:
        """Return the body with what became of its texts, and the artifacts that belong to the history.

        Raises:
            CheckFailedError: A stage dropped the artifact or joined it with another, so that nobody can tell what the
                texts are now.
        """
        if self.artifact is None:
            return body, list(artifacts)
        mine = [artifact for artifact in artifacts if artifact.root.source is _BESIDE]
        texts = [] if len(mine) != 1 or isinstance(mine[0].content, str) else [part.text for part in mine[0].content]
        if len(texts) != len(self.paths):
            raise CheckFailedError(("SystemIntact: a stage dropped or joined what is sent beside the history",))
        changes: dict[Path, object] = dict(zip(self.paths, texts, strict=True))
        return copy_with(body, changes), [artifact for artifact in artifacts if artifact is not mine[0]]
