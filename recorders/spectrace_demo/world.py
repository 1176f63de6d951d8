"""The small world the training text speaks of: names, places, troubles, recipes, facts.

Owns the word tables and the held-out prompts, nothing else; `corpus.py` makes sentences of them.
"""

from __future__ import annotations

from typing import NamedTuple

HELD_OUT_PROMPTS = (
    "One windy morning Mira walked from Elmford to the old mill.",
    "There was once a baker named Otto who lived in Stonebridge.",
    "How to make pear jam\n",
    "Question: Nora has 7 plums and finds 5 more. How many plums does Nora have?\n",
    "# Count the lamps in the tower.\ndef",
    "Dear Felix,\n",
    "Things to bring to the harbour:\n",
    "Question: Why do the frogs sing?\n",
)
"""Prompts kept for the demo: one per kind of text; no training document begins with one of them."""

NAMES = (
    "Mira", "Otto", "Nora", "Felix", "Anna", "Jonas", "Lena", "Tom", "Clara", "Hugo", "Ida",
    "Paul", "Rosa", "Emil", "Greta", "Max", "Vera", "Leo", "Maya", "Oskar", "Selma", "Finn",
    "Alma", "Ben", "Eva", "Karl", "Nina", "Theo", "Lotte", "Simon", "Edith", "Viktor",
)  # fmt: skip
TOWNS = (
    "Elmford", "Stonebridge", "Greenhill", "Northbay", "Willowdale", "Fernwick", "Ashbrook",
    "Maplewood", "Redcliff", "Silverton",
)  # fmt: skip
JOBS = (
    "baker",
    "farmer",
    "teacher",
    "sailor",
    "painter",
    "doctor",
    "tailor",
    "shepherd",
    "clockmaker",
    "gardener",
)
WEATHER = ("windy", "rainy", "sunny", "cold", "foggy", "warm", "snowy", "quiet")
DAYTIMES = ("morning", "evening", "afternoon", "night")
FRUITS = ("apple", "pear", "plum", "cherry", "peach", "lemon")
PLURALS = {
    "apple": "apples", "pear": "pears", "plum": "plums", "cherry": "cherries", "peach": "peaches",
    "lemon": "lemons", "button": "buttons", "book": "books", "shell": "shells", "coin": "coins",
    "candle": "candles", "egg": "eggs", "lamp": "lamps", "stone": "stones", "feather": "feathers",
    "boat": "boats", "key": "keys", "letter": "letters",
}  # fmt: skip
NUMBER_WORDS = (
    "zero",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
)


class Trouble(NamedTuple):
    """One small causal chain: what is wrong at a place, why, and how it is mended."""

    place: str
    seen: str
    """What the visitor finds, as a clause in the past tense."""
    question: str
    answer: str
    """The cause, as somebody at the place says it."""
    tool: str
    fix: str
    """What is done with the tool, in the past tense."""
    outcome: str


TROUBLES = (
    Trouble(
        "the old mill",
        "the wheel stood still",
        "Why does the wheel stand still?",
        "A branch is stuck in the wheel",
        "long rope",
        "pulled the branch out of the water",
        "the wheel began to turn again",
    ),
    Trouble(
        "the harbour",
        "the boats could not leave",
        "Why do the boats stay here?",
        "The lamp in the tower is broken",
        "box of candles",
        "put a bright candle in the tower",
        "every boat found its way out to sea",
    ),
    Trouble(
        "the bakery",
        "there was no bread to sell",
        "Where is the bread?",
        "The oven is cold and the wood is wet",
        "bag of dry wood",
        "lit a fire in the oven",
        "the smell of warm bread filled the street",
    ),
    Trouble(
        "the school",
        "the children stood outside the door",
        "Why do you stand outside?",
        "The key is lost in the snow",
        "small lantern",
        "looked under the bench and found the key",
        "the children ran inside and laughed",
    ),
    Trouble(
        "the station",
        "the train was late",
        "Why is the train late?",
        "A tree lies on the rails",
        "sharp saw",
        "cut the tree into small pieces",
        "the train came slowly around the hill",
    ),
    Trouble(
        "the clock tower",
        "the clock showed the wrong time",
        "Why is the clock wrong?",
        "A bird has made its nest behind the hands",
        "tall ladder",
        "carried the nest to a safe roof",
        "the clock struck the right hour",
    ),
    Trouble(
        "the bridge",
        "nobody could cross the river",
        "Why does nobody cross the river?",
        "Two boards of the bridge are gone",
        "hammer and some nails",
        "put two new boards in place",
        "the first cart rolled over the bridge",
    ),
    Trouble(
        "the garden",
        "the roses looked sad and dry",
        "What is wrong with the roses?",
        "The well is empty and the pump is dry",
        "watering can",
        "brought water from the river",
        "the roses lifted their heads",
    ),
    Trouble(
        "the library",
        "the books lay on the floor",
        "What happened to the books?",
        "The shelf broke in the night",
        "pot of glue",
        "mended the shelf with great care",
        "all the books stood in a row again",
    ),
    Trouble(
        "the farm",
        "the sheep were gone",
        "Where are the sheep?",
        "The gate was open and they ran into the forest",
        "silver bell",
        "rang the bell at the edge of the forest",
        "the sheep came home one after another",
    ),
    Trouble(
        "the market",
        "the tents had fallen down",
        "Who pulled down the tents?",
        "The wind was too strong last night",
        "roll of string",
        "tied the tents to the wall",
        "people came to buy fruit and cheese",
    ),
    Trouble(
        "the lighthouse",
        "the window was dark",
        "Why is the window dark?",
        "There is no oil left for the lamp",
        "bottle of oil",
        "filled the lamp to the top",
        "the light shone far across the waves",
    ),
)


