import json
import threading
from pathlib import Path

import pytest

from tests.mutation.__main__ import EQUIVALENT_FILE, read_equivalent
from tests.mutation.called_functions import CallTracer, TestCalls, name_functions
from tests.mutation.importers import find_test_files
from tests.mutation.kept_results import KeptResults
from tests.mutation.mutations import Mutation, list_mutations, needs_ray, sample_mutations
from tests.mutation.name_users import find_users_of_line
from tests.mutation.reaching_tests import MAX_SECONDS, TestGroup, TestReach, find_test_folder, take_fastest
from tests.mutation.warm_pytest import do_tests_pass, find_called_functions

ROOT = Path(__file__).parents[2]
MODULE = Path("module.py")
NESTED_FUNCTIONS = """
class A:
    def f(self):
        def g(x):
            return [x + 1 for _ in range(2)]

        return g(2)


def unused():
    return 3
"""


def list_faults(source):
    return {(mutation.kind, mutation.after) for mutation in list_mutations(MODULE, source.encode())}


@pytest.mark.parametrize(
    ("source", "fault"),
    [
        ("a < b", ("comparison", "a <= b")),
        ("a == b", ("comparison", "a != b")),
        ("a + b", ("operator", "(a - b)")),
        ("a and b", ("condition", "(a or b)")),
        ("-a", ("sign", "(a)")),
        ("x if a else y", ("condition", "(x if not a else y)")),
        ("f(a, b)", ("swapped arguments", "f(b, a)")),
        ("a = 3", ("constant", "4")),
        ("a = 2.0", ("constant", "2.2")),
        ("a = True", ("constant", "False")),
        ("a = f()", ("deleted statement", "pass")),
    ],
)
def test_fault_is_planted(source, fault):
    assert fault in list_faults(source)


def test_docstrings_annotations_and_formatted_strings_are_left_alone():
    assert list_faults('def f(a: "int | 3") -> "x":\n    """Text 3."""\n    return f"{a:.3f}"') == set()


def test_options_that_only_guard_against_other_faults_are_left_alone():
    assert list_faults("class A(Struct, frozen=True):\n    pass") == set()
    assert list_faults("return zip(a, strict=True)") == set()
    assert ("constant", "False") in list_faults("return f(a, other=True)")


def test_equal_faults_of_a_function_have_keys_of_their_own():
    faults = list_mutations(MODULE, b"def f():\n    return 1 + 1, 2\n")
    numbers = {fault.start: fault.number for fault in faults if fault.kind == "constant"}
    assert [numbers[start] for start in sorted(numbers)] == [" (1 of 2)", " (2 of 2)", ""]
    assert len({fault.key for fault in faults}) == len(faults)


def test_swapped_arguments_whose_order_means_nothing_are_no_fault():
    assert list_faults("np.maximum(a, b)\nmax(a, b)\nsuppress(A, B)") == {("deleted statement", "pass")}


def test_fault_replaces_its_piece_and_nothing_else():
    source = "é = 1\nif é < 2:  # keeps\n    é = 5\n".encode()
    (mutation,) = [fault for fault in list_mutations(MODULE, source) if fault.after == "é <= 2"]
    assert mutation.apply(source).decode() == "é = 1\nif é <= 2:  # keeps\n    é = 5\n"
    assert mutation.line == 2


def test_key_of_a_fault_stays_when_its_function_moves():
    source = "class A:\n    def f(self):\n        return 1\n\n    def g(self):\n        return 1\n"
    keys = [fault.key for fault in list_mutations(MODULE, source.encode())]
    assert keys == [fault.key for fault in list_mutations(MODULE, b"\n\n" + source.encode())]
    assert len({*keys}) == 2 and "A.f" in keys[0]


def test_sample_depends_on_the_seed_alone_and_every_fault_is_valid_python():
    first, again, other = (sample_mutations(ROOT, ["equipoise/runs"], 40, seed) for seed in (1, 1, 2))
    assert first == again != other
    for mutation in first:
        compile(mutation.apply((ROOT / mutation.path).read_bytes()), str(mutation.path), "exec")


@pytest.mark.parametrize(
    "line",
    [
        "import ray",
        "import ray.train as train",
        "from ray import tune",
        "from jobs.cluster.private_ray import start_private_ray",
    ],
)
def test_modules_that_need_ray_are_left_out(line, tmp_path):
    package = tmp_path / "package"
    package.mkdir()
    (package / "cluster.py").write_text(f"def start():\n    {line}\n\n    return 1\n")
    (package / "pure.py").write_text("import rayon\n\nx = 1\n")
    assert {mutation.path.name for mutation in sample_mutations(tmp_path, ["package"], 100, 0)} == {"pure.py"}


