"""A format that leaves out a method fails when it is made, and the error names the method."""

from __future__ import annotations

import pytest

from ctxguard.formats.blocks import BlockFormat
from ctxguard.formats.format import Format, Weave

MISSING = [(kind, name) for kind in (Format, BlockFormat, Weave) for name in sorted(kind.__abstractmethods__)]


def test_what_a_format_must_have_is_abstract():
    assert Format.__abstractmethods__ == {"read", "write"}  # one that is neither counted nor streamed needs no more
    assert {"placed", "result", "calls", "created"} < BlockFormat.__abstractmethods__
    assert Weave.__abstractmethods__ == {"feed"}


@pytest.mark.parametrize(("kind", "name"), MISSING)
def test_a_format_without_a_method_cannot_be_made(kind, name):
    whole = dict.fromkeys(kind.__abstractmethods__, lambda self: None)
    incomplete = type(kind)("Own", (kind,), {n: f for n, f in whole.items() if n != name} | {"exact": False})
    with pytest.raises(TypeError, match=f"abstract method '?{name}'?"):
        incomplete()
