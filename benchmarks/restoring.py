"""How well values come back where a model spells placeholders in its own way, and whether they leak.

python benchmarks/restoring.py grid      # spellings of placeholders, whole and in streams
python benchmarks/restoring.py texts     # recorded and marked texts, which hold no placeholder: what is restored is false
python benchmarks/restoring.py speed     # MB of text per second of processor time, beside tokenizing the same text
python benchmarks/restoring.py tools     # recorded calls of tools that reach outside, without and with a strict setting
"""

from __future__ import annotations

import gzip
import json
import sys
import time
from collections import Counter

from recordings import RECORDINGS

from ctxguard.pii.mask.links import Links
from ctxguard.pii.mask.pseudonyms import MemoryPseudonyms, Original
from ctxguard.pii.mask.unmask import UnmaskStream, restore, restore_arguments
from ctxguard.pii.placeholders import pseudonym

LABELS = ("EMAIL", "PERSON", "CREDIT_CARD", "DATE_OF_BIRTH", "IP")
OTHERS = ("PHONE", "ADDRESS", "IBAN", "SSN", "SECRET", "PASSWORD", "MAC", "NATIONAL_ID", "TAX_ID", "CODE", "DATE")
NUMBERS = (1, 12, 105)
SPELLINGS = {
    "as it is": lambda label, number: f"<{label}_{number}>",
    "small letters": lambda label, number: f"<{label.lower()}_{number}>",
    "capitalized": lambda label, number: f"<{label.capitalize()}_{number}>",
    "bold around": lambda label, number: f"**<{label}_{number}>**",
    "bold inside": lambda label, number: f"<**{label}_{number}**>",
    "code": lambda label, number: f"`<{label}_{number}>`",
    "escaped underscore": lambda label, number: f"<{label}\\_{number}>",
    "blank": lambda label, number: f"<{label.replace('_', ' ')} {number}>",
    "no-break space": lambda label, number: f"<{label}\u00a0{number}>",
    "line break": lambda label, number: f"<{label}\n_{number}>",
    "line break in label": lambda label, number: f"<{label[:2]}\n{label[2:]}_{number}>",
    "no end": lambda label, number: f"<{label}_{number}",
    "no beginning": lambda label, number: f"{label}_{number}>",
    "entities": lambda label, number: f"&lt;{label}_{number}&gt;",
}


def names(labels, count):
    known = MemoryPseudonyms()
    for label in labels:
        for number in range(count):
            known.placeholder(label, Original(f"§{label} {number}§"))
    return known


def written(number):
    return str(number) if number < 100 else f"{number // 100}_{number % 100:02d}"


def in_pieces(text, known, size=3):
    return "".join(UnmaskStream(known).over(text[at : at + size] for at in range(0, len(text), size)))


def grid():
    known = names(LABELS, 105)
    total = Counter()
    print(f"{'spelling':<22}{'whole':>8}{'stream':>8}")
    for name, spell in SPELLINGS.items():
        cells = [(label, number) for label in LABELS for number in NUMBERS]
        texts = [
            (f"Write to {spell(label, written(number))}, then.", f"§{label} {number - 1}§") for label, number in cells
        ]
        whole = sum(value in restore(text, known).text for text, value in texts)
        stream = sum(value in in_pieces(text, known) for text, value in texts)
        total += Counter(whole=whole, stream=stream, cells=len(texts))
        print(f"{name:<22}{whole / len(texts):>8.0%}{stream / len(texts):>8.0%}")
    print(f"{'all':<22}{total['whole'] / total['cells']:>8.1%}{total['stream'] / total['cells']:>8.1%}")


ANSWERS = {
    "placeholders alone": "{} ",
    "table": "| {} | {} | paid |\n",
    "prose": "I wrote to {} about the order, and it will be answered by tomorrow at the latest.\n",
    "beside links": "* **{}**: see [the page](https://evil.example/a), or (later) it\n",
    "in links": "https://evil.example/?q={}&",
}
NAMED = {"shop.example"}.__contains__
DELTA = 12
"""The number of characters in one piece of a stream."""


