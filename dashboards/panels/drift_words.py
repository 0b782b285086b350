"""Words of a drift page that depend on what the model takes: images, rows of a table or texts."""

from dataclasses import dataclass

from equipoise.drift.features.statistic_schema import ProfileKind


@dataclass(frozen=True, kw_only=True)
class ExampleWords:
    """What the examples of one kind are called, and what is measured of them."""

    singular: str
    plural: str
    charted: str
    """two statistics that charts follow, as examples of them"""
    conditions: str
    """what a condition is recognized by"""

    @property
    def number_axis(self) -> str:
        """Title of an axis of the examples of a stream in their order."""
        return f"{self.singular} number, from the first one answered"

    @property
    def reading_of_history(self) -> str:
        """How to read charts over the examples of a stream."""
        return (
            f"A chart follows one statistic of the {self.plural}, such as {self.charted}. A height of h says that"
            f" without drift such a value comes once in about e^h {self.plural}: at 10 once in 22,000. The dashed line"
            " is where a false alarm would come as rarely as requested. Upright lines mark when the change began, by"
            " estimate, and when the alarm was raised. Of all charts the highest are drawn, and what is far above the"
            " threshold is cut off."
        )

    @property
    def reading_of_bars(self) -> str:
        """How to read the charts of a set of examples."""
        return (
            f"Each bar is a test of one statistic of the {self.plural}, such as {self.charted}, against those of the"
            " reference. A bar of length h says that without drift so large a difference comes in one set of"
            f" {self.plural} of 10^h. The upright mark is the bar's threshold: all thresholds together call one set in"
            " a hundred without drift drifted."
        )

    @property
    def reading_of_classes(self) -> str:
        """How to read the shares of predicted classes."""
        return (
            "Grey is how often the model predicts each class on its reference, blue how often it does now. Where"
            f" {self.plural} have changed, this need not be the mix of what they show: the model may take one class for"
            " another."
        )

    @property
    def reading_of_conditions(self) -> str:
        """How to read the shares of known conditions."""
        return (
            f"Each {self.singular} belongs to the known condition that its statistics, such as {self.conditions}, fit"
            f" best. At each place the height of an area is the share of one condition in the {self.plural} around it."
            f" Traffic that changes between known conditions is no drift. {self.plural.capitalize()} of a condition"
            " that the model does not know are counted in the nearest one; the charts show how far they are from it."
        )


READING_OF_ANSWERS = (
    "The answers on the reference are divided into four quarters of equal size, by their height: each grey bar is a"
    " quarter. Blue is the share of the answers that lies there now. Where rows have changed, the answers move with"
    " them, whether the model is right or not."
)
READING_OF_BOX_COUNTS = (
    "Grey is in how many images of the reference the model finds a number of boxes, blue in how many it does now. Where"
    " images have changed, this need not be what they show: the model may miss boxes, or find some that are not there."
)
EXAMPLE_WORDS: dict[ProfileKind, ExampleWords] = {
    "image": ExampleWords(
        singular="image",
        plural="images",
        charted="their brightness or how sure the model is",
        conditions="colours and sharpness",
    ),
    "table": ExampleWords(
        singular="row",
        plural="rows",
        charted="the mean or the spread of a column, the missing values of one, or the model's answer",
        conditions="the columns",
    ),
    "text": ExampleWords(
        singular="text",
        plural="texts",
        charted="their length, the characters in them, or the nats per token that the model needs",
        conditions="length and characters",
    ),
    "boxes": ExampleWords(
        singular="image",
        plural="images",
        charted="their brightness, the number of boxes found or how sure the model is of them",
        conditions="colours and sharpness",
    ),
}
