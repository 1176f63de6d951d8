"""The training text: short documents of nine kinds, made by a seeded grammar over `world.py`.

Owns sentence making; every word is generated here, nothing is copied from a corpus. Choices are
weighted and many depend on what was said before, so that a next token is sometimes sure, sometimes
a guess, and sometimes sure only for a model that looks far back.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

from spectrace_demo import world
from spectrace_demo.stories import make_search, make_story, pick


def iter_documents(seed: int) -> Iterator[str]:
    """Yield training documents without end, the same ones for the same seed.

    A document that begins with one of the held-out prompts is left out.
    """
    rng = random.Random(seed)
    while True:
        (kind,) = rng.choices(_KINDS, weights=_KIND_WEIGHTS)
        text = kind(rng)
        if not text.startswith(world.HELD_OUT_PROMPTS):
            yield text


def _week(rng: random.Random) -> str:
    """A diary of some days, then a question about one of them."""
    name = rng.choice(world.NAMES)
    first = rng.randrange(4)
    days = world.DAYS[first : first + rng.randint(2, 4)]
    chores = rng.sample(world.CHORES, len(days))
    done = list(zip(days, chores, strict=True))
    lines = [f"The week of {name}", *(f"{day}: {name} {chore}." for day, chore in done)]
    day, chore = rng.choice(done)
    lines += [f"Question: What did {name} do on {day}?", f"Answer: On {day} {name} {chore}."]
    return "\n".join(lines)


def _recipe(rng: random.Random) -> str:
    """A how-to note: a list of parts, then numbered steps that name the same parts in order."""
    recipe = rng.choice(world.RECIPES)
    minutes = 5 * rng.randint(1, 8)
    parts = list(recipe.parts)
    if rng.random() < 0.3:
        rng.shuffle(parts)
    steps = [f"Put the {parts[0]} in a {recipe.vessel}."]
    steps += [f"{pick(rng, ('Add', 'Stir in'))} the {part}." for part in parts[1:]]
    if rng.random() < 0.6:
        steps.append(pick(rng, ("Stir it slowly.", "Mix it well.", "Let it rest for a while.")))
    steps += [f"{recipe.heat} for {minutes} minutes.", recipe.finish]
    lines = [f"How to make {recipe.dish}", "You need:", *(f"- {part}" for part in parts), "Steps:"]
    lines += [f"{number}. {step}" for number, step in enumerate(steps, 1)]
    if rng.random() < 0.5:
        person = rng.choice(world.NAMES)
        verdict = pick(rng, ("best", "ready", "good"))
        lines.append(f"{person} says: the {recipe.dish} is {verdict} after {minutes} minutes.")
    return "\n".join(lines)


def _sum(rng: random.Random) -> str:
    """One to three questions of small arithmetic with the sum written out."""
    lines = []
    for _ in range(rng.randint(1, 3)):
        name, noun = rng.choice(world.NAMES), world.PLURALS[rng.choice(tuple(world.PLURALS))]
        first, second = rng.randint(2, 9), rng.randint(2, 9)
        if rng.random() < 0.6:
            verb = pick(rng, ("finds", "buys", "gets"))
            question, sign, result = f"{verb} {second} more", "+", first + second
        else:
            first += second
            verb = pick(rng, ("loses", "sells", "gives away"))
            question, sign, result = f"{verb} {second} of them", "-", first - second
        asked = f"How many {noun} does {name} have?"
        lines.append(f"Question: {name} has {first} {noun} and {question}. {asked}")
        lines.append(f"Answer: {first} {sign} {second} = {result}. {name} has {result} {noun}.")
    return "\n".join(lines)


def _facts(rng: random.Random) -> str:
    """Questions about the world, answered the same way every time, by somebody."""
    lines = []
    for question, answer in rng.sample(world.FACTS, rng.randint(1, 4)):
        name = rng.choice(world.NAMES)
        source = pick(rng, ("", f", says {name}", f". {name} told me so", f", as {name} knows"))
        lines += [f"Question: {question}", f"Answer: {answer}{source}."]
    return "\n".join(lines)


def _code(rng: random.Random) -> str:
    """A Python-like function about counted things, then a call and what it prints."""
    noun = rng.choice(tuple(world.PLURALS))
    place = pick(rng, ("basket", "tower", "box", "drawer", "house"))
    number, extra = rng.randint(2, 6), rng.randint(1, 4)
    template = rng.choice((_COUNT, _ADD, _FIND))
    return template.format(
        noun=noun,
        nouns=world.PLURALS[noun],
        place=place,
        number=number,
        extra=extra,
        total=number + extra,
    )


_COUNT = """\
# Count the {nouns} in the {place}.
def count_{nouns}({place}):
    total = 0
    for {noun} in {place}:
        if {noun} is not None:
            total += 1
    return total

{place} = ["{noun}"] * {number}
print(count_{nouns}({place}))  # {number}"""

_ADD = """\
# Add some {nouns} to the {place}.
def add_{nouns}({place}, number):
    for i in range(number):
        {place}.append("{noun}")
    return {place}

{place} = ["{noun}"] * {number}
{place} = add_{nouns}({place}, {extra})
print(len({place}))  # {total}"""

_FIND = """\
# Find the first {noun} in the {place}.
def find_{noun}({place}):
    for i, item in enumerate({place}):
        if item == "{noun}":
            return i
    return -1

{place} = [None] * {number} + ["{noun}"]
print(find_{noun}({place}))  # {number}"""


def _letter(rng: random.Random) -> str:
    """A letter that tells of one trouble and asks for one thing."""
    sender, reader = rng.sample(world.NAMES, 2)
    trouble = rng.choice(world.TROUBLES)
    noun = world.PLURALS[rng.choice(tuple(world.PLURALS))]
    hello = pick(rng, ("How are you?", "Thank you for your letter.", "I hope you are well."))
    weather = pick(rng, world.WEATHER)
    lines = [
        f"Dear {reader},",
        f"{hello} It is {weather} here in {rng.choice(world.TOWNS)}.",
        f"Last week I went to {trouble.place} and {trouble.seen}. "
        f"{trouble.answer}, they told me. But I had a {trouble.tool} and soon {trouble.outcome}.",
        f"Please {pick(rng, ('send', 'bring'))} me {world.NUMBER_WORDS[rng.randint(2, 9)]} {noun} "
        f"when you {pick(rng, ('can', 'come', 'write again'))}.",
        f"Your friend {sender}",
    ]
    return "\n".join(lines)


def _packing(rng: random.Random) -> str:
    """A list of things to bring, and a check of the list that repeats it."""
    place = rng.choice(tuple(world.TRIPS))
    things = rng.sample(world.TRIPS[place], rng.randint(3, 5))
    name = rng.choice(world.NAMES)
    missing = rng.choice(things)
    lines = [
        f"Things to bring to {place}:",
        *(f"- {thing}" for thing in things),
        f"{name} checked the list:",
    ]
    lines += [f"- {thing}: {'missing' if thing == missing else 'here'}" for thing in things]
    there = len(things) - 1
    fetched = pick(rng, ("went to look for", "ran back to fetch", "asked for"))
    lines.append(
        f"So {world.NUMBER_WORDS[there]} of {world.NUMBER_WORDS[len(things)]} things were there, "
        f"and {name} {fetched} {missing}."
    )
    return "\n".join(lines)


_KINDS: tuple[Callable[[random.Random], str], ...] = (
    make_story, make_search, _recipe, _sum, _facts, _code, _letter, _packing, _week,
)  # fmt: skip
_KIND_WEIGHTS = (6, 3, 2, 2, 2, 2, 2, 1.5, 1.5)
