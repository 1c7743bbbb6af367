"""Say what keeps a version from being published: `make release-check VERSION=1.2.0`."""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[1]
LINKS = {"Changelog", "Documentation", "Issues", "Repository"}


def project():
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def versions():
    """The version by each place that states one."""
    code = (ROOT / "ctxguard" / "__init__.py").read_text(encoding="utf-8")
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    return {
        "pyproject.toml": project()["version"],
        "ctxguard/__init__.py": re.search(r'^__version__ = "(.+)"$', code, re.MULTILINE)[1],
        "CITATION.cff": str(citation["version"]),
    }


def obstacles(version):
    """Walk what is to be done before a version can be published, one line each."""
    yield from (f"{place} says {told}, not {version}" for place, told in versions().items() if told != version)
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    if re.search(rf"^## \[{re.escape(version)}\] - \d{{4}}-\d\d-\d\d$", changes, re.MULTILINE) is None:
        yield f"CHANGELOG.md has no heading `## [{version}] - YYYY-MM-DD`"
    missing = sorted(LINKS - project().get("urls", {}).keys())
    if missing:
        yield f"pyproject.toml names no address under [project.urls] for {', '.join(missing)}"
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    if "ADDRESS-OF-THIS-REPOSITORY" in readme:
        yield "README.md clones ADDRESS-OF-THIS-REPOSITORY; write the address"
    if re.search(r"\]\((?!https?:|#)[^)]*\)|(?:src|srcset)=\"(?!https?:)", readme) is not None:
        yield "README.md has relative links and pictures, which a package index cannot show; give their full addresses"


def main():
    found = list(obstacles(sys.argv[1]))
    sys.stdout.write("".join(f"{line}\n" for line in found) or "nothing keeps it from being published\n")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
