"""Sizes of a model and of a backward pass of it, from which the memory of a worker follows."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class ModelSizes:
    """Bytes of a model in its precision, and of passes with or without --recompute, as measured on one worker."""

    parameter_bytes: int
    """all parameters"""
    trainable_bytes: int
    """parameters that learn; their gradients take as much"""
    buffer_bytes: int = 0
    """running statistics and other buffers"""
    factored_bytes: int = 0
    """state of an optimizer that keeps sums of rows and columns in place of matrices (Adafactor)"""
    largest_unit_bytes: int = 0
    """parameters of the largest unit that `full` gathers at a time"""
    example_bytes: int
    """inputs and targets of an example, as the model takes them"""
    input_bytes: int = 0
    """inputs of an example, by which several steps are prepared at a time; 0 where micro-batches are read one by one"""
    kept_bytes: float
    """what a forward pass keeps for the backward pass whatever the batch, such as weights cast to bfloat16"""
    kept_bytes_per_example: float
    """what it keeps for each example besides"""
    pass_bytes: float
    """peak of a forward and backward pass whatever the batch, without the gradients of parameters"""
    pass_bytes_per_example: float
    """what each example adds to this peak"""
    received_bytes_per_example: float = 0.0
    """value that a stage of a pipeline gets from the one before"""
    sent_bytes_per_example: float = 0.0
    """value that a stage of a pipeline hands to the next"""
    parts: tuple["ModelSizes", ...] = ()
    """sizes of what each worker of a replica holds and computes where layers are divided; one where they are equal"""
    parts_sharding: str = "none"
    """value of --sharding that divides the model into these parts"""

    def kept_at(self, batch_size: float) -> float:
        """Return the bytes that a forward pass of a batch keeps for the backward pass."""
        return self.kept_bytes + self.kept_bytes_per_example * batch_size

    def pass_at(self, batch_size: float) -> float:
        """Return the peak bytes of a forward and backward pass of a batch, without the gradients of parameters."""
        return self.pass_bytes + self.pass_bytes_per_example * batch_size
