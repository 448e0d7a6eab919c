"""The products of `paid_api.py`: a few working tools, broken entries as in real catalogues, and made-up ones."""

import hashlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any


@dataclass
class Product:
    """One tool on sale. `run` takes the parameters and returns the result."""

    name: str
    description: str
    parameters: Any
    price: Any
    run: Callable[..., Any]
    category: str = "demo"
    actions: dict[str, float] = field(default_factory=dict)
    """Prices by the parameter `action`."""

    def cost(self, parameters: dict[str, Any]) -> Decimal:
        """Return the price of a call, in dollars."""
        price = self.actions.get(str(parameters.get("action")), self.price)
        return Decimal(str(price)) if isinstance(price, float) else Decimal(0)

    @property
    def id(self) -> str:
        """An opaque id, as in the real catalogue."""
        return hashlib.sha256(self.description.encode()).hexdigest()[:24]


def needs(**properties: Any) -> dict[str, Any]:
    """Return an object schema in which everything is required."""
    return {"type": "object", "properties": properties, "required": list(properties)}


def takes(**properties: Any) -> dict[str, Any]:
    """Return an object schema in which nothing is required."""
    return {"type": "object", "properties": properties}


SKY = {"Ulm": "clear, 21 degrees", "Oslo": "snow, 4.5 degrees", "Lima": "fog, 19 degrees"}
TEXT = {"type": "string"}
REAL = [
    Product("weather", "Tell the weather of a city", needs(city=TEXT), 0.01,
            lambda city: {"city": city, "sky": SKY.get(city, "unknown")}, "data"),
    Product("stock", "Tell the price of a share", needs(symbol=TEXT), 0.02,
            lambda symbol: {"symbol": symbol, "price": 100 + len(symbol)}, "data"),
    Product("translate", "Translate a text", needs(text=TEXT, to={"enum": ["de", "fr"]}), 0.005,
            lambda text, to: f"[{to}] {text}"),
    Product("slow", "Take some seconds", needs(seconds={"type": "number"}), 0.01,
            lambda seconds: time.sleep(seconds) or "done"),
    Product("big", "Return many bytes", needs(bytes={"type": "integer"}), 0.01, lambda **size: "x" * size["bytes"]),
    Product("echo", "Return the request's headers, keys and all", takes(), 0.01, lambda **given: given),
]  # fmt: skip
BROKEN = [
    Product("odd required", "Boolean required", takes(q={**TEXT, "required": True}), 0.01, lambda **given: given),
    Product("odd default", "Wrong defaults", takes(n={"type": "integer", "default": "ten"}, list={"type": "array"},
            of={"enum": ["a", "b"], "default": "c"}), 0.01, lambda **given: given),
    Product("same name!", "One of two that collapse", takes(), 0.01, lambda: "first"),
    Product("same name?", "The other of two that collapse", takes(), 0.01, lambda: "second"),
    Product("no schema", "Null schema", None, "free of charge", lambda **given: given),
    Product("beyond repair", "Not to be helped", takes(x={"type": "strnig", "$ref": "#/nowhere"}), 0.01,
            lambda **given: given),
]  # fmt: skip


def on_sale(entries: int, *, broken: bool) -> Iterator[Product]:
    """Yield the working tools, then broken ones if requested, then made-up ones up to the number of entries."""
    few = REAL + (BROKEN if broken else [])
    yield from (Product(**vars(product)) for product in few)
    for n in range(len(few), entries):
        yield Product(
            f"made up {n}", f"Made-up tool {n}", needs(value=TEXT), 0.001, lambda value: value, "made up"
        )
