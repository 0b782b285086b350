"""Each rule for a KubeRay manifest at its limits, and the sentences that name the place and the remedy."""

import copy

import pytest
import ray

from jobs.cluster.validate_kuberay import (
    check_operator_rules,
    check_readiness_probe,
    check_schema,
    check_security,
    describe_types,
    drop_null_fields,
    find_cluster_spec,
    find_dropped_fields,
    format_field_path,
    group_containers,
    is_kubernetes_manifest,
    list_pod_groups,
    suggest_correction,
    suggest_field,
    validate_manifest,
    validate_manifests,
)

IMAGE = f"registry/equipoise:0.1-ray{ray.__version__}"
LIMITS_HOOK = {"postStart": {"exec": {"command": ["python", "-m", "jobs.cluster.limits"]}}}


def build_group(*containers, **fields):
    return {"template": {"spec": {"containers": list(containers) or [{"image": IMAGE}]}}} | fields


def build_manifest(kind="RayCluster", name="equipoise", spec=None, **cluster_fields):
    """Build a manifest without problems, whose cluster has these fields changed."""
    cluster = {
        "authOptions": {"mode": "token"},
        "rayVersion": ray.__version__,
        "headGroupSpec": build_group({"image": IMAGE, "lifecycle": LIMITS_HOOK}, rayStartParams={"num-cpus": "0"}),
        "workerGroupSpecs": [build_group(minReplicas=0, maxReplicas=8)],
    }
    cluster |= cluster_fields
    field = {"RayJob": "rayClusterSpec", "RayService": "rayClusterConfig"}.get(kind)
    return {
        "apiVersion": "ray.io/v1",
        "kind": kind,
        "metadata": {"name": name},
        "spec": ({field: cluster} if field else cluster) | (spec or {}),
    }


def list_parts(problems):
    """Return the path of the field that each problem names."""
    return [problem.partition(": ")[0] for problem in problems]


@pytest.mark.parametrize("kind", ["RayCluster", "RayJob", "RayService"])
def test_manifest_that_keeps_all_rules_has_no_problem(kind):
    manifest = build_manifest(kind, enableInTreeAutoscaling=True)
    assert [*check_operator_rules(manifest), *check_security(manifest)] == []


@pytest.mark.parametrize(("kind", "limit"), [("RayCluster", 53), ("RayJob", 47), ("RayService", 47)])
def test_name_has_at_most_as_many_letters_as_its_kind_allows(kind, limit):
    assert [*check_operator_rules(build_manifest(kind, "e" * limit))] == []
    [problem] = check_operator_rules(build_manifest(kind, "e" * (limit + 1)))
    assert problem.startswith(f"{kind}.metadata.name: ") and f"{limit} at most" in problem


@pytest.mark.parametrize(
    ("name", "is_valid"),
    [("a", True), ("a-1", True), ("a1", True), ("", False), (None, False), ("1a", False), ("a-", False), ("A", False)],
)
def test_name_is_one_of_kubernetes(name, is_valid):
    assert ([*check_operator_rules(build_manifest(name=name))] == []) == is_valid


@pytest.mark.parametrize(
    ("fields", "is_valid"),
    [
        ({"minReplicas": 8, "maxReplicas": 8}, True),
        ({"minReplicas": 9, "maxReplicas": 8}, False),
        ({"minReplicas": 1, "maxReplicas": 0}, False),
        ({"minReplicas": 0, "maxReplicas": 0}, True),
        ({"minReplicas": None, "maxReplicas": 0}, True),
        ({"maxReplicas": 1}, True),
        ({"minReplicas": 9}, True),
        ({"minReplicas": 9, "maxReplicas": None}, True),
    ],
)
def test_minimum_of_replicas_is_not_above_the_maximum(fields, is_valid):
    manifest = build_manifest(workerGroupSpecs=[build_group(), build_group(**fields)])
    expected = [] if is_valid else ["RayCluster.spec.workerGroupSpecs[1]"]
    assert list_parts(check_operator_rules(manifest)) == expected


def test_group_without_containers_is_reported():
    for template in ({}, None, {"spec": None}, {"spec": {"containers": []}}):
        assert group_containers({"template": template}) == []
        problems = check_operator_rules(build_manifest(workerGroupSpecs=[{"template": template}]))
        assert list_parts(problems) == ["RayCluster.spec.workerGroupSpecs[0].template.spec.containers"]
    assert group_containers(build_group({"name": "a"}, {"name": "b"})) == [{"name": "a"}, {"name": "b"}]


