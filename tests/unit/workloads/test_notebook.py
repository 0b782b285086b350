"""Names of functions of a notebook: by their source, and found again only where they were registered."""

import functools

import pytest

from equipoise.config import TrainConfig
from equipoise.workloads import digits, find_workload_factory, load_workload
from equipoise.workloads.notebook import describe_bytecode, digest_source, name_factory, register_factory
from tests.support.errors import raises_code

SOURCE = "def make(config):\n    return [value + {number} for value in (1, 2)]\n"


def build_function(number=1, indent="", prefix=""):
    """Build a function without a source file, as of a prompt."""
    namespace = {"__name__": "__main__"}
    exec(prefix + SOURCE.format(number=number).replace("    return", f"    {indent}return"), namespace)  # noqa: S102
    return namespace["make"]


def make_digits(config):
    return digits(config)


def test_function_that_can_be_imported_has_the_name_of_its_module():
    assert name_factory(make_digits) == f"{__name__}:make_digits"


def test_function_of_a_prompt_is_named_by_what_it_does():
    name = name_factory(build_function())
    assert name.startswith("notebook:make@") and name == name_factory(build_function())
    assert name == name_factory(build_function(prefix="\n\n\n"))  # its lines do not count
    assert name != name_factory(build_function(number=2))  # a constant of a nested function


def test_nested_function_and_lambda_are_named_by_their_source():
    def make_digits(config):
        return digits(config)

    assert name_factory(make_digits) == f"notebook:make_digits@{digest_source(make_digits)}"
    assert name_factory(lambda config: digits(config)).startswith("notebook:lambda@")


def test_sets_of_constants_are_described_in_one_order():
    functions = [eval(f"lambda value: value in {{{words}}}") for words in ("'a', 'b', 'c'", "'c', 'b', 'a'")]  # noqa: S307
    first, second = (describe_bytecode(function.__code__) for function in functions)
    assert first == second and "frozenset" not in first


def test_registered_function_is_loaded_by_its_name():
    def make_easy_digits(config):
        return digits(config)

    name = name_factory(make_easy_digits)
    with raises_code("workload-unknown", "equipoise.sweep", "module:attribute"):
        find_workload_factory(name)
    register_factory(name, make_easy_digits)
    assert find_workload_factory(name) is make_easy_digits
    assert load_workload(TrainConfig(workload=name)).target == 0.96


@pytest.mark.parametrize(
    "value", [digits(TrainConfig(workload="digits")), functools.partial(make_digits), None, "digits"]
)
def test_what_is_no_function_is_refused(value):
    with raises_code("workload-invalid", "give a function"):
        name_factory(value)