def test_no_module_of_the_library_is_left_out():
    assert not [path for path in (ROOT / "equipoise").rglob("*.py") if needs_ray(path)]


def test_every_equivalent_fault_has_a_reason_and_can_still_be_planted():
    lines = [line for line in EQUIVALENT_FILE.read_text().splitlines() if not line.startswith("#")]
    assert all(key and reason for key, _, reason in (line.partition("\t") for line in lines))
    keys = read_equivalent()
    assert len(keys) == len(lines)  # none is there twice
    paths = {Path(key.partition(" ")[0]) for key in keys}
    planted = {fault.key for path in paths for fault in list_mutations(path, (ROOT / path).read_bytes())}
    assert sorted(keys - planted) == []


def test_direct_tests_of_a_module_come_before_indirect_ones():
    direct, indirect, others = find_test_files(ROOT, Path("equipoise/runs/noise_scale.py"))
    assert "tests/unit/runs/test_noise_scale.py" in direct
    assert not set(direct) & set(indirect) and not {*direct, *indirect} & set(others)
    for folder in ("tests/contract", "tests/unit/runs"):
        expected = {str(path.relative_to(ROOT)) for path in (ROOT / folder).rglob("test_*.py")}
        assert expected <= {*direct, *indirect, *others}
    assert "tests/unit/jobs/test_sweep.py" not in others


def test_tests_of_a_package_are_run_for_modules_that_they_reach_by_a_registry():
    *_, others = find_test_files(ROOT, Path("equipoise/optimizers/fused_optimizers.py"))
    assert "tests/unit/optimizers/test_run_optimizer.py" in others
    *_, others = find_test_files(ROOT, Path("jobs/cli/progress.py"))
    assert "tests/unit/jobs/test_yaml_files.py" in others


def test_modules_that_a_helper_of_a_test_imports_count_as_its_own():
    direct, indirect, _ = find_test_files(ROOT, Path("equipoise/drift/reference/thresholds.py"))
    assert "tests/unit/recorded/test_drift_reference.py" in [*direct, *indirect]


def test_called_functions_are_named_like_the_scopes_of_mutations(tmp_path):
    names = {}
    exec(compile(NESTED_FUNCTIONS, str(tmp_path / "module.py"), "exec"), names)  # noqa: S102 - a constant of this file
    tracer = CallTracer(tmp_path)
    tracer.start()
    thread = threading.Thread(target=names["A"]().f)
    thread.start()
    thread.join()
    tracer.stop()
    called = name_functions(tmp_path, tracer.take())
    assert called == [("module.py", "A.f"), ("module.py", "A.f.g")]
    faults = list_mutations(MODULE, NESTED_FUNCTIONS.encode())
    assert {fault.scope for fault in faults if fault.kind in ("operator", "constant")} == {"A.f", "A.f.g", "unused"}


def test_files_that_reach_a_function_are_run_in_order_of_their_time():
    reach = TestReach()

    def add_file(name, *functions, seconds):
        test = f"tests/unit/{name}::test"
        functions = [("equipoise/rng.py", function) for function in functions]
        reach.add_file(f"tests/unit/{name}", TestCalls({test: functions}, {test: seconds}), seconds)

    add_file("test_slow.py", "f", seconds=9.0)
    add_file("test_fast.py", "f", seconds=1.0)
    add_file("test_rng.py", "f", "g", seconds=5.0)
    reach.add_file("tests/unit/test_failing.py", None, 0.5)
    mutation = Mutation(Path("equipoise/rng.py"), "f", 1, 0, 1, "constant", "1", "2")
    groups = reach.find_test_groups(ROOT, mutation)
    assert [group.files for group in groups] == [
        ["tests/unit/test_rng.py"],
        ["tests/unit/test_fast.py", "tests/unit/test_slow.py"],
        ["tests/unit/test_fast.py", "tests/unit/test_rng.py", "tests/unit/test_slow.py"],
    ]
    assert groups[2].tests is None and set(groups[0].tests) == {
        f"tests/unit/test_{name}.py::test" for name in ("rng", "fast", "slow")
    }
    elsewhere = Mutation(Path("equipoise/rng.py"), "", 1, 0, 1, "constant", "1", "2")
    reach.seconds_by_file |= {path: 1.0 for group in find_test_files(ROOT, Path("equipoise/rng.py")) for path in group}
    direct, indirect, others = find_test_files(ROOT, Path("equipoise/rng.py"))
    assert reach.find_test_groups(ROOT, elsewhere) == [
        TestGroup(direct),
        TestGroup(sorted([*indirect, *others])[: int(MAX_SECONDS)]),
    ]
    own_tests = "tests/unit/test_rng.py"
    reach.add_file(own_tests, None, 0.5)
    assert not any(own_tests in group.files for group in reach.find_test_groups(ROOT, elsewhere))


