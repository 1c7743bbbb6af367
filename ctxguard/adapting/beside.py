"""Let other texts of a request join its history for the time of one call.

Frameworks and request bodies keep instructions, tools, schemas and settings apart from the messages, where no stage
would see them. Those texts in which a rule matches join the history as one system artifact: so the chain masks them,
one value gets one placeholder in the whole request, and the checks cover them. The results are then put back in their
places.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from ctxguard.adapting.fields import Path
from ctxguard.artifacts import Artifact, Field, Kind
from ctxguard.errors import CheckFailedError

_BESIDE: Final = object()
"""The source of the artifact that contains these texts."""
_MASK_TOKENS: Final = 8
"""Tokens by which a text may grow if values in it become placeholders."""


@dataclass(frozen=True, slots=True)
class Beside:
    """The texts of a request outside its history.

    Attributes:
        artifact: Contains the texts; None if there are none.
        paths: The place of each field of the artifact; None if it cannot be changed.
    """

    artifact: Artifact | None
    paths: tuple[Path | None, ...]

    @classmethod
    def of(cls, placed: Iterable[tuple[Path | None, Field]], *, instructions: str | None = None) -> Beside:
        """Return an instance for some texts.

        Args:
            placed: The texts with their places.
            instructions: A system prompt that joins the history as the content of the artifact, and is counted there.
        """
        found = list(placed)
        if not found and instructions is None:
            return cls(None, ())
        return cls(_artifact(instructions, tuple(field for _, field in found)), tuple(path for path, _ in found))

    @property
    def growth(self) -> int:
        """Tokens by which masking may make the texts longer."""
        return _MASK_TOKENS * len(self.paths)

    def joined(self, history: Sequence[Artifact]) -> Sequence[Artifact]:
        """Return the history with the artifact in front."""
        return history if self.artifact is None else [self.artifact, *history]

    def restored(self, artifacts: Sequence[Artifact]) -> tuple[dict[Path, object], str, list[Artifact]]:
        """Return the changed texts by their places, the instructions that joined, and the history.

        Raises:
            CheckFailedError: A stage dropped the artifact or joined it with another, so that the new texts are unknown.
        """
        if self.artifact is None:
            return {}, "", list(artifacts)
        mine = [artifact for artifact in artifacts if artifact.root.source is _BESIDE]
        if len(mine) != 1 or len(mine[0].fields) != len(self.paths):
            raise CheckFailedError(("SystemIntact: a stage dropped or joined what is sent beside the history",))
        changes: dict[Path, object] = {
            path: now.text
            for path, was, now in zip(self.paths, self.artifact.fields, mine[0].fields, strict=True)
            if path is not None and was.text != now.text
        }
        return changes, mine[0].text, [artifact for artifact in artifacts if artifact is not mine[0]]


# the very same artifact at every call, by which a stabilizer finds earlier results
@lru_cache(maxsize=256)
def _artifact(instructions: str | None, fields: tuple[Field, ...]) -> Artifact:
    # tools and settings are counted with the request as a whole: the artifact must not count them again
    tokens = 0 if instructions is None else None
    return Artifact(Kind.SYSTEM, instructions or "", tokens, fields=fields, source=_BESIDE)
