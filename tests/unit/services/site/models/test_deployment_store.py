"""Document of all deployments: it survives, is changed by one thread at a time, and a damaged one is refused."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from services.site.models.deployments.deployment import Deployment
from services.site.models.deployments.deployment_store import DOCUMENT_FILE, DeploymentStore
from tests.support.errors import raises_code


def build_deployment(name, port=8001):
    deployment = Deployment(name=name, model="digits", bundle="bundles/a", port=port, requires_key=True)
    return deployment.record_change("deploy", "bundles/a", 1.5)


def test_deployments_are_read_by_the_next_site(tmp_path):
    added = [build_deployment(name) for name in ("b", "a")]
    for deployment in added:
        DeploymentStore(tmp_path).add_deployment(lambda _, deployment=deployment: deployment)
    store = DeploymentStore(tmp_path)
    assert store.list_deployments() == added[::-1]
    assert store.find_deployment("b") == added[0]
    assert store.remove_deployment("b") == added[0] and store.list_deployments() == [added[1]]


def test_no_change_is_lost_when_many_are_made_at_once(tmp_path):
    store = DeploymentStore(tmp_path)
    store.add_deployment(lambda _: build_deployment("a", port=1))

    def count_up(_):
        return DeploymentStore(tmp_path).change_deployment("a", lambda each: replace(each, port=each.port + 1))

    with ThreadPoolExecutor(8) as pool:
        ports = {deployment.port for deployment in pool.map(count_up, range(40))}
    assert ports == {*range(2, 42)} and store.find_deployment("a").port == 41


def test_unknown_names_and_a_damaged_document_are_refused(tmp_path):
    store = DeploymentStore(tmp_path)
    assert store.list_deployments() == []
    for call in (store.find_deployment, store.remove_deployment):
        with raises_code("path-missing", "nothing"):
            call("nothing")
    for content in ("{", '{"deployments": [{"name": 3}]}'):
        (tmp_path / DOCUMENT_FILE).write_text(content)
        with raises_code("file-damaged", DOCUMENT_FILE):
            store.list_deployments()
