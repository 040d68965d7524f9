"""Prices from the list: for providers that are known by their endpoint, and nobody else."""

import builtins
from decimal import Decimal
from typing import Any

import pytest

from hocket.gateway.accounting.list_prices import with_list_prices
from hocket.gateway.core.budgets.price import Prices
from hocket.gateway.core.config.configuration import parse
from hocket.gateway.core.config.table import RoutingTable

OPENAI = "https://api.openai.com/v1"


def table(**backend: Any) -> RoutingTable:
    wanted = {"name": "b", "base_url": OPENAI, "model": "gpt-4o-mini", **backend}
    return parse({"writer": {"backends": [wanted]}}, {})


async def prices(**backend: Any) -> Prices:
    (spec,) = (await with_list_prices(table(**backend))).backends_of("writer")
    return spec.prices


async def test_an_unpriced_model_of_a_known_provider_has_its_list_price() -> None:
    # OpenAI's price list, per million tokens
    assert await prices() == Prices(Decimal("0.15"), Decimal("0.6"), Decimal("0.075"))


async def test_a_configured_price_holds_even_if_it_is_nothing() -> None:
    free = {"input_usd_per_mtok": 0, "output_usd_per_mtok": 0}
    assert (await prices(prices=free)).output_usd_per_mtok == 0


@pytest.mark.parametrize(
    "backend",
    [
        {"base_url": "http://127.0.0.1:8000/v1"},
        {"base_url": "https://models.example.org/v1"},
        {"model": "a-model-of-nobody"},
    ],
)
async def test_a_server_or_model_that_the_list_does_not_know_stays_unpriced(
    backend: dict[str, Any],
) -> None:
    assert not (await prices(**backend)).priced


async def test_a_price_with_tiers_is_that_of_a_short_prompt() -> None:
    google = "https://generativelanguage.googleapis.com/v1beta/openai"
    listed = await prices(base_url=google, model="gemini-2.5-pro")
    assert (listed.input_usd_per_mtok, listed.output_usd_per_mtok) == (Decimal("1.25"), Decimal(10))


async def test_without_the_package_nothing_is_priced(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *arguments: Any, **named: Any) -> Any:
        if name.startswith("genai_prices"):
            raise ImportError(name)
        return real(name, *arguments, **named)

    monkeypatch.setattr(builtins, "__import__", without)
    assert not (await prices()).priced


async def test_pools_and_other_models_stay_as_they_are() -> None:
    before = table(pool="gpus")
    after = await with_list_prices(before)
    assert (after.pools, after.aliases, tuple(after.models)) == (
        before.pools,
        before.aliases,
        tuple(before.models),
    )
