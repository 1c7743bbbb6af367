"""Say what keeps a version from being published: `make release-check VERSION=1.2.0`."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import griffe
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


def git(*words, root=ROOT):
    return subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, check=False).stdout.split()


def public(module):
    """Walk the places of what a module and those below it list in `__all__` or a stub: the reference names nothing else."""
    in_stub = (name for name, member in module.members.items() if member.is_alias and name != "names_in_stub")
    for name in in_stub if "names_in_stub" in module.members else module.exports or ():
        if str(name) in module.members:
            member = module.members[str(name)]
            yield member.target_path if member.is_alias else member.path
    for inner in module.modules.values():
        if not inner.is_alias:
            yield from public(inner)


def breaks(root=ROOT, packages=None):
    """Walk what a user of the latest tagged version would miss, one line each."""
    tags = git("tag", "--list", "v*", "--sort=-version:refname", root=root)
    if not tags:
        return
    for place in packages or (
        "ctxguard",
        *sorted(f"adapters/{p.name}" for p in (root / "adapters").glob("ctxguard_*")),
    ):
        folder, _, name = place.rpartition("/")
        if not git("ls-tree", tags[0], f"{place}/", root=root):
            continue  # a new package
        was = griffe.load_git(name, ref=tags[0], repo=root, search_paths=[folder or "."], resolve_aliases=True)
        now = griffe.load(name, search_paths=[root / folder], resolve_aliases=True)
        listed = {f"{path}." for path in public(was)}
        for breakage in griffe.find_breaking_changes(was, now):
            if any(f"{breakage.obj.path}.".startswith(path) for path in listed):
                yield f"{breakage.obj.path}: {breakage.kind.value.lower()} since {tags[0]}"


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
    for place in ("README.md", ".github/ISSUE_TEMPLATE/config.yml"):
        if "ADDRESS-OF-THIS-REPOSITORY" in (ROOT / place).read_text(encoding="utf-8"):
            yield f"{place} names ADDRESS-OF-THIS-REPOSITORY; write the address"
    if "ACCOUNT-OF-THE-MAINTAINERS" in (ROOT / ".github" / "CODEOWNERS").read_text(encoding="utf-8"):
        yield ".github/CODEOWNERS names ACCOUNT-OF-THE-MAINTAINERS; write the account"
    if re.search(r"\]\((?!https?:|#)[^)]*\)|(?:src|srcset)=\"(?!https?:)", readme) is not None:
        yield "README.md has relative links and pictures, which a package index cannot show; give their full addresses"


def main():
    found, missed = list(obstacles(sys.argv[1])), list(breaks())
    if missed and not sys.argv[1].endswith(".0"):
        found.append("a patch version takes nothing away, and this one does")
    sys.stdout.write("".join(f"in the change log? {line}\n" for line in missed))
    sys.stdout.write("".join(f"{line}\n" for line in found) or "nothing keeps it from being published\n")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
