"""Plans that were measured with something else than the run they are given to."""

from dataclasses import replace

import pytest
from PIL import Image

from equipoise.config import TrainConfig
from equipoise.hardware_facts import HardwareFacts
from equipoise.planning.document import PLAN_FILE, PlanDocument
from equipoise.planning.training_setup import SETUP_OPTIONS
from equipoise.storage.atomic import write_json
from equipoise.workloads import load_workload
from jobs.cli.describe_setup import describe_training_setup, digest_data, digest_tensors
from jobs.cli.plan_setup import require_same_setup
from tests.support.errors import raises_code
from tests.support.sweep_folders import write_sweep_folder
from tests.unit.jobs.test_confirmation import build_refuting_run

DIGITS = TrainConfig(workload="digits")
MACHINE = HardwareFacts(processor="AMD EPYC", device="cpu")


def write_plan_for(config, folder):
    """Write a plan that was measured with a config."""
    out = write_sweep_folder(folder / "sweep")
    document = PlanDocument.read(out / PLAN_FILE)
    setup = describe_training_setup(config, load_workload(config), MACHINE)
    write_json(out / PLAN_FILE, replace(document, setup=setup).to_json())
    return out


def write_photos(folder, brightness=0):
    """Write a folder of two classes with 40 small images each."""
    for label in ("cat", "dog"):
        (folder / label).mkdir(parents=True)
        for index in range(40):
            Image.new("RGB", (16, 16), (index, brightness, 80 * (label == "cat"))).save(folder / label / f"{index}.png")
    return folder


@pytest.fixture(scope="module")
def digits_plan(tmp_path_factory):
    return write_plan_for(DIGITS, tmp_path_factory.mktemp("plan"))


def test_plan_for_the_same_setup_is_accepted(digits_plan):
    same = replace(DIGITS, workers=4, batch_size=7, lr=0.3, seed=5, grad_accumulation=2, model="lenet", target=0.96)
    assert load_workload(DIGITS).target == 0.96
    assert require_same_setup(digits_plan, same, load_workload(same)) == MACHINE


@pytest.mark.parametrize(
    ("changes", "mentioned"),
    [
        ({"workload": "vending"}, ["workload digits (this run: vending)", "model", "input shape"]),
        ({"model": "mobilenet_v3_small", "image_size": 32}, ["model LeNet", "MobileNetV3", "input shape"]),
        ({"image_size": 28}, ["input shape 1 x 16 x 16 (this run: 1 x 28 x 28)"]),
        ({"optimizer": "adamw"}, ["--optimizer sgd (this run: adamw)"]),
        ({"schedule": "cosine"}, ["--schedule constant (this run: cosine)"]),
        ({"precision": "bf16"}, ["--precision fp32 (this run: bf16)"]),
        ({"augment": False}, ["--augment True (this run: False)"]),
        ({"weight_decay": 1e-4}, ["--weight-decay 0 (this run: 0.0001)"]),
        ({"threads": 2}, ["--threads 1 (this run: 2)"]),
        ({"all_reduce": "ring"}, ["--all-reduce backend (this run: ring)"]),
        ({"mixup": 0.2}, ["--mixup", "(this run: 0.2)"]),
        ({"grow_batch": "2@500"}, ["--grow-batch", "(this run: 2@500)"]),
        ({"scaling_rule": "linear"}, ["--scaling-rule", "(this run: linear)"]),
    ],
)
def test_plan_for_another_setup_is_refused_by_name(digits_plan, changes, mentioned):
    config = replace(DIGITS, **changes)
    with raises_code("plan-mismatch", digits_plan, *mentioned):
        require_same_setup(digits_plan, config, load_workload(config))