class Recipe(NamedTuple):
    """A dish: what goes in, what it is made in and how it ends."""

    dish: str
    parts: tuple[str, ...]
    vessel: str
    heat: str
    finish: str


RECIPES = (
    Recipe(
        "bean soup",
        ("beans", "carrots", "salt", "water"),
        "large pot",
        "Cook it",
        "Serve the soup with bread.",
    ),
    Recipe(
        "apple jam",
        ("apples", "sugar", "lemon juice"),
        "heavy pot",
        "Boil it",
        "Pour the jam into clean jars.",
    ),
    Recipe(
        "pear jam",
        ("pears", "sugar", "lemon juice"),
        "heavy pot",
        "Boil it",
        "Pour the jam into clean jars.",
    ),
    Recipe(
        "plum jam",
        ("plums", "sugar", "cinnamon"),
        "heavy pot",
        "Boil it",
        "Pour the jam into clean jars.",
    ),
    Recipe(
        "white bread",
        ("flour", "yeast", "salt", "water"),
        "wide bowl",
        "Bake it",
        "Let the bread cool before you cut it.",
    ),
    Recipe(
        "lemon cake",
        ("flour", "butter", "eggs", "sugar", "lemon juice"),
        "round tin",
        "Bake it",
        "Cover the cake with sugar.",
    ),
    Recipe(
        "cherry cake",
        ("flour", "butter", "eggs", "sugar", "cherries"),
        "round tin",
        "Bake it",
        "Cover the cake with sugar.",
    ),
    Recipe(
        "mint tea",
        ("mint leaves", "honey", "water"),
        "small pot",
        "Warm it",
        "Drink the tea while it is hot.",
    ),
    Recipe(
        "black tea",
        ("tea leaves", "milk", "water"),
        "small pot",
        "Warm it",
        "Drink the tea while it is hot.",
    ),
    Recipe(
        "fish soup",
        ("fish", "onions", "salt", "cream"),
        "large pot",
        "Cook it",
        "Serve the soup with bread.",
    ),
    Recipe(
        "rice pudding",
        ("rice", "milk", "sugar", "cinnamon"),
        "deep pan",
        "Cook it",
        "Eat the pudding warm.",
    ),
    Recipe(
        "blue paint",
        ("blue powder", "oil", "chalk"),
        "glass jar",
        "Warm it",
        "Test the paint on a piece of wood.",
    ),
)

FACTS = (
    ("Why do the frogs sing?", "The frogs sing because the rain has filled the pond"),
    ("Why does the tower have a lamp?", "The lamp shows the boats the way home"),
    ("Where do the sheep sleep?", "The sheep sleep in the barn behind the farm"),
    ("Where does the river begin?", "The river begins high up in the hills near Redcliff"),
    ("When does the market open?", "The market opens at eight in the morning"),
    ("When does the last train leave?", "The last train leaves at nine in the evening"),
    ("Who rings the bell?", "The clockmaker rings the bell every hour"),
    ("Who bakes the bread?", "The baker bakes the bread before the sun comes up"),
    ("What do the owls eat?", "The owls eat mice and small fish"),
    ("What is behind the mill?", "There is a garden with roses behind the mill"),
    ("How far is it to the harbour?", "It is two miles from the bridge to the harbour"),
    ("How deep is the well?", "The well is as deep as three tall ladders"),
    ("Why is the bridge closed?", "The bridge is closed because the river is too high"),
    ("Why do the bees stay inside?", "The bees stay inside because it is too cold"),
)

TRIPS = {
    "the harbour": (
        "a warm coat",
        "a long rope",
        "a map of the coast",
        "a bottle of water",
        "a box of hooks",
    ),
    "the market": (
        "a basket",
        "a purse with coins",
        "a list",
        "a warm coat",
        "a bag for the fruit",
    ),
    "the forest": (
        "a small lantern",
        "good boots",
        "a map of the paths",
        "a bottle of water",
        "a loaf of bread",
    ),
    "the school": ("a pencil", "a red notebook", "an apple", "a ruler", "a storybook"),
    "the hills": (
        "good boots",
        "a warm coat",
        "a loaf of bread",
        "a piece of cheese",
        "a walking stick",
    ),
    "the garden": (
        "a watering can",
        "a pair of gloves",
        "a bag of seeds",
        "a spade",
        "a straw hat",
    ),
}
FEELINGS = ("happy", "proud", "tired but happy", "glad", "very proud", "calm")

ADJECTIVES = (
    "small", "old", "red", "green", "heavy", "round", "wooden", "silver", "broken", "strange",
    "yellow", "white", "tiny", "golden", "dusty", "striped",
)  # fmt: skip
THINGS = (
    "box", "hat", "kite", "drum", "umbrella", "ring", "ladder", "lantern", "mirror", "whistle",
    "suitcase", "scarf", "violin", "compass", "teapot", "glove", "bottle", "blanket",
)  # fmt: skip
SPOTS = (
    "under the bench", "behind the barn", "on the roof", "near the well", "between two trees",
    "in the tall grass", "at the end of the street", "beside the fountain",
    "on top of the wall", "inside the empty cart",
)  # fmt: skip
ANIMALS = ("dog", "cat", "goat", "crow", "fox", "horse", "goose", "hedgehog")
DEEDS = (
    ("barked", "followed"), ("slept", "dreamed"), ("waited", "watched the road"),
    ("played", "jumped around"), ("sat", "looked at the clouds"), ("hid", "made no sound"),
)  # fmt: skip
CHORES = (
    "painted the fence", "washed the windows", "fed the chickens", "wrote a long letter",
    "repaired the bicycle", "planted two trees", "learned a new song", "cleaned the kitchen",
    "visited the museum", "sold the old table", "swam in the lake",
    "carried wood into the house",
)  # fmt: skip
DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
