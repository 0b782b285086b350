import io

import numpy as np
import pytest
import torch
from PIL import Image, ImageEnhance, ImageFilter

from equipoise.drift.charts.baseline import CHARTED_FEATURES
from equipoise.drift.corruptions import CAUSE_NAMES, all_corruptions, invert_corruption
from equipoise.drift.diagnosis.effects import (
    FeatureShift,
    feature_weights,
    invert_line,
    project_on_path,
    rank_effects,
    subtract_effect,
)
from equipoise.drift.diagnosis.root_cause import diagnose_window
from equipoise.drift.diagnosis.window import window_from_sums
from equipoise.images.camera import blackbody_gain, linear_to_srgb8, srgb8_to_linear
from tests.support.drift_data import extract_shape_features, render_shapes, shapes_profile

# Left out: turned by quarters and mirrored, which a disc on a grey ground does not show.


def by_pil(change):
    def changed(some):
        made = [np.array(change(Image.fromarray(one.permute(1, 2, 0).numpy()))) for one in some]
        return torch.from_numpy(np.stack(made)).permute(0, 3, 1, 2)

    return changed


def through_jpeg(quality):
    def change(image):
        held = io.BytesIO()
        image.save(held, "JPEG", quality=quality)
        return Image.open(held)

    return by_pil(change)


def in_light(change):
    return lambda some: linear_to_srgb8(change(srgb8_to_linear(some)))


def lamp(kelvin):
    gain = torch.tensor(blackbody_gain(np.array([float(kelvin)]))[0]).float().view(3, 1, 1)
    return in_light(lambda linear: linear * gain)


def gains(red, blue):
    by = torch.tensor([red, 1, blue]).view(3, 1, 1)
    return lambda some: (some.float() * by).round().clamp(0, 255).byte()


def tint(stops):
    return in_light(lambda linear: linear * torch.tensor([1, 2**stops, 1]).view(3, 1, 1))


def brightness(factor):
    return by_pil(lambda image: ImageEnhance.Brightness(image).enhance(factor))


def contrast(factor):
    return by_pil(lambda image: ImageEnhance.Contrast(image).enhance(factor))


def veil(share):
    return in_light(lambda linear: linear + share * (1 - linear))


def spot(down, right):
    rows, columns = np.mgrid[-1:1:32j, -1:1:32j]
    shine = torch.from_numpy(np.exp(-((rows - down) ** 2 + (columns - right) ** 2) / 0.12)).float()
    return in_light(lambda linear: linear + 0.5 * shine)


def blur(radius):
    return by_pil(lambda image: image.filter(ImageFilter.GaussianBlur(radius)))


def noise(levels):
    def change(some):
        grain = np.random.default_rng(0).normal(0, levels, some.shape)
        return torch.from_numpy(np.clip(some.numpy() + grain, 0, 255).round().astype(np.uint8))

    return change


def turned(degrees):
    return by_pil(lambda image: image.rotate(degrees, resample=Image.Resampling.BILINEAR))


def moved_right(some):
    return torch.cat([some[..., :1].expand(-1, -1, -1, 4), some[..., :-4]], 3)


def moved_up(some):
    return torch.cat([some[:, :, 4:], some[:, :, -1:].expand(-1, -1, 4, -1)], 2)


def nearer(side):
    edge = (32 - side) // 2
    box = (edge, edge, 32 - edge, 32 - edge)
    return by_pil(lambda image: image.crop(box).resize((32, 32), Image.Resampling.BILINEAR))


def farther(image):
    return image.transform((32, 32), Image.Transform.AFFINE, (1.5, 0, -8, 0, 1.5, -8), Image.Resampling.BILINEAR)