def test_momentum_and_sums_that_a_plan_with_servers_sets_are_its_own(tmp_path):
    out = write_plan_for(replace(DIGITS, all_reduce="ring"), tmp_path)
    document = PlanDocument.read(out / PLAN_FILE)
    plan = replace(document.plan, exchange="async:2", momentum=0.0)
    write_json(out / PLAN_FILE, replace(document, plan=plan, status="not confirmed", confirmations=()).to_json())
    own = replace(DIGITS, workers=4, sync="async:2", momentum=0.0)
    assert require_same_setup(out, own, load_workload(own)) == MACHINE
    with raises_code("plan-mismatch", "--momentum 0 (this run: 0.9)"):
        require_same_setup(out, replace(own, momentum=0.9), load_workload(own))


def test_note_tells_that_the_target_is_another(digits_plan, capsys):
    for target, is_noted in ((None, False), (0.96, False), (0.9, True)):
        config = replace(DIGITS, target=target)
        assert require_same_setup(digits_plan, config, load_workload(config)) == MACHINE
        assert ("target of at least 0.96" in capsys.readouterr().err) == is_noted


def test_plan_is_not_applied_to_a_run_without_a_target(digits_plan, capsys):
    workload = replace(load_workload(DIGITS), target=None)
    with raises_code("option-missing", digits_plan, "cannot apply --plan", "--target"):
        require_same_setup(digits_plan, DIGITS, workload)
    assert require_same_setup(digits_plan, DIGITS, workload, run_has_ended=True) == MACHINE  # its model is published
    assert "this run has none" in capsys.readouterr().err


def test_plan_for_other_data_is_refused(tmp_path):
    photos = TrainConfig(workload="folder", data=str(write_photos(tmp_path / "photos")), image_size=16, model="lenet")
    plan = write_plan_for(photos, tmp_path)
    copies = replace(photos, data=str(write_photos(tmp_path / "copies")))
    require_same_setup(plan, copies, load_workload(copies))
    others = replace(photos, data=str(write_photos(tmp_path / "others", brightness=9)))
    with raises_code("plan-mismatch", "data with digest"):
        require_same_setup(plan, others, load_workload(others))


def test_plan_of_tables_fits_every_run(digits_plan, tmp_path):
    document = PlanDocument.read(digits_plan / PLAN_FILE)
    write_json(tmp_path / PLAN_FILE, replace(document, setup=None).to_json())
    config = replace(DIGITS, optimizer="adamw")
    assert require_same_setup(tmp_path, config, load_workload(config)) is None


def warn_of_plan(document, folder, capsys, run_has_ended=False):
    """Return what is printed about a plan when it is applied."""
    write_json(folder / PLAN_FILE, document.to_json())
    require_same_setup(folder, DIGITS, load_workload(DIGITS), run_has_ended)
    return capsys.readouterr().err


def test_plan_that_no_run_confirmed_is_said_to_be_so(digits_plan, tmp_path, capsys):
    document = PlanDocument.read(digits_plan / PLAN_FILE)
    confirming = build_refuting_run(document.plan, document.plan.seconds.high)
    assert warn_of_plan(document.with_confirmations([confirming]), tmp_path, capsys) == ""
    unconfirmed = warn_of_plan(document, tmp_path, capsys)
    assert unconfirmed.startswith("note: the plan at") and "is not confirmed: no training run" in unconfirmed


@pytest.mark.parametrize(("seconds", "said"), [(None, "missed the target"), (9500.0, "took 9,500 s")])
def test_plan_that_a_run_refuted_is_warned_of(seconds, said, digits_plan, tmp_path, capsys):
    document = PlanDocument.read(digits_plan / PLAN_FILE)
    run = build_refuting_run(document.plan, seconds)
    warning = warn_of_plan(replace(document, confirmations=(run,)), tmp_path, capsys)
    assert warning.startswith("warning: the plan at") and f"with its settings {said} where" in warning
    other = replace(run, workers=run.workers + 1)
    assert warn_of_plan(replace(document, confirmations=(other,)), tmp_path, capsys).startswith("note:")


