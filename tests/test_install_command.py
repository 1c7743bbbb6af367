"""The command that installs an extra is one that works where ctxguard came from."""

from __future__ import annotations

import json
import shlex
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

from ctxguard.settings import install_command

ROOT = Path(__file__).resolve().parents[1]
CLONE = {"url": "file:///home/me/my%20clone", "dir_info": {"editable": True}}
FOLDER = {"url": "file:///home/me/ctxguard", "dir_info": {}}
WHEEL = {"url": "file:///tmp/ctxguard_stabilizer-1.0-py3-none-any.whl", "archive_info": {}}
REMOTE = {"url": "https://example.com/x.whl", "archive_info": {}}
REPOSITORY = {"url": "https://example.com/ctxguard.git", "vcs_info": {"vcs": "git", "requested_revision": "v1"}}


class Installed:
    def __init__(self, origin):
        self.origin = origin

    def read_text(self, name):
        assert name == "direct_url.json"
        return None if self.origin is None else json.dumps(self.origin)


@pytest.mark.parametrize(
    ("origin", "words"),
    [
        (None, ["ctxguard-stabilizer[vault]"]),
        (CLONE, ["-e", "/home/me/my clone[vault]"]),
        (FOLDER, ["/home/me/ctxguard[vault]"]),
        (WHEEL, ["/tmp/ctxguard_stabilizer-1.0-py3-none-any.whl[vault]"]),
        (REMOTE, ["ctxguard-stabilizer[vault] @ https://example.com/x.whl"]),
        (REPOSITORY, ["ctxguard-stabilizer[vault] @ git+https://example.com/ctxguard.git@v1"]),
    ],
    ids=["index", "clone", "folder", "wheel", "address", "repository"],
)
def test_an_extra_is_added_the_way_ctxguard_was_installed(monkeypatch, origin, words):
    monkeypatch.setattr("importlib.metadata.distribution", lambda _: Installed(origin))
    assert shlex.split(install_command("vault")) == ["pip", "install", *words]


def test_sources_that_are_not_installed_are_named_as_a_clone(monkeypatch):
    def missing(name):
        raise PackageNotFoundError(name)

    monkeypatch.setattr("importlib.metadata.distribution", missing)
    assert shlex.split(install_command("vault")) == ["pip", "install", "-e", f"{ROOT}[vault]"]