@pytest.mark.parametrize(
    ("spec", "has_problem"),
    [
        ({"ttlSecondsAfterFinished": 60}, True),
        ({"ttlSecondsAfterFinished": 60, "shutdownAfterJobFinishes": False}, True),
        ({"ttlSecondsAfterFinished": 60, "shutdownAfterJobFinishes": True}, False),
        ({"ttlSecondsAfterFinished": 0}, False),
    ],
)
def test_time_to_live_needs_a_job_that_shuts_down(spec, has_problem):
    expected = ["RayJob.spec.ttlSecondsAfterFinished"] * has_problem
    assert list_parts(check_operator_rules(build_manifest("RayJob", spec=spec))) == expected


def test_manifest_defines_a_cluster_or_selects_one():
    job = {"kind": "RayJob", "metadata": {"name": "x"}, "spec": {}}
    [problem] = check_operator_rules(job)
    assert problem.startswith("RayJob.spec.rayClusterSpec is missing")
    assert [*check_security(job)] == []
    job["spec"]["clusterSelector"] = {"ray.io/cluster": "x"}
    assert [*check_operator_rules(job), *check_security(job)] == []


def test_cluster_is_found_in_each_kind_of_manifest():
    for kind, path in (
        ("RayCluster", "spec"),
        ("RayJob", "spec.rayClusterSpec"),
        ("RayService", "spec.rayClusterConfig"),
    ):
        manifest = build_manifest(kind)
        found_path, cluster = find_cluster_spec(manifest)
        assert found_path == f"{kind}.{path}" and cluster["rayVersion"] == ray.__version__
        assert find_cluster_spec({"kind": kind, "spec": None}) == (f"{kind}.{path}", None)


def test_head_and_worker_groups_are_listed_with_their_paths():
    head, first, second = {"name": "head"}, {"name": "first"}, {"name": "second"}
    cluster = {"headGroupSpec": head, "workerGroupSpecs": [first, second]}
    assert [*list_pod_groups("RayJob.x", cluster)] == [
        ("RayJob.x.headGroupSpec", head),
        ("RayJob.x.workerGroupSpecs[0]", first),
        ("RayJob.x.workerGroupSpecs[1]", second),
    ]
    assert [*list_pod_groups("x", {"headGroupSpec": head, "workerGroupSpecs": None})] == [("x.headGroupSpec", head)]


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"authOptions": None}, "authOptions"),
        ({"authOptions": {"mode": "disabled"}}, "authOptions"),
        ({"rayVersion": "2.40.0"}, "rayVersion"),
        ({"rayVersion": None}, "rayVersion"),
        ({"headGroupSpec": build_group(rayStartParams={"num-cpus": "1"})}, "headGroupSpec.rayStartParams"),
        ({"headGroupSpec": build_group(rayStartParams=None)}, "headGroupSpec.rayStartParams"),
        ({"workerGroupSpecs": [build_group({"image": "ray:2.40.0"})]}, "workerGroupSpecs[0]"),
        ({"workerGroupSpecs": [build_group({})]}, "workerGroupSpecs[0]"),
        ({"workerGroupSpecs": [build_group({"image": f"ray{ray.__version__}/x:1"})]}, "workerGroupSpecs[0]"),
    ],
)
def test_cluster_that_breaks_a_security_rule_is_reported(fields, path):
    [problem] = check_security(build_manifest("RayJob", **fields))
    assert problem.startswith(f"RayJob.spec.rayClusterSpec.{path}: ")


def test_containers_beside_ray_may_have_any_image():
    sidecar = {"image": "proxy:1"}
    assert [*check_security(build_manifest(workerGroupSpecs=[build_group({"image": IMAGE}, sidecar)]))] == []
    problems = check_security(build_manifest(workerGroupSpecs=[build_group(sidecar, {"image": IMAGE})]))
    assert list_parts(problems) == ["RayCluster.spec.workerGroupSpecs[0]"]


@pytest.mark.parametrize(
    ("kind", "autoscales", "hooks", "has_problem"),
    [
        ("RayCluster", True, [LIMITS_HOOK], False),
        ("RayCluster", True, [None], True),
        ("RayCluster", True, [None, LIMITS_HOOK], True),
        ("RayJob", True, [None], True),
        ("RayCluster", False, [None], False),
        ("RayService", True, [None], False),
        ("RayCluster", True, [LIMITS_HOOK, None], False),
    ],
)
def test_head_of_an_autoscaling_cluster_for_jobs_sets_its_limits(kind, autoscales, hooks, has_problem):
    containers = [{"image": IMAGE, "lifecycle": hook} for hook in hooks]
    head = build_group(*containers, rayStartParams={"num-cpus": "0"})
    problems = [*check_security(build_manifest(kind, headGroupSpec=head, enableInTreeAutoscaling=autoscales))]
    assert len(problems) == has_problem and all("jobs.cluster.limits" in problem for problem in problems)


