"""The page of licenses lists every dependency with the license that its metadata state, and every one that is not permissive."""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import PackageNotFoundError, distribution

import pytest
from markdown_pages import ROOT
from packaging.requirements import Requirement

PAGE = (ROOT / "docs" / "licenses.md").read_text(encoding="utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = {name: needed for name, needed in PROJECT["optional-dependencies"].items() if name != "all"}
ALWAYS = dict(re.findall(r"^\| ([\w-]+) \| ([^|]+) \|$", PAGE.partition("## With an extra")[0], re.MULTILINE)[1:])
WITH_EXTRA = {
    extra: dict(pair.split(": ", 1) for pair in listed.split(", "))
    for extra, listed in re.findall(r"^\| `([\w-]+)` \| ([^|]+) \|$", PAGE, re.MULTILINE)
}
NOT_PERMISSIVE = re.compile(r"GPL|MPL|EPL|CDDL|Mozilla|EUPL")


def names(requirements):
    return {Requirement(each).name for each in requirements}


def stated(name):
    """Return all that the metadata of an installed package state about its license."""
    metadata = distribution(name).metadata
    classifiers = [each for each in metadata.get_all("Classifier", []) if each.startswith("License")]
    first_line = (metadata.get("License") or "").partition("\n")[0]  # some give the whole text, with what they bundle
    return " ".join([metadata.get("License-Expression") or "", first_line, *classifiers])


def brought(requirements):
    """Return the names of all installed packages that requirements bring along, their own included."""
    found, left = set(), [Requirement(each) for each in requirements]
    while left:
        one = left.pop()
        for extra in ("", *one.extras):
            if (one.name, extra) in found:
                continue
            found.add((one.name, extra))
            try:
                needed = map(Requirement, distribution(one.name).requires or ())
            except PackageNotFoundError:
                continue
            left += [each for each in needed if each.marker is None or each.marker.evaluate({"extra": extra})]
    return {name for name, _ in found}


def test_every_dependency_is_listed_and_no_other():
    assert ALWAYS.keys() == names(PROJECT["dependencies"])
    assert {extra: set(listed) for extra, listed in WITH_EXTRA.items()} == {
        extra: names(needed) for extra, needed in EXTRAS.items()
    }


@pytest.mark.parametrize(
    ("name", "license_"),
    sorted({*ALWAYS.items(), *(pair for listed in WITH_EXTRA.values() for pair in listed.items())}),
)
def test_a_license_is_the_one_that_is_stated(name, license_):
    try:
        told = stated(name)
    except PackageNotFoundError:
        pytest.skip(f"{name} is not installed")
    family = re.match(r"\d?[A-Z]+[a-z]*", license_)[0]  # LGPL, MIT, Apache, BSD, 0BSD
    assert family in told, f"{name}: {license_} on the page, {told!r} in the metadata"
    assert bool(NOT_PERMISSIVE.search(license_)) is bool(NOT_PERMISSIVE.search(told))


def test_whatever_is_not_permissive_is_named():
    _, _, table = PAGE.partition("## Which of them are not permissive")
    looked = 0
    for name in brought([*PROJECT["dependencies"], *(each for needed in EXTRAS.values() for each in needed)]):
        try:
            told = stated(name)
        except PackageNotFoundError:
            continue
        looked += 1
        if NOT_PERMISSIVE.search(told):
            assert re.search(rf"\b{re.escape(name)}\b", table), f"{name}: {told}"
    assert looked > 12
