"""What is published is complete and says the same everywhere; `make wheel-test` tries the package itself."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
import release
import yaml
from markdown_pages import ROOT

from ctxguard import __version__

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
FORMS = sorted(path for path in (ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml") if path.stem != "config")


def supported():
    """The Python versions that the metadata names."""
    classifiers = " ".join(release.project()["classifiers"])
    return set(re.findall(r"Python :: (3\.\d+)", classifiers))


def test_every_place_states_the_same_version():
    assert set(release.versions().values()) == {__version__}


def test_every_package_says_that_it_is_typed():
    packages = [ROOT / "ctxguard", *(ROOT / "adapters").glob("ctxguard_*")]
    assert len(packages) > 5
    assert [package.name for package in packages if not (package / "py.typed").is_file()] == []


@pytest.mark.parametrize("last", ["ours", "theirs"])
def test_two_packages_in_one_folder_are_refused_and_the_error_says_what_to_do(tmp_path, last):
    both = tmp_path / "ctxguard"
    both.mkdir()
    for path in (ROOT / "ctxguard").iterdir():
        (both / path.name).symlink_to(path)
    (both / "hooks.py").write_text("")
    if last == "theirs":
        (both / "__init__.py").unlink()
        (both / "__init__.py").write_text('__version__ = "0.1.0"')
    for module in ("ctxguard", "ctxguard.cli", "ctxguard_openai")[last == "theirs" :]:
        code = f"import sys; sys.path[:0] = {[str(tmp_path), str(ROOT / 'adapters')]}; import {module}"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
        assert done.stderr.splitlines()[-1].startswith("ImportError: another project named ctxguard is installed")
        assert "pip uninstall ctxguard" in done.stderr


def test_a_release_waits_for_a_heading_in_the_changelog_and_for_the_right_version():
    found = "\n".join(release.obstacles("99.0.0"))
    for line in ("pyproject.toml says", "CITATION.cff says", "CHANGELOG.md has no heading `## [99.0.0] - YYYY-MM-DD`"):
        assert line in found


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_runs_what_the_makefile_has_under_pythons_that_are_supported(path):
    workflow = yaml.safe_load(path.read_text(encoding="utf-8"))
    targets = set(re.findall(r"^([a-z-]+):.*##", (ROOT / "Makefile").read_text(), re.MULTILINE))
    steps = [step for job in workflow["jobs"].values() for step in job["steps"]]
    for step in steps:
        assert "uses" in step or step["run"].split()[:1] == ["make"]
        assert "run" not in step or step["run"].split()[1] in targets
    named = {version for step in steps for version in step.get("with", {}).get("python-version", "").split()}
    assert named <= supported()
    assert all(job.get("permissions", workflow["permissions"]) for job in workflow["jobs"].values())


def test_every_supported_python_is_tested_before_a_merge():
    text = (ROOT / ".github" / "workflows" / "test.yml").read_text(encoding="utf-8")
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert set(re.search(r"^PYTHONS \?= (.*)$", makefile, re.MULTILINE)[1].split()) == supported()
    assert all(version in text for version in supported())


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.stem)
def test_an_issue_form_has_what_the_site_wants(path):
    form = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert {"name", "description", "body"} <= form.keys()
    asked = [part for part in form["body"] if part["type"] != "markdown"]
    assert len({part["id"] for part in asked}) == len(asked) > 0
    assert all(part["attributes"]["label"] for part in asked)
    assert {part["type"] for part in form["body"]} <= {"markdown", "textarea", "input", "dropdown"}


def test_every_action_of_a_workflow_is_named_by_its_commit():
    workflows = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
    used = [line for path in workflows for line in path.read_text().splitlines() if "uses:" in line]
    assert used
    assert not [line for line in used if not re.search(r"@[0-9a-f]{40} # v\d", line)], "a tag can be moved"


@pytest.mark.slow
def test_public_names_are_those_that_packages_list_and_those_of_their_stubs():
    found = set(release.public(release.griffe.load("ctxguard", search_paths=[ROOT])))
    assert {
        "ctxguard.pii.rule_sets.STANDARD",
        "ctxguard.checks.no_pii.NoPII",
        "ctxguard.stabilizer.Stabilizer",
    } <= found
    assert not [place for place in found if place.endswith("names_in_stub")]


def test_a_public_name_that_is_gone_since_the_latest_tag_is_told(tmp_path):
    def git(*words):
        release.subprocess.run(["git", "-c", "user.name=t", "-c", "user.email=t@t", *words], cwd=tmp_path, check=True)

    package = tmp_path / "shop"
    package.mkdir()
    (package / "inner.py").write_text("def order(item, count=1):\n    ...\n\n\ndef hidden(a):\n    ...\n")
    (package / "__init__.py").write_text(
        "from shop.inner import order\n\n__all__ = ['order', 'refund']\n\n\ndef refund(item):\n    ...\n\n\ndef own():\n    ...\n"
    )
    git("init", "-q")
    git("add", ".")
    git("commit", "-qm", "one")
    assert list(release.breaks(tmp_path, ["shop"])) == [], "there is nothing to compare with"
    git("tag", "v1.0.0")
    assert list(release.breaks(tmp_path, ["shop"])) == []
    (package / "__init__.py").write_text(
        "from shop.inner import order\n\n__all__ = ['order', 'refund']\n\n\ndef refund(item, why):\n    ...\n"
    )
    (package / "inner.py").write_text("def order(item):\n    ...\n")
    told = "\n".join(release.breaks(tmp_path, ["shop"]))
    assert "shop.refund" in told
    assert "order" in told
    assert "since v1.0.0" in told
    assert "own" not in told
    assert "hidden" not in told
