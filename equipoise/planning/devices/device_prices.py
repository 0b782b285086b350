"""Prices of workers by device, and the cost of settings in dollars."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from equipoise.errors import EquipoiseError
from equipoise.planning.devices.device_rows import format_device

SECONDS_PER_HOUR = 3600


@dataclass(frozen=True, kw_only=True)
class DevicePrices:
    """Dollars that a worker costs for an hour."""

    by_device: dict[str, float] = field(default_factory=dict)
    """prices of devices, by their names"""
    otherwise: float | None = None
    """price of all other devices; None if it was not given"""

    def find_price(self, device: str) -> float | None:
        """Return the price of a device; None if it was not given."""
        return self.by_device.get(device, self.otherwise)


@dataclass(frozen=True, kw_only=True)
class CostLimits:
    """Prices and power of workers, and the dollars that a plan may cost."""

    prices: DevicePrices = field(default_factory=DevicePrices)
    """prices by device"""
    budget_dollars: float | None = None
    """most that a training run may cost; None for any amount"""
    watts: float | None = None
    """power that a worker is assumed to draw all the time; None for what the step times say"""

    def worker_seconds(self, device: str) -> float | None:
        """Return the worker-seconds on a device that the budget buys; None without a budget or a price."""
        price = self.prices.find_price(device)
        if price is None or self.budget_dollars is None:
            return None
        return self.budget_dollars / price * SECONDS_PER_HOUR


def require_known_devices(prices: DevicePrices, devices: Sequence[str]) -> None:
    """Refuse the price of a device that no row of the step times has."""
    if unknown := [name for name in prices.by_device if name not in devices]:
        named = [name for name in devices if name]
        problem = f"cannot use the price of {unknown[0]!r}: no row of --system has this device"
        if not named:
            raise EquipoiseError("option-choice", problem, "name devices in a column device, or give --price 3.06usd")
        raise EquipoiseError("option-choice", problem, f"its column device has {', '.join(named)}")


def list_unpriced_devices(prices: DevicePrices, devices: Sequence[str]) -> list[str]:
    """Return the devices without a price, formatted for a message."""
    return [format_device(device) for device in devices if prices.find_price(device) is None]


def convert_to_dollars(worker_seconds: float, price: float) -> float:
    """Return the dollars of worker-seconds at a price per worker and hour."""
    return worker_seconds * price / SECONDS_PER_HOUR
