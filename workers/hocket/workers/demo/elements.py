"""Rows and texts of the demo, read from the installed package molmass. Pure but for that import.

molmass writes 0 for unknown values; here they are None. Figures are the package's own, as decimals; only
the density of gases, which it gives in g/L, is divided by 1,000.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from importlib.metadata import version
from typing import Any, Final

from molmass import ELEMENTS
from molmass.elements import SERIES

RECIPE: Final = 1
"""Increased when the same package version gives different tables."""

DENSITY_TEMPERATURE_K: Final = 295
GRAMS_PER_LITRE_DIGITS: Final = 3
"""1 g/L is 10^-3 g/cm3."""

SPELLINGS: Final = {
    "aluminum": "Aluminium",
    "cesium": "Caesium",
    "sulphur": "Sulfur",
    "wolfram": "Tungsten",
    "quicksilver": "Mercury",
}
"""Everyday spellings that we add to molmass' own names."""

Row = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class DemoTables:
    """Rows of the demo's tables, in the order of their columns."""

    series: list[Row]
    element: list[Row]
    isotope: list[Row]
    ionization_energy: list[Row]
    element_name: list[Row]


def data_version() -> str:
    """Return a version of what the tables are made from, and how."""
    return f"molmass {version('molmass')}, recipe {RECIPE}"


def tables() -> DemoTables:
    """Return the rows of all tables."""
    return DemoTables(
        series=sorted((name,) for name in SERIES.values()),
        element=[_element(element) for element in ELEMENTS],
        isotope=[
            (
                element.number,
                isotope.massnumber,
                _decimal(isotope.mass),
                _decimal(isotope.abundance),
            )
            for element in ELEMENTS
            for isotope in element.isotopes.values()
        ],
        ionization_energy=[
            (element.number, ordinal, _decimal(energy))
            for element in ELEMENTS
            for ordinal, energy in enumerate(element.ionenergy, 1)
        ],
        element_name=sorted(_names()),
    )


def texts() -> Iterator[tuple[str, str]]:
    """Yield (file name, Markdown) for each element: its name and its unchanged description."""
    for element in ELEMENTS:
        name = f"{element.number:03}-{element.name.lower()}.md"
        yield name, f"# {element.name}\n\n{element.description}\n"


def _element(element: Any) -> Row:
    return (
        element.number,
        element.symbol,
        element.name,
        SERIES[element.series],
        element.group,
        element.period,
        element.block,
        _state(element),
        _decimal(element.mass),
        _density(element),
        _known(element.tmelt),
        _known(element.tboil),
        _known(element.eleneg),
        _known(element.eleaffin),
        _known(element.covrad),
        _known(element.atmrad),
        _known(element.vdwrad),
        element.eleconfig,
        element.oxistates.replace("*", ""),
    )


def _names() -> Iterator[tuple[str, int]]:
    numbers = {element.name: element.number for element in ELEMENTS}
    yield from numbers.items()
    for spelling, name in SPELLINGS.items():
        if spelling.capitalize() not in numbers:
            yield spelling.capitalize(), numbers[name]


def _state(element: Any) -> str | None:
    """Return the element's state at the conditions of its density; None if its points are not known."""
    if 0 < element.tboil < DENSITY_TEMPERATURE_K:
        return "gas"
    if element.tmelt >= DENSITY_TEMPERATURE_K:
        return "solid"
    return "liquid" if element.tmelt > 0 and element.tboil else None


def _density(element: Any) -> Decimal | None:
    density = _known(element.density)
    if density is not None and _state(element) == "gas":
        return density.scaleb(-GRAMS_PER_LITRE_DIGITS)
    return density


def _known(value: float) -> Decimal | None:
    return _decimal(value) if value else None


def _decimal(value: float) -> Decimal:
    """Return the figure as it is written in the package, without a meaningless `.0`."""
    figure = Decimal(repr(value))
    return figure.quantize(Decimal(1)) if figure == figure.to_integral_value() else figure
