"""Count what the standard rules find in texts and programs of strangers, per MB and label, for a person to judge.

    python benchmarks/innocent.py FOLDER… [--half even|odd] [--show LABEL…|all] [--sample 100] [--processes 2]

Whatever lies directly in one of the folders is a source: a package, a project, or a file. Its name decides to which
half it belongs, so that rules can be chosen on one half, and confirmed on the other, whose examples nobody has read.
Files of nulls are passed over, compressed ones are read, and a text that was read before is not counted again.

With `--show`, different findings are printed with what stands around them. No program can say which of them are false:
the e-mail address of an author is a finding, and true.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import random
import zlib
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ctxguard.pii import STANDARD

LONGEST: Final = 1_500_000
"""How many bytes of a file are read."""
HALVES: Final = ("even", "odd")
AROUND: Final = (60, 40)
"""How many characters before and after a finding are shown."""
UNPRINTED: Final = 0.03
"""The largest share of unprintable characters in a text."""
CHUNK: Final = 64


@dataclass(frozen=True, slots=True)
class Finding:
    """A finding, with its source, its file, and the characters around it."""

    label: str
    value: str
    source: str
    file: str
    before: str
    behind: str


def half_of(source: str) -> str:
    """Return the half that a source belongs to, by its name in small letters without a version behind a hyphen."""
    name = source.lower().partition("-")[0]
    return HALVES[zlib.crc32(name.encode()) % 2]


def files_in(folders: list[Path], half: str | None) -> Iterator[tuple[str, str]]:
    """Yield the source and the path of each file; sources of one half, or all of them."""
    for folder in folders:
        for source in sorted(folder.iterdir()):
            if half is None or half_of(source.name) == half:
                files = sorted(source.rglob("*")) if source.is_dir() else [source]
                yield from ((source.name, str(file)) for file in files if file.is_file() and not file.is_symlink())


def text_of(file: Path) -> str:
    """Return the text of a file; an empty one if it holds no text."""
    raw = file.read_bytes()
    if file.suffix == ".gz":
        try:
            raw = gzip.decompress(raw)
        except (OSError, EOFError, zlib.error):
            return ""
    raw = raw[:LONGEST]
    if b"\0" in raw:
        return ""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        text = raw.decode("latin-1")
    unprinted = sum(not (char.isprintable() or char.isspace()) for char in text)
    return text if unprinted <= UNPRINTED * len(text) else ""


def searched(place: tuple[str, str]) -> tuple[int, bytes, list[Finding]]:
    """Return the size of a file's text in characters, its digest, and what is found in it."""
    source, file = place
    text = text_of(Path(file))
    before, behind = AROUND
    found = [
        Finding(
            span.label,
            text[span.start : span.end],
            source,
            file,
            text[max(0, span.start - before) : span.start],
            text[span.end : span.end + behind],
        )
        for span in STANDARD.find(text)
    ]
    return len(text), hashlib.blake2b(text.encode(errors="replace"), digest_size=16).digest(), found


def show(found: list[Finding], labels: list[str], sample: int) -> None:
    """Print different findings with these labels and how often each is found, at most so many of each label."""
    for label in sorted({one.label for one in found}):
        if "all" in labels or label in labels:
            times = Counter((one.source, one.value) for one in found if one.label == label)
            different = list({(one.source, one.value): one for one in found if one.label == label}.values())
            print(f"\n== {label}: {len(different)} different")
            drawn = random.Random(3).sample(different, min(sample, len(different)))
            for one in sorted(drawn, key=lambda one: (one.source, one.file)):
                count = times[one.source, one.value]
                print(f"{count}x {one.file}: {one.before!r} | {one.value!r} | {one.behind!r}")


def main() -> None:
    """Search the files of the folders, and print how often each label is found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("--half", choices=HALVES)
    parser.add_argument("--show", nargs="+", default=[], metavar="LABEL")
    parser.add_argument("--sample", type=int, default=100)
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    places = list(files_in(options.folders, options.half))
    chars, files, seen = 0, 0, set()
    found: list[Finding] = []
    with ProcessPoolExecutor(options.processes) as pool:
        for size, digest, more in pool.map(searched, places, chunksize=CHUNK):
            if size and digest not in seen:
                seen.add(digest)
                chars, files = chars + size, files + 1
                found += more
    counts = Counter(one.label for one in found)
    different = Counter(label for label, _, _ in {(one.label, one.value, one.source) for one in found})
    print(f"{files} files, {chars / 1e6:.1f} MB of characters, {options.half or 'both halves'}")
    print(f"{'label':<24}{'findings':>9}{'per MB':>8}{'different':>11}{'per MB':>8}")
    for label, count in [*counts.most_common(), ("all", sum(counts.values()))]:
        distinct = different[label] if label != "all" else sum(different.values())
        print(f"{label:<24}{count:>9}{count / chars * 1e6:>8.2f}{distinct:>11}{distinct / chars * 1e6:>8.2f}")
    show(found, options.show, options.sample)


if __name__ == "__main__":
    main()
