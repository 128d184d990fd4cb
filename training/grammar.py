"""Requests from our own grammar: same=1 are two phrasings of one request, same=0 differ in one value.

The intents are our own (parcels, trains, money, appointments, files, the house, a shop, the
office), none of them an intent of the data that encoders are judged on.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from pathlib import Path

from training import forms, words
from training.data import Row, share

_LISTS = {
    "day": "monday tuesday wednesday thursday friday saturday sunday today tomorrow",
    "month": "january february march april may june july august september october november december",
    "language": "french german spanish italian dutch polish korean arabic hindi greek turkish swedish",
    "format": "pdf docx csv json xml png jpg mp3 wav txt html xlsx",
    "money": "dollars euros pounds yen rupees francs pesos crowns",
    "unit": "miles kilometers inches centimeters pounds kilograms liters gallons feet meters",
    "product": """headphones winter_boots office_chair coffee_machine desk_lamp rain_jacket phone_case water_bottle
garden_hose yoga_mat bread_knife bike_helmet laptop_bag electric_kettle alarm_clock wool_blanket""",
    "colour": "red blue green black white yellow grey brown purple pink",
    "size": "small medium large extra_large size_38 size_40 size_42 size_44",
    "room": "kitchen bedroom bathroom living_room hallway garage attic basement office nursery",
    "device": "lamp heater fan blinds speaker oven dishwasher air_conditioner humidifier",
    "app": "slack outlook zoom jira photoshop excel teams dropbox notion figma github salesforce",
    "specialist": "dentist eye_doctor physiotherapist dermatologist pediatrician hairdresser mechanic tax_adviser",
    "ingredient": "rice lentils chicken tofu salmon mushrooms pumpkin spinach beef eggplant chickpeas potatoes",
    "meal": "soup curry salad stew casserole pie sandwich stir_fry omelette",
    "subject": "algebra geometry chemistry physics biology history geography economics statistics",
    "document": "invoice contract payslip report presentation budget proposal agenda timesheet",
    "department": "sales finance legal marketing support engineering purchasing logistics",
    "reason": "a_cold a_wedding a_funeral a_dental_visit moving_house a_training",
    "disease": "malaria measles asthma migraine anemia eczema gout scurvy tetanus cholera",
    "metric": "revenue profit sales costs number_of_visitors number_of_orders return_rate headcount",
    "part": "brakes battery headlights windscreen clutch tyres exhaust fuel_pump",
}


def _number(rng: random.Random) -> str:
    return str(
        rng.choice([*range(2, 13), *range(2, 13), 15, 20, 25, 30, 40, 50, 75, 100, 120, 250, 300, 500, 1500])
    )


def _one_of(listed: str) -> Callable[[random.Random], str]:
    values = [word.replace("_", " ") for word in listed.split()]
    return lambda rng: rng.choice(values)


_SLOTS: dict[str, Callable[[random.Random], str]] = {
    "city": lambda rng: rng.choice(words.places()) if rng.random() < 0.8 else words.invented(rng),
    "person": words.person,
    "brand": words.invented,
    "title": lambda rng: " ".join(words.invented(rng) for _ in range(rng.randint(1, 2))),
    "number": _number,
    "hour": lambda rng: f"{rng.randint(1, 12)} {rng.choice(['am', 'pm'])}",
    "year": lambda rng: str(rng.randint(1990, 2026)),
    "code": lambda rng: f"{''.join(rng.choices('abcdefghkmnprstw', k=2))}{rng.randint(10, 999)}",
    **{name: _one_of(values) for name, values in _LISTS.items()},
}

# One intent a block; one phrasing a line. A slot is {type} or {type.tag}.
FILE = Path(__file__).parent / "written" / "requests.txt"
_ASIDE = 0.1  # share of the intents that no step trains on


def _intents() -> list[list[str]]:
    return [block.strip().split("\n") for block in FILE.read_text(encoding="utf-8").strip().split("\n\n")]


def _slots(phrasings: list[str]) -> list[str]:
    return sorted(set(re.findall(r"\{([\w.]+)\}", phrasings[0])))


def _fill(phrasing: str, values: dict[str, str], rng: random.Random) -> str:
    text = re.sub(r"\{([\w.]+)\}", lambda m: values[m.group(1)], phrasing)
    if rng.random() < 0.2:
        form = forms.number_format(text, rng) if rng.random() < 0.6 else forms.polite(text, rng)
        text = form if form is not None else text
    return text


def _values(slots: list[str], rng: random.Random) -> dict[str, str]:
    while True:
        values = {slot: _SLOTS[slot.split(".")[0]](rng) for slot in slots}
        if len(set(values.values())) == len(values):
            return values


def _other(values: dict[str, str], rng: random.Random) -> dict[str, str]:
    """One value changed, or two of one type exchanged."""
    pairs = [slot for slot in values if slot.endswith(".1")]
    if pairs and rng.random() < 0.5:
        one = pairs[0]
        two = one[:-1] + "2"
        return {**values, one: values[two], two: values[one]}
    slot = rng.choice(sorted(values))
    kind = slot.split(".")[0]
    while True:
        new = _SLOTS[kind](rng)
        if kind == "person" and " " in values[slot] and rng.random() < 0.4:
            new = new.split(" ")[0] + " " + values[slot].split(" ")[1]
        if kind == "hour" and rng.random() < 0.4:
            new = values[slot].replace("am", "xm").replace("pm", "am").replace("xm", "pm")
        if new not in values.values():
            return {**values, slot: new}


def rows(seed: int, count: int) -> tuple[list[Row], list[Row]]:
    """Rows to train on, rows of intents kept aside; about `count` in all, half of them same."""
    rng = random.Random(seed)
    train: list[Row] = []
    aside: list[Row] = []
    intents = _intents()
    for _ in range(count):
        phrasings = rng.choice(intents)
        values = _values(_slots(phrasings), rng)
        first, second = rng.sample(phrasings, 2)
        a = _fill(first, values, rng)
        group = f"{phrasings[0]}:{sorted(values.items())}"
        if rng.random() < 0.45:
            row = Row(a, _fill(second, values, rng), 1, "requests", group, group)
        else:
            other = _other(values, rng)
            b = _fill(rng.choice([first, second]), other, rng)
            row = Row(a, b, 0, "requests", group, f"{phrasings[0]}:{sorted(other.items())}")
        (aside if share(phrasings[0], "intent") < _ASIDE else train).append(row)
    return train, aside
