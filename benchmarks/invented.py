"""Does everything that still holds stand in the context after one, two, and four cuts?

    python benchmarks/invented.py [--budget 4k] [--only NAME] [--code FOLDER] [--set trail=0.1,target=0.7]

Sixty invented sessions, the same in every run, with facts buried in them: constraints, decisions, reversals of
decisions (what was said before no longer holds), and entities that a user, the assistant, or a tool names once. They
are in eight languages, some with tools and some without, some begin with a greeting; all their texts are made up for
this. The calls at which our own window has cut once, twice, and four times are judged for every contestant of
`ctxguard bench`: a fact holds if its value stands in a message within 160 characters of the thing that it is about; a
reversed decision only if nothing behind it says the old value again. The calls are those at which the default
policy cuts, so that everyone is judged at the same ones.

`--save FILE` writes the sessions as recordings, for `ctxguard replay`, `ctxguard bench`, and `benchmarks/quality.py`.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

HERE = Path(__file__).resolve().parents[1]
SESSIONS = 60
TURNS = 84
STAGES = (1, 2, 4)
NEAR = 160
KINDS = ("constraint", "decision", "reversal", "entity")


@dataclass(frozen=True)
class Fact:
    """Hold one fact: the message that says it, the thing it is about, its value, and what it replaces."""

    kind: str
    position: int
    thing: str
    value: str
    old: str = ""


LANGUAGES = {
    "en": {
        "things": ["kiln", "loom", "bell tower", "orchard gate", "brass sextant", "tide mill", "apiary", "glass dome"],
        "values": [
            "smoked amber",
            "left-hand thread",
            "two coats of beeswax",
            "the narrow spindle",
            "cold quenching",
            "a double sluice",
            "oak pegs",
            "felt washers",
            "river sand",
            "the copper ferrule",
        ],
        "constraint": [
            "Never run the {t} with anything but {v}.",
            "From now on the {t} must be served with {v}, always.",
            "Under no circumstances touch the {t} without {v}.",
            "You must not open the {t} before it has {v}.",
        ],
        "decision": ["We have decided that the {t} gets {v}.", "Let us settle on {v} for the {t}."],
        "reversal": [
            "Correction: the {t} gets {v} after all, not {o}.",
            "I changed my mind about the {t}: {v} instead of {o}.",
        ],
        "entity": ["The {t} is registered as {v}.", "For the files: the {t} goes by the name {v}."],
        "greeting": "Hello there, good morning!",
        "task": "Please help me to bring the old harbor museum back into shape, station by station.",
        "filler": [
            "The morning fog took its time again.",
            "Somebody left a wheelbarrow in the hall.",
            "The volunteers want to begin after lunch.",
            "We had visitors from the parish council.",
            "There is still chalk dust everywhere.",
            "The ladder was returned in good order.",
            "Rain is expected toward evening.",
            "Nobody has swept the lower landing.",
        ],
        "ask": "What does the next page of the survey say?",
        "reply": "The survey page lists ordinary wear and nothing urgent.",
    },
    "de": {
        "things": ["Brennofen", "Webstuhl", "Glockenstuhl", "Gezeitenmühle", "Bienenhaus"],
        "values": [
            "Rauchglas",
            "Linksgewinde",
            "zwei Lagen Bienenwachs",
            "Eichendübel",
            "Filzscheiben",
            "Flusssand",
            "Kupferzwinge",
            "kaltes Abschrecken",
        ],
        "constraint": [
            "Betreibe {t} niemals ohne {v}.",
            "Ab jetzt muss {t} immer {v} bekommen.",
            "Auf keinen Fall darf {t} ohne {v} laufen.",
        ],
        "decision": ["Wir haben beschlossen: {t} bekommt {v}.", "Für {t} nehmen wir {v}."],
        "reversal": ["Korrektur: {t} bekommt nun doch {v}, nicht {o}."],
        "entity": ["Der Eintrag für {t} lautet {v}."],
        "greeting": "Guten Morgen zusammen!",
        "task": "Bitte hilf mir, das alte Hafenmuseum Station für Station wieder herzurichten.",
        "filler": [
            "Der Nebel blieb heute lange liegen.",
            "Jemand hat eine Schubkarre im Saal vergessen.",
            "Die Freiwilligen fangen nach dem Essen an.",
            "Überall liegt noch Kreidestaub.",
            "Gegen Abend soll es regnen.",
        ],
        "ask": "Was steht auf der nächsten Seite des Berichts?",
        "reply": "Die Seite nennt gewöhnlichen Verschleiß und nichts Dringendes.",
    },
    "fr": {
        "things": ["four à verre", "métier à tisser", "beffroi", "moulin à marée", "rucher"],
        "values": [
            "verre fumé",
            "filetage à gauche",
            "deux couches de cire",
            "chevilles de chêne",
            "rondelles de feutre",
            "sable de rivière",
            "virole de cuivre",
        ],
        "constraint": [
            "Ne fais jamais tourner le {t} sans {v}.",
            "Désormais le {t} doit toujours avoir {v}.",
            "En aucun cas le {t} ne doit rester sans {v}.",
        ],
        "decision": ["Nous avons décidé que le {t} reçoit {v}.", "Pour le {t}, prenons {v}."],
        "reversal": ["Correction : le {t} reçoit finalement {v}, et non {o}."],
        "entity": ["Le {t} est inscrit sous le nom {v}."],
        "greeting": "Bonjour à tous !",
        "task": "Aide-moi à remettre en état le vieux musée du port, salle après salle.",
        "filler": [
            "Le brouillard a traîné ce matin.",
            "Une brouette est restée dans la salle.",
            "Les bénévoles commencent après le repas.",
            "Il y a encore de la craie partout.",
            "On attend la pluie vers le soir.",
        ],
        "ask": "Que dit la page suivante du rapport ?",
        "reply": "La page parle d'usure ordinaire et de rien d'urgent.",
    },
    "es": {
        "things": ["horno de vidrio", "telar", "campanario", "molino de marea", "colmenar"],
        "values": [
            "vidrio ahumado",
            "rosca izquierda",
            "dos capas de cera",
            "clavijas de roble",
            "arandelas de fieltro",
            "arena de río",
            "virola de cobre",
        ],
        "constraint": [
            "Nunca uses el {t} sin {v}.",
            "A partir de ahora el {t} debe llevar siempre {v}.",
            "En ningún caso abras el {t} sin {v}.",
        ],
        "decision": ["Hemos decidido que el {t} lleva {v}.", "Para el {t} tomamos {v}."],
        "reversal": ["Corrección: el {t} lleva al final {v}, no {o}."],
        "entity": ["El {t} figura con el nombre {v}."],
        "greeting": "¡Buenos días a todos!",
        "task": "Ayúdame a poner en orden el viejo museo del puerto, sala por sala.",
        "filler": [
            "La niebla tardó en irse esta mañana.",
            "Alguien dejó una carretilla en la sala.",
            "Los voluntarios empiezan después de comer.",
            "Todavía hay polvo de tiza en todas partes.",
            "Se espera lluvia hacia la noche.",
        ],
        "ask": "¿Qué dice la página siguiente del informe?",
        "reply": "La página habla de desgaste normal y de nada urgente.",
    },
    "it": {
        "things": ["forno da vetro", "telaio", "campanile", "mulino a marea", "apiario"],
        "values": [
            "vetro fumé",
            "filettatura sinistra",
            "due mani di cera",
            "cavicchi di rovere",
            "rondelle di feltro",
            "sabbia di fiume",
            "ghiera di rame",
        ],
        "constraint": [
            "Non usare mai il {t} senza {v}.",
            "D'ora in poi il {t} deve avere sempre {v}.",
            "In nessun caso aprire il {t} senza {v}.",
        ],
        "decision": ["Abbiamo deciso che il {t} riceve {v}.", "Per il {t} prendiamo {v}."],
        "reversal": ["Correzione: il {t} riceve invece {v}, non {o}."],
        "entity": ["Il {t} è registrato con il nome {v}."],
        "greeting": "Buongiorno a tutti!",
        "task": "Aiutami a rimettere in ordine il vecchio museo del porto, sala per sala.",
        "filler": [
            "La nebbia è rimasta a lungo stamattina.",
            "Qualcuno ha lasciato una carriola in sala.",
            "I volontari cominciano dopo pranzo.",
            "C'è ancora polvere di gesso ovunque.",
            "Verso sera è prevista pioggia.",
        ],
        "ask": "Che cosa dice la pagina seguente del rapporto?",
        "reply": "La pagina parla di usura normale e di niente di urgente.",
    },
    "pt": {
        "things": ["forno de vidro", "tear", "campanário", "moinho de maré", "colmeal"],
        "values": [
            "vidro fumado",
            "rosca esquerda",
            "duas demãos de cera",
            "cavilhas de carvalho",
            "anilhas de feltro",
            "areia do rio",
            "virola de cobre",
        ],
        "constraint": [
            "Nunca uses o {t} sem {v}.",
            "A partir de agora o {t} deve ter sempre {v}.",
            "Em caso algum abras o {t} sem {v}.",
        ],
        "decision": ["Decidimos que o {t} leva {v}.", "Para o {t} escolhemos {v}."],
        "reversal": ["Correção: o {t} leva afinal {v}, não {o}."],
        "entity": ["O {t} está registado com o nome {v}."],
        "greeting": "Bom dia a todos!",
        "task": "Ajuda-me a pôr em ordem o velho museu do porto, sala a sala.",
        "filler": [
            "O nevoeiro demorou a levantar.",
            "Alguém deixou um carrinho de mão na sala.",
            "Os voluntários começam depois do almoço.",
            "Ainda há pó de giz por todo o lado.",
            "Espera-se chuva ao fim da tarde.",
        ],
        "ask": "O que diz a página seguinte do relatório?",
        "reply": "A página fala de desgaste normal e de nada urgente.",
    },
    "nl": {
        "things": ["glasoven", "weefgetouw", "klokkenstoel", "getijdenmolen", "bijenstal"],
        "values": [
            "rookglas",
            "linkse schroefdraad",
            "twee lagen bijenwas",
            "eiken pennen",
            "vilten ringen",
            "rivierzand",
            "koperen bus",
        ],
        "constraint": [
            "Gebruik de {t} nooit zonder {v}.",
            "Vanaf nu moet de {t} altijd {v} krijgen.",
            "In geen geval mag de {t} draaien zonder {v}.",
        ],
        "decision": ["We hebben besloten dat de {t} {v} krijgt.", "Voor de {t} nemen we {v}."],
        "reversal": ["Correctie: de {t} krijgt toch {v}, niet {o}."],
        "entity": ["De {t} staat ingeschreven als {v}."],
        "greeting": "Goedemorgen allemaal!",
        "task": "Help me om het oude havenmuseum zaal voor zaal op orde te brengen.",
        "filler": [
            "De mist bleef vanochtend lang hangen.",
            "Iemand heeft een kruiwagen in de zaal laten staan.",
            "De vrijwilligers beginnen na het eten.",
            "Er ligt nog overal krijtstof.",
            "Tegen de avond wordt regen verwacht.",
        ],
        "ask": "Wat staat er op de volgende bladzijde van het verslag?",
        "reply": "De bladzijde noemt gewone slijtage en niets dringends.",
    },
    "pl": {
        "things": ["piec szklarski", "warsztat tkacki", "dzwonnica", "młyn pływowy", "pasieka"],
        "values": [
            "szkło dymione",
            "lewy gwint",
            "dwie warstwy wosku",
            "dębowe kołki",
            "podkładki filcowe",
            "piasek rzeczny",
            "miedziana tuleja",
        ],
        "constraint": [
            "Nigdy nie używaj: {t} bez dodatku {v}.",
            "Od teraz {t} musi mieć zawsze {v}.",
            "W żadnym wypadku {t} nie może zostać bez {v}.",
        ],
        "decision": ["Postanowiliśmy, że {t} dostaje {v}.", "Ustalone: {t} oraz {v}."],
        "reversal": ["Poprawka: {t} dostaje jednak {v}, a nie {o}."],
        "entity": ["W rejestrze {t} figuruje jako {v}."],
        "greeting": "Dzień dobry wszystkim!",
        "task": "Pomóż mi uporządkować stare muzeum portowe, sala po sali.",
        "filler": [
            "Mgła długo dziś nie ustępowała.",
            "Ktoś zostawił taczkę w sali.",
            "Ochotnicy zaczynają po obiedzie.",
            "Wszędzie leży jeszcze pył kredowy.",
            "Pod wieczór ma padać.",
        ],
        "ask": "Co mówi następna strona sprawozdania?",
        "reply": "Strona mówi o zwykłym zużyciu i o niczym pilnym.",
    },
}
OTHERS = tuple(name for name in LANGUAGES if name != "en")
SYLLABLES = ("quel", "morv", "tisk", "ardu", "heb", "vonn", "lysk", "pharo", "drem", "osk", "wylt", "jund")


def language_of(seed: int) -> str:
    """Return the language of a session: English for 32 of the sixty, four of each other."""
    return OTHERS[seed // 2 % len(OTHERS)] if seed % 2 and seed < 56 else "en"


def name_of(chance: Random) -> str:
    """Return an invented name, half of the time with a number."""
    word = "".join(chance.choice(SYLLABLES) for _ in range(2)).capitalize()
    return f"{word}-{chance.randrange(10, 99)}" if chance.random() < 0.5 else f"{word} {name_part(chance)}"


def name_part(chance: Random) -> str:
    return chance.choice(SYLLABLES).capitalize()


class Writer:
    """Write one session: messages, and the facts in them."""

    def __init__(self, seed: int) -> None:
        self.chance = Random(f"invented {seed}")
        self.words = LANGUAGES[language_of(seed)]
        self.has_tools, self.greets, self.seed = seed % 3 != 0, seed % 4 == 1, seed
        self.messages: list[dict[str, object]] = []
        self.facts: list[Fact] = []
        self.current: dict[tuple[str, str], Fact] = {}

    def add(self, role: str, content: str, **more: object) -> int:
        self.messages.append({"role": role, "content": content, **more})
        return len(self.messages) - 1

    def filler(self, count: int) -> str:
        return " ".join(self.chance.choice(self.words["filler"]) for _ in range(count))

    def buried(self, said: str) -> str:
        return f"{self.filler(self.chance.randrange(0, 4))} {said} {self.filler(self.chance.randrange(1, 4))}".strip()

    def sentence(self, kind: str, thing: str, value: str, old: str = "") -> str:
        return self.chance.choice(self.words[kind]).format(t=thing, v=value, o=old)

    def page(self, turn: int) -> str:
        """Return what a tool or the assistant reads out: rows of readings and some prose, 120 to 500 tokens."""
        rows = [
            f"{self.chance.choice(SYLLABLES)}{self.chance.choice(SYLLABLES)} {self.chance.randrange(10, 99)} mm "
            f"{self.chance.randrange(1, 12)}/{turn + 3} {self.chance.choice(self.words['filler'])}"
            for _ in range(self.chance.randrange(4, 18))
        ]
        return "\n".join(rows)

    def turn(self, turn: int, said: Sequence[tuple[str, str, str, str, str]]) -> None:
        """Write one turn; each fact is (speaker, kind, thing, value, old)."""
        of = {who: [s for s in said if s[0] == who] for who in ("user", "assistant", "tool")}

        def spoken(who: str, rest: str) -> str:
            return " ".join([*(self.buried(self.sentence(kind, t, v, o)) for _, kind, t, v, o in of[who]), rest])

        self.note(self.add("user", spoken("user", self.words["ask"])), of["user"])
        if self.has_tools:
            call = {
                "id": f"page_{turn}",
                "type": "function",
                "function": {"name": "read_page", "arguments": json.dumps({"page": turn})},
            }
            self.add("assistant", "", tool_calls=[call])
            self.note(
                self.add("tool", f"{self.page(turn)}\n{spoken('tool', '')}".strip(), tool_call_id=call["id"]),
                of["tool"],
            )
            reply = self.words["reply"]
        else:
            reply = f"{self.words['reply']}\n{self.page(turn)}\n{spoken('tool', '')}".strip()
        place = self.add("assistant", spoken("assistant", reply))
        self.note(place, [*of["assistant"], *([] if self.has_tools else of["tool"])])

    def note(self, position: int, said) -> None:
        self.facts += [Fact(kind, position, thing, value, old) for _, kind, thing, value, old in said]

    def plan(self) -> dict[int, list[tuple[str, str, str, str, str]]]:
        """Return what is said at which turn: most of it early, so that cuts come after it."""
        things, values = list(self.words["things"]), list(self.words["values"])
        self.chance.shuffle(things)
        self.chance.shuffle(values)
        names = [name_of(self.chance) for _ in range(3)]
        a, b, c, d, e = (things[n % len(things)] for n in range(5))
        when = iter(sorted(self.chance.sample(range(9), 6)))
        return {
            next(when): [("user", "constraint", a, values[0], "")],
            next(when): [("user", "decision", b, values[1], "")],
            next(when): [("user", "entity", c, names[0], ""), ("user", "decision", d, values[2], "")],
            next(when): [("tool", "entity", e, names[1], ""), ("user", "decision", c, values[6], "")],
            next(when): [("user", "reversal", b, values[3], values[1])],
            next(when): [("user", "constraint", e, values[4], ""), ("assistant", "entity", a, names[2], "")],
            12 + self.chance.randrange(4): [("user", "reversal", d, values[5], values[2])],
        }

    def write(self) -> tuple[list[dict[str, object]], list[Fact]]:
        self.add("system", "You are the assistant of a small harbor museum. Answer in the user's language.")
        if self.greets:
            self.add("user", self.words["greeting"])
            self.add("assistant", self.words["greeting"])
        self.add("user", self.words["task"])
        self.add("assistant", self.words["reply"])
        plan = self.plan()
        for turn in range(TURNS):
            self.turn(turn, plan.get(turn, ()))
        return self.messages, self.facts


def session(seed: int) -> tuple[list[dict[str, object]], list[Fact]]:
    """Return the session of a seed: Chat Completions messages, and the facts in the order in which they are said."""
    return Writer(seed).write()


def holding(facts: Sequence[Fact], end: int) -> list[Fact]:
    """Return the facts that hold before a position: those that were said, less those that were reversed since."""
    said = [fact for fact in facts if fact.position < end]
    reversed_ = {(fact.thing, fact.old) for fact in said if fact.old}
    return [fact for fact in said if (fact.thing, fact.value) not in reversed_]


def is_held(fact: Fact, texts: Sequence[str]) -> bool:
    """Tell whether a context holds a fact: its value near its thing, and nothing behind it that says the old value."""
    last = max((n for n, text in enumerate(texts) if _near(text, fact.thing, fact.value)), default=None)
    if last is None:
        return False
    return not fact.old or not any(
        _near(text, fact.thing, fact.old) and fact.value not in text for text in texts[last + 1 :]
    )


def _near(text: str, thing: str, value: str) -> bool:
    start = text.find(value)
    while start >= 0:
        if thing in text[max(0, start - NEAR) : start + len(value) + NEAR]:
            return True
        start = text.find(value, start + 1)
    return False


# -- contestants


def course_of(messages, budget: int, counter: str):
    from ctxguard.adapting.registry import find_adapter
    from ctxguard.harness.bench import fixed_summary
    from ctxguard.harness.contestants import Course
    from ctxguard.tokens import ArtifactCounter, find_counter
    from ctxguard.tokens.artifact_counter import REPLY_TOKENS

    count, adapter = ArtifactCounter(find_counter(counter)), find_adapter("openai")
    return Course(
        messages,
        budget,
        REPLY_TOKENS,
        None,
        counter,
        lambda some: count.artifacts(adapter.read(some)),
        count.text,
        fixed_summary,
    )


def ends_of(messages) -> list[int]:
    return [n for n, m in enumerate(messages) if n and m["role"] == "assistant"]


def own_contexts(messages, stabilizer) -> tuple[dict[int, list[str]], dict[int, int]]:
    """Return the texts of each call's context, and at which call the first, second, … cut came."""
    from ctxguard.adapting.adapter import with_adapter_stages
    from ctxguard.adapting.registry import find_adapter

    adapter = find_adapter("openai")
    artifacts = adapter.read(messages)
    running, done = with_adapter_stages(stabilizer, adapter).session(), 0
    texts, cuts = {}, {}
    for end in ends_of(messages):
        running.extend(artifacts[done:end])
        done = end
        context = running.context()
        texts[end] = [_text(a.text, ((c.name, c.arguments) for c in a.calls)) for a in context.artifacts]
        if context.report.cut is not None and context.report.cut.fresh:
            cuts[len(cuts) + 1] = end
    return texts, cuts


