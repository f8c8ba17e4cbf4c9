"""100 company profiles, made up by rule.

The one idea: what can be searched (name, product, city, story) and what can be asked (the metadata) are kept apart, so
no search result contains an answer. The companies never change: they are derived from fixed seeds, in every process.
"""

from __future__ import annotations

import functools
import random
from dataclasses import dataclass

from polygym.seeds import derive_seed

COUNT = 100
STEMS = (
    "Alder", "Brask", "Calvo", "Dunmore", "Elstra", "Farrow", "Gantry", "Hollis", "Imbra", "Jorvik", "Kestrel", "Lumen",
    "Marlow", "Norvane", "Orrin", "Pellam", "Quill", "Rosner", "Sable", "Tarn", "Umbra", "Vexley", "Wexford", "Yarrow",
    "Zephyr",
)  # fmt: skip
ENDINGS = ("Works", "Group", "Labs", "Partners")
PRODUCTS = (
    "tidal pumps", "ceramic tiles", "grain silos", "hearing aids", "cargo bicycles", "solar ovens", "violin strings",
    "rescue boats", "greenhouse glass", "elevator brakes", "wool carpets", "sewing machines", "ski bindings",
    "weather balloons", "dental chairs", "chess clocks", "coffee roasters", "fire doors", "garden robots", "ice rinks",
    "juice presses", "kayak paddles", "library shelves", "medical scales", "night lamps",
)  # fmt: skip
CITIES = ("Bergen", "Cork", "Dresden", "Ghent", "Kaunas", "Lugano", "Nantes", "Porto", "Tartu", "Turku")
MARKETS = ("hospitals", "schools", "farms", "hotels", "ports", "small shops", "museums", "railways")
FIRST_NAMES = ("Ada", "Bruno", "Clara", "Dario", "Elif", "Finn", "Greta", "Hugo", "Ines", "Jonas")
LAST_NAMES = ("Amsel", "Berger", "Castro", "Dahl", "Eklund", "Faber", "Giraud", "Hansen", "Ivanov", "Jansen")


@dataclass(frozen=True, slots=True)
class Profile:
    """One company. `text` is what a search reads; `metadata` is what get_metadata tells."""

    doc_id: str
    name: str
    product: str
    city: str
    text: str
    metadata: dict[str, str]


@functools.cache
def profiles() -> tuple[Profile, ...]:
    """All profiles, `doc_001` to `doc_100`. Names, pairs of product and city, and heads are each used once."""
    generator = random.Random(derive_seed("document_search", "profiles"))
    names = [f"{stem} {ending}" for ending in ENDINGS for stem in STEMS]
    heads = [f"{first} {last}" for first in FIRST_NAMES for last in LAST_NAMES]
    generator.shuffle(names)
    generator.shuffle(heads)
    made = []
    for index in range(COUNT):
        product = PRODUCTS[index % len(PRODUCTS)]
        # The shift gives the four makers of a product four cities.
        city = CITIES[(index + index // len(PRODUCTS)) % len(CITIES)]
        markets = " and ".join(generator.sample(MARKETS, 2))
        metadata = {
            "director": heads[index],
            "founded": str(generator.randint(1900, 2019)),
            "employees": str(generator.randint(12, 9800)),
            "revenue_million": str(generator.randint(2, 950)),
            "patents": str(generator.randint(3, 240)),
        }
        text = f"{names[index]} makes {product} in {city}. Its customers are {markets}."
        made.append(Profile(f"doc_{index + 1:03}", names[index], product, city, text, metadata))
    return tuple(made)
