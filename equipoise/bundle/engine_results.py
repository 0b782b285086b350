"""Measurements of the engines of a bundle, as its manifest keeps them."""

from dataclasses import dataclass


@dataclass(frozen=True)
class EngineResult:
    """Agreement of one engine with eager PyTorch, and its seconds per call."""

    engine: str
    """name of the engine"""
    seconds: dict[int, float] | None
    """median seconds per call by batch size; None if the engine does not run here"""
    error: float | None
    """largest difference of an output from eager's, relative to eager's largest value; None if it does not run here"""
    agrees: bool
    """whether every label equals eager's and the error is small enough"""
    why_not: str = ""
    """exception that kept the engine from running here; empty if it runs"""


@dataclass(frozen=True, kw_only=True)
class EngineEntry:
    """Engine that a model is served with, the reason for it, and the measurements of all engines."""

    name: str
    """engine that the model is served with"""
    why: str
    """reason for choosing it"""
    table: list[EngineResult]
    """measurements of all engines"""
