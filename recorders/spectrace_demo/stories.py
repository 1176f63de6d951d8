"""The stories of the training text: a trouble that is mended, a lost thing that is found.

Owns sentences that hang together over a whole document; the shorter kinds are in `corpus.py`.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TypeVar

from spectrace_demo import world

Item = TypeVar("Item")


def pick(rng: random.Random, items: Sequence[Item]) -> Item:
    """Choose one item; the earlier it stands, the likelier it is."""
    (item,) = rng.choices(items, weights=[1.0 / (index + 2) for index in range(len(items))])
    return item


def _count(number: int, noun: str) -> str:
    """Spell a count: one pear, two pears."""
    return f"{world.NUMBER_WORDS[number]} {noun if number == 1 else world.PLURALS[noun]}"


def _a(word: str) -> str:
    """Put the right article before a word: an old, a red."""
    return f"{'an' if word[0] in 'aeiou' else 'a'} {word}"


def make_story(rng: random.Random) -> str:
    """A visit, a trouble, its cause, the mending, a gift that is shared, an end."""
    hero, friend, other = rng.sample(world.NAMES, 3)
    trouble = rng.choice(world.TROUBLES)
    sentences = [
        _opening(rng, hero, trouble.place),
        *([_aside(rng)] if rng.random() < 0.5 else []),
        *_finding(rng, hero, friend, trouble),
        *_mending(rng, hero, friend, trouble),
    ]
    if rng.random() < 0.75:
        sentences += _gift(rng, hero, friend, other)
    sentences.append(_ending(rng, hero, friend, trouble.place))
    return " ".join(sentences)


def _opening(rng: random.Random, hero: str, place: str) -> str:
    town = rng.choice(world.TOWNS)
    weather, daytime = pick(rng, world.WEATHER), pick(rng, world.DAYTIMES)
    if rng.random() < 0.5:
        verb = pick(rng, ("walked", "ran", "went", "rode a horse"))
        return f"One {weather} {daytime} {hero} {verb} from {town} to {place}."
    job = rng.choice(world.JOBS)
    return (
        f"There was once a {job} named {hero} who lived in {town}. "
        f"Every {daytime} {hero} went to {place}, but this time it was {weather}."
    )


def _aside(rng: random.Random) -> str:
    """Something by the way; it has no bearing on what follows."""
    spot = pick(rng, world.SPOTS)
    adjective = pick(rng, world.ADJECTIVES)
    if rng.random() < 0.5:
        thing = pick(rng, world.THINGS)
        return f"{pick(rng, ('Somebody had left', 'There was'))} {_a(adjective)} {thing} {spot}."
    deed, more = pick(rng, world.DEEDS)
    return f"{_a(adjective).capitalize()} {pick(rng, world.ANIMALS)} {deed} {spot} and {more}."


def _finding(rng: random.Random, hero: str, friend: str, trouble: world.Trouble) -> list[str]:
    arrival = pick(
        rng,
        (
            f"When {hero} came there, {trouble.seen}.",
            f"But when {hero} arrived, {trouble.seen}.",
            f"There {hero} saw that {trouble.seen}.",
        ),
    )
    asked = pick(rng, ("asked", "cried", "called"))
    meeting = pick(rng, ("sat on a bench near the door", "was there too", "looked very sad"))
    return [
        arrival,
        f"{friend} {meeting}.",
        f'"{trouble.question}" {asked} {hero}.',
        f'"{trouble.answer}," said {friend}.',
    ]


def _mending(rng: random.Random, hero: str, friend: str, trouble: world.Trouble) -> list[str]:
    tool = trouble.tool
    plan = pick(rng, (f"I have a {tool} at home", f"We need a {tool}", "Do not worry, I can help"))
    helped = pick(rng, (f"Together {hero} and {friend}", f"With the {tool} {hero}", f"Then {hero}"))
    after = pick(rng, ("Soon", "At once", "After a while", "By noon"))
    return [
        f'"{plan}," said {hero}.',
        f"So {hero} {pick(rng, ('fetched', 'brought', 'found'))} a {tool}.",
        f"{helped} {trouble.fix}.",
        f"{after} {trouble.outcome}.",
    ]


def _gift(rng: random.Random, hero: str, friend: str, other: str) -> list[str]:
    noun = rng.choice(world.FRUITS)
    number = rng.randint(3, 9)
    given = rng.randint(1, number - 2)
    return [
        f"{friend} was so glad that {hero} got {_count(number, noun)}.",
        f"{hero} gave {_count(given, noun)} to {other} and kept {_count(number - given, noun)}.",
    ]


def _ending(rng: random.Random, hero: str, friend: str, place: str) -> str:
    feeling = pick(rng, world.FEELINGS)
    return pick(
        rng,
        (
            f"In the evening {hero} walked home and was {feeling}.",
            f'"Thank you, {hero}," said {friend}, and {hero} was {feeling}.',
            f"From that day on {hero} and {friend} met at {place} every week.",
            f"{hero} and {friend} stayed friends for a long time.",
        ),
    )


def make_search(rng: random.Random) -> str:
    """A lost thing, people who are asked in turn, and the spot that the last one names."""
    hero, *asked = rng.sample(world.NAMES, rng.randint(3, 4))
    adjective, thing = rng.choice(world.ADJECTIVES), rng.choice(world.THINGS)
    spot = rng.choice(world.SPOTS)
    day = rng.choice(world.DAYS)
    sentences = [
        f"On {day} {hero} lost the {adjective} {thing}.",
        f"{hero} looked {pick(rng, world.SPOTS)}, but the {thing} was not there.",
    ]
    for person in asked[:-1]:
        sentences.append(f"{pick(rng, ('Then', 'First', 'So'))} {hero} asked {person}.")
        other = _a(pick(rng, world.ADJECTIVES))
        sentences.append(f'"I have not seen the {thing}, but I have {other} one," said {person}.')
    sentences += [
        f"At last {hero} asked {asked[-1]}.",
        f'"The {adjective} {thing}? It lies {spot}," said {asked[-1]}.',
        f"{hero} looked {spot}, and there was the {adjective} {thing}.",
        pick(
            rng,
            (
                f'"Thank you, {asked[-1]}," said {hero}.',
                _aside(rng),
                f"{hero} was {pick(rng, world.FEELINGS)}.",
            ),
        ),
    ]
    return " ".join(sentences)
