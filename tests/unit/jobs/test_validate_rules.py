"""Each rule for a cluster file, apart from the others and from Ray's own validation."""

from pathlib import Path

import pytest
import ray

from jobs.cluster.validate import (
    LOCAL_PROVIDER,
    check_ec2,
    check_images,
    check_limits_command,
    check_mappings,
    check_no_keys,
    check_provider_module,
    check_required_keys,
    check_start_commands,
    describe_yaml_value,
    find_unknown_fields,
    main,
    validate_cluster_file,
)

ROOT = Path(__file__).parents[3]
IMAGE = f"rayproject/ray:{ray.__version__}-py311-gpu"
START = "RAY_AUTH_MODE=token ray start --head"
SCHEMAS = {
    "Machine": {"properties": {"name": {"type": "string"}, "disks": {"items": {"$ref": "Disk"}}, "labels": {}}},
    "Disk": {"properties": {"size": {"type": "integer"}, "next": {"$ref": "Disk"}}},
}


def build_config(head_commands=(START,), worker_commands=(START,), **values):
    commands = {"head_start_ray_commands": [*head_commands], "worker_start_ray_commands": [*worker_commands]}
    return commands | values


def list_parts(problems):
    """Return the part of the file that each problem names."""
    return [problem.partition(":")[0] for problem in problems]


@pytest.mark.parametrize(("value", "text"), [(None, "nothing"), ([1], "a list"), ("x", "'x'"), (3, "3")])
def test_value_is_described_in_a_few_words(value, text):
    assert describe_yaml_value(value) == text


def test_description_of_a_long_value_is_cut_after_forty_letters():
    assert describe_yaml_value("x" * 38) == "'" + "x" * 38 + "'"
    assert describe_yaml_value("x" * 60) == "'" + "x" * 39


def test_each_part_that_is_no_mapping_is_reported():
    config = {"provider": {}, "docker": None, "auth": [], "available_node_types": {"a": {}, "b": 3}, "setup": 1}
    assert [*check_mappings(config)] == [
        "docker must be a mapping, but is nothing",
        "auth must be a mapping, but is a list",
        "available_node_types.b must be a mapping, but is 3",
    ]
    assert [*check_mappings({"available_node_types": "x"})] == ["available_node_types must be a mapping, but is 'x'"]
    assert [*check_mappings({})] == []


def test_required_keys_are_reported_in_their_order():
    assert [*check_required_keys({"head_node_type": "x"})] == ["available_node_types is missing"]
    assert [*check_required_keys({})] == ["available_node_types is missing", "head_node_type is missing"]
    assert [*check_required_keys({"available_node_types": {}, "head_node_type": "x"})] == []


def test_unknown_fields_are_found_at_any_depth():
    value = {
        "name": {"first": 1},
        "nam": "x",
        "disks": [{"size": 1}, {"next": {"next": {"sise": 2}}, "type": "ssd"}],
        "labels": {"any": "thing"},
    }
    problems = [*find_unknown_fields(value, SCHEMAS["Machine"], SCHEMAS, "node")]
    assert list_parts(problems) == ["node.nam", "node.disks[1].next.next.sise", "node.disks[1].type"]


@pytest.mark.parametrize("value", ["text", 3, None, [], {}, [1, "x"]])
def test_value_without_fields_has_no_unknown_ones(value):
    assert [*find_unknown_fields(value, {"$ref": "Disk"}, SCHEMAS, "")] == []


def test_instance_type_and_subnets_are_those_of_ec2_and_of_ray():
    assert [*check_ec2({"InstanceType": "g5.xlarge", "SubnetIds": ["subnet-1"], "ImageId": "ami-1"})] == []
    for node_config in ({}, {"InstanceType": "g5.xlagre"}):
        [problem] = check_ec2(node_config)
        assert problem.startswith(".InstanceType: ") and "is not an instance type" in problem
    [problem] = check_ec2({"InstanceType": "g5.xlarge", "EbsOptimized": "yes"})
    assert problem.startswith(": ") and "EbsOptimized" in problem and "\n" not in problem


def test_local_node_has_no_configuration():
    assert [*check_no_keys({})] == []
    assert list_parts(check_no_keys({"a": 1, "b": 2})) == [".a", ".b"]


def test_commands_that_start_ray_with_a_token_are_accepted():
    assert [*check_start_commands(build_config(["pip install x", f"export A=1; {START}"]))] == []


def test_part_without_a_start_command_is_reported():
    head, worker = "head_start_ray_commands", "worker_start_ray_commands"
    assert list_parts(check_start_commands({})) == [head, worker]
    assert list_parts(check_start_commands(build_config(worker_commands=["ray stop"]))) == [worker]
    assert list_parts(check_start_commands(build_config(head_commands=["ray stop"]))) == [head]