def peer_contexts(peer, course, ends: Sequence[int]) -> dict[int, list[str]]:
    """Return the texts of a contestant's requests; those of a call that it refused are missing."""
    contestant, found = peer.load()(course), {}
    for end in ends:
        try:
            chat = contestant.chat(contestant.send(end))
        except Exception:  # noqa: BLE001 - whatever a library raises, the call was not served
            continue
        found[end] = [_text(str(m.get("content") or ""), _calls(m)) for m in chat]
    return found


def _calls(message) -> Iterator[tuple[str, str]]:
    return ((c["function"]["name"], c["function"]["arguments"]) for c in message.get("tool_calls") or ())


def _text(text: str, calls) -> str:
    return "\n".join((text, *(f"{name} {arguments}" for name, arguments in calls)))


def play(arguments) -> Iterator[tuple[str, int, int, str, Fact, bool]]:
    """Walk what became of every fact: arm, cuts, seed, language, fact, whether it is held."""
    from quality import maker, parsed

    from ctxguard.harness.bench import contestants

    able = [peer for peer in contestants(arguments.only or [], ["peers"])[0] if peer.name != "ctxguard"]
    makers = {text or "default": maker(parsed(text), arguments.counter) for text in arguments.set or [""]}
    base = maker({}, arguments.counter)
    for seed in range(arguments.sessions):
        messages, facts = session(seed)
        contexts, cuts = own_contexts(messages, base(arguments.budget))
        ends = {n: cuts[n] for n in STAGES if n in cuts}
        arms = {
            name: contexts if name == "default" else own_contexts(messages, make(arguments.budget))[0]
            for name, make in makers.items()
        }
        course = course_of(messages, arguments.budget, arguments.counter)
        arms |= {peer.name: peer_contexts(peer, course, ends_of(messages)) for peer in able}
        for arm, texts in arms.items():
            for number, end in ends.items():
                for fact in holding(facts, end):
                    yield arm, number, seed, language_of(seed), fact, is_held(fact, texts.get(end, ()))