CASES = {
    "colour temperature": {
        **{f"{kelvin} K": lamp(kelvin) for kelvin in (3500, 5000, 9000, 12000)},
        "red up, blue down": gains(1.1, 0.9),
        "more so": gains(1.2, 0.85),
        "red down, blue up": gains(0.9, 1.1),
    },
    "tint": {"greener": tint(0.3), "magenta": tint(-0.3)},
    "exposure": {f"{factor} times": brightness(factor) for factor in (0.5, 0.7, 0.8, 1.25, 1.4)},
    "contrast": {f"{factor} times": contrast(factor) for factor in (0.5, 0.7, 1.4)},
    "reflection": {
        **{f"{share:.0%} all over": veil(share) for share in (0.05, 0.1, 0.3)},
        "at upper left": spot(-0.5, -0.5),
        "at lower right": spot(0.6, 0.6),
    },
    "blur": {f"{radius} pixels": blur(radius) for radius in (0.7, 1, 2)},
    "noise": {f"{levels} levels": noise(levels) for levels in (5, 10, 20)},
    "compression": {f"quality {quality}": through_jpeg(quality) for quality in (10, 30, 50, 75)},
    "geometry": {
        "turned": turned(20),
        "right": moved_right,
        "up": moved_up,
        "nearer": nearer(22),
        "farther": by_pil(farther),
    },
}


def some(seed=500, count=100):
    return render_shapes(count, seed)[0]


def found(shown):
    return window_from_sums(shapes_profile(), shapes_profile().baseline.sum_features(extract_shape_features(shown)))


def diagnosed(shown):
    return diagnose_window(found(shown), False)


@pytest.mark.parametrize(("name", "case"), [(name, case) for name, cases in CASES.items() for case in cases])
def test_what_happened_to_the_camera_is_named(name, case):
    assert diagnosed(CASES[name][case](some())).name == name


def test_where_nothing_happened_no_cause_is_found():
    assert [diagnosed(some(seed)).effects for seed in range(600, 620)] == [()] * 20


@pytest.mark.parametrize("kelvin", [3500, 5000, 9000, 12000])
def test_the_temperature_of_light_is_found_within_a_tenth(kelvin):
    effect = diagnosed(lamp(kelvin)(some())).effects[0]
    assert effect.value == pytest.approx(kelvin, rel=0.1) and effect.unit == "K"
    assert effect.detail == ("warmer" if kelvin < 6500 else "cooler")


@pytest.mark.parametrize("factor", [0.5, 0.7, 1.2])  # more and red no longer fits into eight bits
def test_exposure_is_found_in_stops_within_a_tenth(factor):
    clean, shown = some(), brightness(factor)(some())
    stops = torch.log2(srgb8_to_linear(shown).mean() / srgb8_to_linear(clean).mean())
    effect = diagnosed(shown).effects[0]
    assert effect.value == pytest.approx(float(stops), rel=0.1) and effect.unit == "stops"


TRUE = {
    "colour temperature": (lamp(4500), 4500),
    "exposure": (in_light(lambda linear: linear * 2**-0.6), -0.6),
    "tint": (tint(0.3), 0.3),
    "contrast": (contrast(0.7), 0.7),
    "reflection": (veil(0.1), 0.1),
    "noise": (noise(10), 10),
    "compression": (through_jpeg(40), 40),
}


@pytest.mark.parametrize("name", TRUE)
def test_the_interval_of_a_size_contains_the_truth_as_a_rule(name):
    change, truth = TRUE[name]
    first = [diagnosed(change(some(seed))).effects[0] for seed in range(700, 720)]
    assert {one.cause for one in first} == {name}
    inside = [one.low <= truth <= one.high for one in first]
    assert np.mean(inside) >= 0.75 and all(one.low <= one.value <= one.high for one in first)