def test_every_start_command_needs_the_token():
    problems = [*check_start_commands(build_config([START, "ray start --head"], ["ray start", "ray start"]))]
    assert list_parts(problems) == ["head_start_ray_commands", *["worker_start_ray_commands"] * 2]
    assert all("RAY_AUTH_MODE=token" in problem for problem in problems)


@pytest.mark.parametrize(
    ("option", "public_host"),
    [
        ("", None),
        ("--dashboard-host=127.0.0.1", None),
        ("--dashboard-host 127.0.0.1", None),
        ("--dashboard-host=localhost", None),
        ("--dashboard-host=0.0.0.0 --port=1", "0.0.0.0"),  # noqa: S104
        ("--dashboard-host ::", "::"),
    ],
)
def test_dashboard_listens_on_loopback_only(option, public_host):
    problems = [*check_start_commands(build_config([f"{START} {option}"]))]
    assert len(problems) == (public_host is not None)
    assert not problems or f"the dashboard listens on {public_host}:" in problems[0]


def test_head_that_starts_ray_sets_the_limits():
    limits = "python -m jobs.cluster.limits ~/ray_bootstrap_config.yaml"
    assert [*check_limits_command(build_config([START, limits]))] == []
    assert [*check_limits_command(build_config(["ray stop"]))] == []
    assert [*check_limits_command({})] == []
    assert list_parts(check_limits_command(build_config([START], [limits]))) == ["head_start_ray_commands"]


def test_only_our_node_provider_runs_on_this_machine():
    assert [*check_provider_module({"provider": {"module": LOCAL_PROVIDER}})] == []
    for provider in ({}, {"module": "theirs.Provider"}):
        [problem] = check_provider_module({"provider": provider})
        assert problem.startswith(f"provider.module: {provider.get('module')} would run")


def list_image_problems(docker, head_resources):
    node_types = {"head": {"resources": head_resources}, "gpu": {"resources": {"CPU": 4}}}
    return list_parts(check_images({"docker": docker, "available_node_types": node_types, "head_node_type": "head"}))


def test_images_pin_the_installed_version_of_ray():
    assert list_image_problems({"image": IMAGE, "head_image": IMAGE, "worker_image": ""}, {"CPU": 0}) == []
    other = IMAGE.replace(ray.__version__, "2.40.0")
    for name in ("image", "head_image", "worker_image"):
        assert list_image_problems({"image": IMAGE} | {name: other}, {"CPU": 0}) == [f"docker.{name}"]


def test_no_work_runs_on_the_head():
    for resources in ({}, {"CPU": 1}, {"CPU": None}):
        assert list_image_problems({}, resources) == ["available_node_types.head.resources"]


def test_file_of_several_documents_is_no_cluster_file(tmp_path):
    (tmp_path / "x.yaml").write_text("cluster_name: x\n---\ncluster_name: y\n")
    [problem] = validate_cluster_file(tmp_path / "x.yaml")
    assert "holds 2 YAML documents" in problem
    (tmp_path / "x.yaml").write_text("cluster_name: x\n---\napiVersion: v1\n")  # of which one is for Kubernetes
    assert len(validate_cluster_file(tmp_path / "x.yaml")) == 2


def run_main(monkeypatch, *files):
    monkeypatch.setattr("sys.argv", ["validate", *map(str, files)])
    return main()


def test_every_problem_of_every_file_is_printed(tmp_path, monkeypatch, capsys):
    (tmp_path / "types.yaml").write_text("provider: 3\nauth: 3\n")
    assert run_main(monkeypatch, tmp_path / "types.yaml", tmp_path / "none.yaml") == 2
    output = capsys.readouterr()
    assert output.out == "" and [line.split(":")[1].strip() for line in output.err.splitlines()] == [
        str(tmp_path / "types.yaml"),
        str(tmp_path / "types.yaml"),
        str(tmp_path / "none.yaml"),
    ]


def test_files_without_problems_are_reported_as_such(monkeypatch, capsys):
    assert run_main(monkeypatch, ROOT / "cluster.local.yaml", ROOT / "services" / "kuberay" / "shared.yaml") == 0
    assert capsys.readouterr() == ("no problems found\n", "")


def test_every_problem_ends_with_the_code_of_a_cluster_file(tmp_path, monkeypatch, capsys):
    (tmp_path / "odd.yaml").write_text('provider: "\\e[31m"\n')
    assert run_main(monkeypatch, tmp_path / "odd.yaml", tmp_path / "none.yaml") == 2
    errors = capsys.readouterr().err.splitlines()
    assert len(errors) == 2 and all(error.endswith(" [cluster-file]") and error.isprintable() for error in errors)
    assert run_main(monkeypatch, "") == 2
    assert capsys.readouterr().err.endswith("[option-format]\n")
