"""GET /capture says why no requests are kept, where no model has a drift reference."""

from types import SimpleNamespace

from equipoise.drift.reference.profile import ReferenceUnavailable
from services.routes.captures import explain_nothing_kept
from tests.support.drift_data import shapes_profile


def build_registry(**references):
    versions = {name: {"current": SimpleNamespace(reference=reference)} for name, reference in references.items()}
    models = {name: SimpleNamespace(versions_by_role=lambda name=name: versions[name]) for name in references}
    return SimpleNamespace(models=models)


def test_reason_of_each_model_is_given_where_none_has_a_reference():
    few, off = ReferenceUnavailable("the reference has 64 images"), ReferenceUnavailable("drift detection is off")
    text = explain_nothing_kept(build_registry(lawn=few, roof=off))
    assert "lawn: the reference has 64 images" in text and "roof: drift detection is off" in text
    assert explain_nothing_kept(build_registry(lawn=few, shapes=shapes_profile())) is None
    assert explain_nothing_kept(build_registry(shapes=shapes_profile())) is None
    assert explain_nothing_kept(build_registry()) is None
