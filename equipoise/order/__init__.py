"""Order of the examples in an epoch, with random access to any place of it."""

from equipoise.order.epoch_order import ExampleOrder, example_order

__all__ = ["ExampleOrder", "example_order"]