def test_run_of_the_plan_that_is_published_is_not_said_to_be_missing(digits_plan, tmp_path, capsys):
    document = PlanDocument.read(digits_plan / PLAN_FILE)
    assert warn_of_plan(document, tmp_path, capsys, run_has_ended=True) == ""
    refuted = replace(document, confirmations=(build_refuting_run(document.plan, None),))
    assert warn_of_plan(refuted, tmp_path, capsys, run_has_ended=True).startswith("warning: the plan at")


def test_learning_rate_schedule_depends_on_the_most_examples(tmp_path):
    cosine = replace(DIGITS, schedule="cosine", max_examples=50_000)
    plan = write_plan_for(cosine, tmp_path)
    require_same_setup(plan, cosine, load_workload(cosine))
    longer = replace(cosine, max_examples=1_000_000)
    with raises_code("plan-mismatch", "--max-examples 50000 (this run: 1000000)"):
        require_same_setup(plan, longer, load_workload(longer))


@pytest.mark.parametrize("missing", [["momentum"], ["threads", "compile"], list(SETUP_OPTIONS)])
def test_option_that_the_setup_does_not_say_is_refused_by_name(missing, digits_plan, tmp_path):
    document = PlanDocument.read(digits_plan / PLAN_FILE)
    options = {name: value for name, value in document.setup.options.items() if name not in missing}
    write_json(tmp_path / PLAN_FILE, replace(document, setup=replace(document.setup, options=options)).to_json())
    flags = [f"--{name.replace('_', '-')} that it does not say" for name in missing]
    with raises_code("plan-mismatch", *flags):
        require_same_setup(tmp_path, DIGITS, load_workload(DIGITS))


def test_most_examples_do_not_matter_without_a_schedule(digits_plan):
    longer = replace(DIGITS, max_examples=1_000_000)
    require_same_setup(digits_plan, longer, load_workload(longer))


def test_default_of_an_option_is_the_same_as_its_value(digits_plan):
    explicit = replace(DIGITS, init_from=None, body_lr_scale=1.0)
    assert describe_training_setup(explicit, load_workload(explicit), MACHINE).options["body_lr_scale"] == 1.0
    assert describe_training_setup(DIGITS, load_workload(DIGITS), MACHINE).options["body_lr_scale"] == 1.0


def test_initial_weights_of_a_finished_run_may_be_gone(digits_plan, tmp_path):
    document = PlanDocument.read(digits_plan / PLAN_FILE)
    tuned = replace(DIGITS, init_from=str(tmp_path / "gone"), body_lr_scale=1.0)
    write_json(
        tmp_path / PLAN_FILE, replace(document, setup=replace(document.setup, initial_weights="0" * 12)).to_json()
    )
    with raises_code("pretrained-unavailable"):
        require_same_setup(tmp_path, tuned, load_workload(DIGITS))
    assert require_same_setup(tmp_path, tuned, load_workload(DIGITS), run_has_ended=True) == MACHINE


def test_digests_depend_on_labels_and_names():
    workload = load_workload(DIGITS)
    labels = workload.validation.targets.roll(1)
    assert digest_data(workload) != digest_data(
        replace(workload, validation=replace(workload.validation, targets=labels))
    )
    weights = workload.model().state_dict()
    assert digest_tensors(weights) == digest_tensors(dict(reversed(weights.items())))
    assert digest_tensors(weights) != digest_tensors({f"{name}.": value for name, value in weights.items()})


def test_plan_for_a_device_says_which(digits_plan, tmp_path, capsys):
    document = PlanDocument.read(digits_plan / PLAN_FILE)
    document = replace(document, setup=None, plan=replace(document.plan, device="h100"))
    note = warn_of_plan(document, tmp_path, capsys)
    assert f"note: the plan at {tmp_path} is for workers on h100: " in note
    assert "h100" not in warn_of_plan(document, tmp_path, capsys, run_has_ended=True)