@pytest.mark.parametrize("name", [name for name in TRUE if name not in ("noise", "compression")])
def test_a_cause_undone_brings_the_figures_back(name):
    change, _ = TRUE[name]
    shown = change(some())
    effect = diagnosed(shown).effects[0]
    back = invert_corruption(shown, name, effect.detail, effect.value)
    before, after = (float(((found(one).scores * feature_weights()) ** 2).sum() ** 0.5) for one in (shown, back))
    clean = float(((found(some()).scores * feature_weights()) ** 2).sum() ** 0.5)
    assert after < 0.5 * before and after < clean + 0.4
    assert diagnosed(back).effects == ()


@pytest.mark.parametrize("name", ["blur", "noise", "compression", "geometry"])
def test_what_is_lost_is_not_brought_back(name):
    assert invert_corruption(some(count=2), name, "", 1.0) is None
    assert invert_corruption(some(count=2), "reflection", "at -0.6 down, -0.6 right", 0.5) is None


DARK = in_light(lambda linear: linear * 0.5)
TWO = {
    ("colour temperature", "exposure"): (lamp(4000), DARK),
    ("colour temperature", "tint"): (lamp(4000), tint(0.4)),
    ("colour temperature", "reflection"): (lamp(4000), spot(0.6, 0.6)),
    ("colour temperature", "geometry"): (lamp(4000), moved_up),
    ("exposure", "reflection"): (DARK, spot(0.6, 0.6)),
    ("exposure", "geometry"): (DARK, moved_up),
    ("tint", "reflection"): (tint(0.4), spot(0.6, 0.6)),
    ("tint", "geometry"): (tint(0.4), moved_up),
    ("reflection", "geometry"): (veil(0.1), moved_up),
}


@pytest.mark.parametrize("names", TWO)
def test_two_causes_at_once_are_both_named(names):
    # light and frame: detail tells less, as darkness, contrast and blur take away the same
    one, other = TWO[names]
    found = diagnosed(other(one(some())))
    assert set(names) <= {effect.cause for effect in found.effects} and found.name in names


def test_the_nearest_place_on_a_path_is_worked_out_by_hand():
    path = np.array([[0.0, 0], [2, 0], [2, 4]])
    assert project_on_path(np.array([1.0, 1]), path) == (0.5, 1, 4)
    assert project_on_path(np.array([3.0, 3]), path) == (1.75, 1, 16)
    assert project_on_path(np.array([9.0, 9]), path)[0] == 2


def test_a_place_along_a_figure_and_its_error_are_worked_out_by_hand():
    assert invert_line(np.array([0.0, 2, 4, 8]), 5.0, 0.2) == (2.25, 0.05)
    assert invert_line(np.array([0.0, -2, -4]), -1.0, 0.2) == (0.5, 0.1)
    assert invert_line(np.array([0.0, 2]), -1.0, 0.2)[0] == 0


def test_a_movement_that_is_a_signature_is_that_change_and_leaves_nothing():
    table = shapes_profile().signatures
    row = next(
        row for row in range(len(table.size)) if table.names[table.kind[row]][0] == "blur" and table.size[row] == 1
    )
    moved = FeatureShift(1e6, table.scores[row], table.shifts[row], np.ones(len(CHARTED_FEATURES)))
    first = rank_effects(moved, table)[0]
    assert first.cause == "blur" and first.value == pytest.approx(1) and first.explained == pytest.approx(1)
    np.testing.assert_allclose(subtract_effect(moved, table, first).scores, 0, atol=1e-9)


def test_every_kind_of_change_does_nothing_at_no_size_and_keeps_the_form_of_pictures():
    shown = some(count=3)
    for kind in all_corruptions():
        for size in kind.sizes:
            changed = kind.apply(shown, size)
            assert changed.shape == shown.shape and changed.dtype == torch.uint8, kind
            assert not torch.equal(changed, shown), kind
        assert kind.cause in CAUSE_NAMES
        if kind.detail not in ("red and blue swapped", "mirrored", "upside down") and kind.cause != "compression":
            same = (kind.apply(shown, kind.neutral_size).float() - shown.float()).abs().max()
            assert same <= 1, kind
