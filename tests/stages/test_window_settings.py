"""A setting of the window is written once: whoever takes it has its name, its default, its range, and its error."""

from __future__ import annotations

from dataclasses import fields

import pytest

from ctxguard import Stabilizer
from ctxguard.config.models import StabilizerConfig
from ctxguard.errors import ConfigError
from ctxguard.policies import POLICIES, ChainOptions, ChainSettings, policy_settings
from ctxguard.stages import BoundToolOutput, RecallRelevant, StableWindow, WindowSettings
from ctxguard.stages.fold import WindowOptions
from ctxguard.strategies import PruningRules

WRONG = {"target": 0, "trail": 1, "output_share": 2, "on_overflow": "cut"}
RIGHT = {"target": 0.5, "trail": 0.2, "output_share": 0.3, "on_overflow": "bound"}
DOORS = {
    "WindowSettings": WindowSettings,
    "StableWindow": StableWindow,
    "Stabilizer": lambda **given: Stabilizer(100, **given),
    "configuration": StabilizerConfig,
    **{
        name: lambda name=name, **given: Stabilizer.from_policy(name, budget=100, **given)
        for name in POLICIES
        if "target" in policy_settings(name)
    },
}


def of(made):
    """Return the settings of the window in whatever a door has made."""
    if isinstance(made, Stabilizer):
        [made] = [stage for stage in made.stages if isinstance(stage, StableWindow)]
    held = made.settings if isinstance(made, StableWindow) else made
    return {each.name: getattr(held, each.name) for each in fields(WindowSettings)}


def test_every_setting_is_tried():
    assert {each.name for each in fields(WindowSettings)} == WRONG.keys() == RIGHT.keys()
    assert len(DOORS) > 8


@pytest.mark.parametrize("door", DOORS)
def test_a_door_has_the_defaults_and_takes_each_setting(door):
    assert of(DOORS[door]()) == of(WindowSettings())
    assert of(DOORS[door](**RIGHT)) == RIGHT


@pytest.mark.parametrize("setting", WRONG)
@pytest.mark.parametrize("door", DOORS)
def test_a_value_out_of_range_is_refused_by_name(door, setting):
    with pytest.raises(ConfigError, match=setting) as caught:
        DOORS[door](**{setting: WRONG[setting]})
    assert caught.value.setting.partition(".")[0] == setting
    assert "\n" not in str(caught.value)


SHARES = {
    "target": lambda value: WindowSettings(target=value),
    "trail": lambda value: WindowSettings(trail=value),
    "output_share": lambda value: WindowSettings(output_share=value),
    "share": lambda value: BoundToolOutput(share=value),
    "share of recall": RecallRelevant,
    "threshold": lambda value: RecallRelevant(threshold=value),
    "importance_threshold": lambda value: PruningRules(importance_threshold=value),
}


@pytest.mark.parametrize("value", [-0.1, 1.5, float("nan"), float("inf"), True, "0.5", [0.5]], ids=repr)
@pytest.mark.parametrize("door", SHARES)
def test_what_is_no_share_is_refused_by_name(door, value):
    with pytest.raises(ConfigError, match=f"^{door.partition(' ')[0]} is a share") as caught:
        SHARES[door](value)
    assert caught.value.setting == door.partition(" ")[0]
    SHARES[door](0.5)


def test_a_name_that_is_no_setting_is_refused_with_the_nearest():
    with pytest.raises(ConfigError, match=r"unknown setting 'tarhet' \(did you mean 'target'\?\)"):
        StableWindow(tarhet=0.5)


@pytest.mark.parametrize(("options", "settings"), [(WindowOptions, WindowSettings), (ChainOptions, ChainSettings)])
def test_type_checkers_are_told_each_name_and_type(options, settings):
    assert options.__annotations__.keys() == {each.name for each in fields(settings)}
    own = {each.name: each.type for each in fields(settings)}
    assert {name: hint.__forward_arg__ for name, hint in options.__annotations__.items()} == own
