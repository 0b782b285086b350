"""GET /capture says why no requests are kept, where no model has a drift reference."""

from types import SimpleNamespace

from equipoise.drift.reference.profile import ReferenceUnavailable
from services.routes.captures import explain_nothing_kept
from tests.support.drift_data import shapes_profile


def build_registry(kind="image", **references):
    versions = {
        name: {"current": SimpleNamespace(reference=reference, bundle=SimpleNamespace(kind=kind))}
        for name, reference in references.items()
    }
    models = {name: SimpleNamespace(versions_by_role=lambda name=name: versions[name]) for name in references}
    return SimpleNamespace(models=models)


def test_reason_of_each_model_is_given_where_none_has_a_reference():
    few, off = ReferenceUnavailable("the reference has 64 images"), ReferenceUnavailable("drift detection is off")
    text = explain_nothing_kept(build_registry(lawn=few, roof=off))
    assert "lawn: the reference has 64 images" in text and "roof: drift detection is off" in text
    assert explain_nothing_kept(build_registry(lawn=few, shapes=shapes_profile())) is None
    assert explain_nothing_kept(build_registry(shapes=shapes_profile())) is None
    assert explain_nothing_kept(build_registry()) is None


def test_requests_of_other_kinds_are_not_kept():
    text = explain_nothing_kept(build_registry(kind="table", prices=shapes_profile()))
    assert "only images are kept" in text and "prices: it is a model of tables" in text