def test_unit_tests_of_a_package_lie_in_its_folder_or_in_that_around_it():
    folders = {
        "equipoise/training/store_steps/store_sync.py": "tests/unit/training/store_steps",
        "equipoise/training/sharding/tensor/tensor_steps.py": "tests/unit/training/sharding",
        "services/http/errors.py": "tests/unit/services/http",
        "equipoise/rng.py": "tests/unit",
    }
    for module, folder in folders.items():
        assert find_test_folder(ROOT, Path(module)) == Path(folder)


def test_files_beyond_what_a_fault_is_worth_are_left_out():
    seconds = {"slow": 70.0, "fast": 40.0, "medium": 60.0}
    assert take_fastest([*seconds], seconds) == ["fast", "medium"]


def test_constant_is_used_where_its_name_is(tmp_path):
    package = tmp_path / "equipoise"
    package.mkdir()
    (package / "a.py").write_text(
        "LIMIT = 3\nTWICE = 2 * LIMIT\nOTHER = 1\n\n\ndef f(x=TWICE):\n    return x\n\n\ndef g():\n    return OTHER\n"
    )
    classes = "class A:\n    def h(self):\n        return LIMIT\n\n\nclass B:\n    limit = LIMIT\n"
    (package / "b.py").write_text(f"from equipoise.a import LIMIT\n\n\n{classes}")
    (package / "c.py").write_text("from equipoise.a import OTHER\n\n\ndef f():\n    LIMIT = OTHER\n    return LIMIT\n")
    users = {("equipoise/a.py", "f"), ("equipoise/b.py", "A.h"), ("equipoise/b.py", "B")}
    assert find_users_of_line(tmp_path, Path("equipoise/a.py"), 1) == users
    assert find_users_of_line(tmp_path, Path("equipoise/a.py"), 3) == {("equipoise/a.py", "g"), ("equipoise/c.py", "f")}
    assert find_users_of_line(tmp_path, Path("equipoise/a.py"), 7) == set()


TESTS = """
import pytest
from module import A, imported, shared, unused

imported()


@pytest.fixture(scope="module")
def value():
    return shared()


def test_one():
    assert A().f() == [3, 3]


@pytest.mark.parametrize("expected", [3, pytest.param(4, marks=pytest.mark.xfail(strict=True))])
def test_two(value, expected):
    assert unused() == expected
"""


@pytest.mark.filterwarnings("ignore:.*:DeprecationWarning")  # of a process that is made beside threads
def test_what_each_test_calls_is_recorded_and_a_selection_runs_nothing_else(tmp_path):
    module = NESTED_FUNCTIONS + "\n\ndef imported():\n    pass\n\n\ndef shared():\n    return 1\n"
    (tmp_path / "module.py").write_text(module)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n    slow\n    thorough\n")
    (tmp_path / "test_module.py").write_text(TESTS)
    calls = find_called_functions(tmp_path, "test_module.py", tmp_path / "calls.json")
    one, three, four = (f"test_module.py::test_{name}" for name in ("one", "two[3]", "two[4]"))
    functions = {
        test: {name for path, name in called if path == "module.py"} for test, called in calls.functions.items()
    }
    common = {"A", "imported", "shared"}  # the body of a class is called when its module is imported
    assert functions == {one: common | {"A.f", "A.f.g"}, three: common | {"unused"}, four: common | {"unused"}}
    assert TestCalls.from_json(json.loads(json.dumps(calls.to_json()))) == calls
    (tmp_path / "module.py").write_text(module.replace("return 3", "return 5"))
    assert not do_tests_pass(tmp_path, ["test_module.py"]) and not do_tests_pass(tmp_path, ["test_module.py"], [three])
    assert do_tests_pass(tmp_path, ["test_module.py"], [one]) and do_tests_pass(
        tmp_path, ["test_module.py"], ["no test"]
    )


def test_results_outlive_an_interruption_in_the_middle_of_a_line(tmp_path):
    path = tmp_path / "verdicts.jsonl"
    KeptResults(path).add("first", True)
    with path.open("a") as file:
        file.write('\n{"key": "cut off", "val')
    KeptResults(path).add("second", [["a", "b"], 1.5])
    assert KeptResults(path).values == {"first": True, "second": [["a", "b"], 1.5]}
