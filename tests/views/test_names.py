"""Names of a text: whole, and of the text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxguard.views.names import ends_of, names_in


@pytest.mark.parametrize(
    "text",
    [
        "It has three points.I will go on.",
        "Type the commands.Before you start, look.",
        "Open the page.Upon opening it, wait.",
        "This is the script.I",
        "There is one flag.First we look.",
        "It is vulnerable.A patch is there.",
        "Is it done?Yes, it is.",
    ],
)
def test_the_beginning_of_the_next_sentence_belongs_to_no_name(text):
    assert names_in(text) == ()


@pytest.mark.parametrize("name", ["collections.OrderedDict", "models.User", "torch.Tensor", "np.array", "app.Config.A"])
def test_the_name_of_a_class_in_code_is_whole(name):
    assert names_in(f"x = {name}(1)\ny: {name}\n") == (name,)


@given(
    st.integers(0, 120), st.sampled_from(["nonexistent-repo--576460752303422331", "src/app/loader.py", "order_1749"])
)
def test_no_name_is_mangled_where_a_long_text_is_cut(shift, name):
    text = "y" * shift + " " + f"{name} " * 4_000
    assert set(names_in(text)) <= {name}
    assert len(ends_of(text)) <= 65_537