def test_workers_without_a_proxy_need_a_readiness_probe():
    probe = {"readinessProbe": {"httpGet": {"path": "/ready"}}}
    groups = [build_group({}), build_group(probe), build_group(probe, {}), build_group({}, probe)]
    problems = check_readiness_probe(build_manifest("RayService", workerGroupSpecs=groups))
    prefix = "RayService.spec.rayClusterConfig.workerGroupSpecs"
    assert list_parts(problems) == [f"{prefix}[0]", f"{prefix}[3]"]
    assert [*check_readiness_probe({"kind": "RayService", "spec": {}})] == []


def test_fields_that_parsing_drops_are_found_at_any_depth():
    config = {"a": 1, "b": [{"c": 2, "d": 3}, {"e": 4}], "f": {"g": {"h": 5}}, "i": [1, 2]}
    parsed = {"a": 9, "b": [{"c": 2}, {}], "f": {"g": {}}, "i": [1]}
    assert [*find_dropped_fields(config, parsed)] == [".b[0].d", ".b[1].e", ".f.g.h"]
    assert [*find_dropped_fields(config, config)] == []
    assert [*find_dropped_fields({"a": 1}, {})] == [".a"]
    assert [*find_dropped_fields({"a": {"b": 1}}, {"a": [1]}, "x")] == []


def test_null_fields_are_dropped_and_null_items_kept():
    value = {"a": None, "b": [None, {"c": None, "d": 0}], "e": {"f": {"g": None}}, "h": False}
    assert drop_null_fields(value) == {"b": [None, {"d": 0}], "e": {"f": {}}, "h": False}


def test_path_of_a_field_has_the_indices_of_lists():
    manifest = {"kind": "RayJob", "spec": {"groups": [{}, {"env": [{"name": 1}]}], "labels": {"0": {"x": 1}}}}
    assert format_field_path(manifest, []) == "RayJob"
    assert format_field_path(manifest, ["spec", "groups", 1, "env", 0, "name"]) == "RayJob.spec.groups[1].env[0].name"
    assert format_field_path(manifest, ["spec", "labels", "0", "x"]) == "RayJob.spec.labels.0.x"


def test_most_similar_field_is_suggested():
    known = ["image", "imagePullPolicy", "env"]
    assert suggest_field("imge", known) == "there is no such field; did you mean image?"
    assert suggest_field("imagePulPolicy", known).endswith("did you mean imagePullPolicy?")
    assert suggest_field(3, known) == suggest_field("zzz", known) == "there is no such field"


def test_types_are_named_as_in_yaml():
    assert describe_types("object") == "mapping"
    assert describe_types(["array", "string"]) == "list or string"


@pytest.mark.parametrize(
    ("value", "type_name", "correction"),
    [
        (True, "string", ': write "true"'),
        (False, "quantity", ': write "false"'),
        (2.5, "quantity", ': write "2.5"'),
        (0, "string", ': write "0"'),
        ("8GB", "quantity", ", such as 500m, 2 or 8Gi"),
        ([], "quantity", ", such as 500m, 2 or 8Gi"),
        ([], "string", ""),
        (3, "integer", ""),
        ("x", "integer", ""),
    ],
)
def test_correction_quotes_what_yaml_did_not_take_for_a_string(value, type_name, correction):
    assert suggest_correction(value, type_name) == correction


def test_schema_names_each_missing_and_unknown_field_once():
    claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"nme": "x", "name": 3}, "spec": {}}
    before = copy.deepcopy(claim)
    problems = [*check_schema(claim, "v1 PersistentVolumeClaim")]
    assert claim == before and len(problems) == len({*problems})
    assert "PersistentVolumeClaim.metadata.nme: there is no such field; did you mean name?" in problems
    assert 'PersistentVolumeClaim.metadata.name: 3 is not of type string: write "3"' in problems
    claim["metadata"] = {"name": "x", "nme": None}
    assert not [problem for problem in check_schema(claim, "v1 PersistentVolumeClaim") if "metadata" in problem]


def test_manifest_of_kubernetes_has_an_api_version():
    assert is_kubernetes_manifest([None, "x", {"apiVersion": "v1"}])
    assert not is_kubernetes_manifest([None, "x", ["apiVersion"], {"kind": "Pod"}])
    assert not is_kubernetes_manifest([])


def test_empty_documents_are_skipped():
    assert validate_manifests([None, None]) == []
    assert [*validate_manifests([None, {"apiVersion": "v2"}, 3])] == [
        *validate_manifest({"apiVersion": "v2"}),
        *validate_manifest(3),
    ]