def speed():
    from ctxguard.tokens import find_counter

    size, count = 200_000, find_counter("o200k_base").count
    print(f"MB/s of {size / 1e6} MB of text; no host is named; streams come in pieces of {DELTA} characters")
    print(f"{'answer':<20}{'known':>7}{'tokenizing':>12}{'whole':>8}{'arguments':>11}{'stream':>8}{'no links':>10}")
    for known in (names(("EMAIL",), 10), names(("EMAIL",), 10_000)):
        for name, unit in ANSWERS.items():
            text, number = "", 0
            while len(text) < size:
                placeholder = pseudonym("EMAIL", 1 + number * 7_919 % len(known))
                text, number = text + unit.format(placeholder, placeholder), number + 1
            rows = json.dumps({"rows": [text[at : at + 400] for at in range(0, size, 400)]})
            pieces = [text[at : at + DELTA] for at in range(0, size, DELTA)]
            works = (
                lambda text=text: count(text),
                lambda text=text, known=known: restore(text, known, names_host=NAMED),
                lambda rows=rows, known=known: restore_arguments(rows, known, Links(NAMED)),
                lambda pieces=pieces, known=known: list(UnmaskStream(known, names_host=NAMED).over(pieces)),
                lambda text=text, known=known: restore(text, known),
            )
            figures = [size / 1e6 / min(spent(work) for _ in range(3)) for work in works]
            print(f"{name:<20}{len(known):>7}{figures[0]:>12.1f}{figures[1]:>8.1f}{figures[2]:>11.1f}", end="")
            print(f"{figures[3]:>8.1f}{figures[4]:>10.1f}", flush=True)


def spent(work):
    began = time.process_time()
    work()
    return time.process_time() - began


def texts_of(value):
    if isinstance(value, str):
        yield value
    for member in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from texts_of(member)


def texts():
    known = names((*LABELS, *OTHERS), 200)
    chars = false = 0
    for path in sorted([*RECORDINGS.glob("transcripts/*.gz"), *RECORDINGS.glob("pii/*.gz")]):
        for line in gzip.decompress(path.read_bytes()).splitlines():
            for text in texts_of(json.loads(line)):
                told = restore(text, known)
                chars += len(text)
                false += told.restored
                if told.restored:
                    place = next(at for at, (a, b) in enumerate(zip(text, told.text, strict=False)) if a != b)
                    print(f"{path.name}: {text[max(0, place - 20) : place + 30]!r}")
    print(f"{false} values restored in {chars / 1e6:.1f} million characters that hold no placeholder")


def tools():
    from ctxguard.artifacts import Kind
    from ctxguard.harness.recordings import read_sessions
    from ctxguard.pii import PEOPLE, STANDARD, Masker
    from ctxguard.pii.mask.unmask import gets_values

    settings = {"default": {}, "strict": {"outward": False}}
    counts = {name: Counter() for name in settings}
    masker = Masker(STANDARD | PEOPLE, strategy="pseudonymize")
    for session in read_sessions(RECORDINGS / "transcripts" / "agentdojo.jsonl.gz"):
        masking = masker.session()
        for artifact in session.adapter.read(session.native):
            mask = masking.own if artifact.kind is Kind.ASSISTANT else masking.text
            for _, text in artifact.texts():
                mask(text)
            for call in artifact.calls:
                masked = masking.own(call.arguments)
                for name, setting in settings.items():
                    masking.tools = setting
                    sent = masking.unmask_call(type(call)(call.name, masked, call.id)).arguments
                    is_outward = not gets_values(settings["strict"], call.name)
                    counts[name] += Counter(calls=1, outward=is_outward, masked=masked != call.arguments)
                    counts[name]["real values in outward calls"] += is_outward and masked != call.arguments == sent
                    counts[name]["real values in other calls"] += not is_outward and masked != call.arguments == sent
    for name, count in counts.items():
        print(f"{name}: {dict(count)}")


if __name__ == "__main__":
    {"grid": grid, "speed": speed, "texts": texts, "tools": tools}["".join(sys.argv[1:]) or "speed"]()