def figures(found) -> dict[str, dict[str, float]]:
    """Return for each arm the share of sessions in which everything is held, by cuts, and the share of facts by kind."""
    by: dict[str, dict[tuple[int, int], list[bool]]] = defaultdict(lambda: defaultdict(list))
    kinds: dict[str, dict[str, list[bool]]] = defaultdict(lambda: defaultdict(list))
    for arm, number, seed, language, fact, is_there in found:
        by[arm][number, seed].append(is_there)
        kinds[arm][fact.kind].append(is_there)
        kinds[arm]["English" if language == "en" else "others"].append(is_there)
    rows = {}
    for arm, sessions in by.items():
        row = {}
        for number in STAGES:
            of = [all(held) for (cuts, _), held in sessions.items() if cuts == number]
            row[f"all after {number}"] = sum(of) / len(of) if of else float("nan")
        row |= {kind: sum(held) / len(held) for kind, held in kinds[arm].items()}
        rows[arm] = row
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--budget", default="4k")
    parser.add_argument("--only", action="append", help="a contestant of ctxguard bench; repeat for several")
    parser.add_argument("--set", action="append", help="settings of an arm: policy=chat,trail=0.1; repeat for several")
    parser.add_argument("--code", help="judge the ctxguard of another folder")
    parser.add_argument("--sessions", type=int, default=SESSIONS)
    parser.add_argument("--counter", default="auto")
    parser.add_argument("--lost", type=int, default=0, help="list so many facts that the first arm lost")
    parser.add_argument("--save", help="write the sessions to this file as recordings, and stop")
    arguments = parser.parse_args()
    if arguments.save:
        lines = (
            json.dumps({"id": f"invented-{n}", "messages": session(n)[0]}, ensure_ascii=False)
            for n in range(arguments.sessions)
        )
        Path(arguments.save).write_text("\n".join(lines) + "\n", encoding="utf-8")
        return
    from quality import judges_of_this_folder, number

    arguments.budget = number(arguments.budget)
    judges_of_this_folder(arguments.code)
    found = list(play(arguments))
    columns = [*(f"all after {n}" for n in STAGES), *KINDS, "English", "others"]
    counted = {n: len({seed for _, number, seed, *_ in found if number == n}) for n in STAGES}
    print(f"budget {arguments.budget:,}; sessions with one, two, four cuts: {counted}")
    print(f"{'':<28}" + "".join(f"{name:>12}" for name in columns))
    for arm, row in figures(found).items():
        print(f"{arm[:27]:<28}" + "".join(f"{row.get(name, float('nan')):>12.2f}" for name in columns))
    first = found[0][0]
    for arm, cuts, seed, language, fact, _ in [f for f in found if f[0] == first and not f[-1]][: arguments.lost]:
        print(f"lost by {arm} after {cuts} cuts: session {seed} ({language}) {fact}")


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    main()
