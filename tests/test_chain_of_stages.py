"""A chain is a value: its parts, and what others need to know of its stages or to change in them."""

from __future__ import annotations

import pytest

from ctxguard import Artifact, Stabilizer
from ctxguard.draft import Chain
from ctxguard.pii import SSN, STANDARD, Masker
from ctxguard.policies import POLICIES
from ctxguard.stages import BoundToolOutput, MaskPII, StableWindow
from ctxguard.stages.arrangement import StartWithUser
from ctxguard.stores import MemoryStore


@pytest.mark.parametrize("policy", POLICIES)
def test_a_named_chain_arrives_fits_and_composes(policy):
    chain = Stabilizer.from_policy(policy, budget=2_000).stages
    assert (*chain.arrive, *chain.fit, *chain.compose) == tuple(chain)
    assert chain.fit
    assert all(stage.part == "fit" for stage in chain.fit)
    assert all(getattr(stage, "part", "") != "fit" for stage in (*chain.arrive, *chain.compose))


def test_a_chain_without_a_fit_only_arrives():
    chain = Chain([MaskPII(), BoundToolOutput()])
    assert chain.arrive == chain
    assert not chain.fit
    assert not chain.compose


def test_maskers_are_found_and_replaced_in_order():
    chain = Chain([MaskPII(SSN), StableWindow(), MaskPII(STANDARD)])
    assert [masker.detectors for masker in chain.maskers] == [(SSN,), (STANDARD,)]
    assert chain.detectors == [SSN, STANDARD]
    assert chain.with_maskers(lambda masker: masker) is chain
    hashed = Masker(SSN, strategy="partial")
    changed = chain.with_maskers(lambda masker: hashed if masker.detectors == (SSN,) else masker)
    assert changed.maskers[0] is hashed
    assert changed[1:] == chain[1:]
    assert chain.up_to_masking() == chain
    assert chain.from_masking() == chain
    assert Chain([StableWindow()]).up_to_masking() == ()


def test_a_store_is_given_to_those_that_have_none():
    own, shared = MemoryStore(), MemoryStore()
    chain = Chain([BoundToolOutput(store=own), StableWindow(), MaskPII()])
    assert chain.stores == [own]
    assert chain.with_store(shared).stores == [own, shared]
    assert chain.stores == [own]


def test_what_a_chain_has_is_not_added_again():
    chain = Chain([MaskPII()]).with_missing(StartWithUser(), MaskPII())
    assert [type(stage) for stage in chain] == [MaskPII, StartWithUser]
    assert chain.with_missing(StartWithUser()) == chain


def test_a_stage_of_ones_own_may_mask_and_decide():
    class Shout:
        part = "fit"

        def __init__(self, masker):
            self.masker = masker

        def with_masker(self, masker):
            return Shout(masker)

        def __call__(self, draft):
            return draft.revise(a.revised(content=a.text.upper()) for a in draft.artifacts)

    stabilizer = Stabilizer(500, stages=[Shout(Masker(SSN))])
    assert stabilizer.stages.detectors == [SSN]
    assert stabilizer.stages.fit == stabilizer.stages
    assert stabilizer.stabilize([Artifact("user", "hello")]).artifacts[0].text == "HELLO"
