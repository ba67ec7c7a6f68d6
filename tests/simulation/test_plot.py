import xml.etree.ElementTree

import pytest
from matplotlib import image

from ratelimit_app.simulation import plot
from ratelimit_app.simulation.arrivals import Arrival
from ratelimit_app.simulation.tallies import Tally
from tests.conftest import NOON


def tally(passed, refused):
    made = Tally(60, [2])
    for number in range(passed + refused):
        made.add(Arrival((NOON + number) * 1_000_000, "k"), passed=number < passed)
    return made


def colours(path):
    pixels = image.imread(path)[:, :, :3].reshape(-1, 3)
    found = {tuple(round(float(part), 2) for part in pixel) for pixel in pixels}
    return {"blue": (0.12, 0.47, 0.71) in found, "red": (0.84, 0.15, 0.16) in found}


def test_picture_is_a_png_with_both_colours(tmp_path):
    plot.draw([("one", tally(30, 30))], tmp_path / "a.png")
    assert image.imread(tmp_path / "a.png").shape == (250, 800, 4)
    assert colours(tmp_path / "a.png") == {"blue": True, "red": True}


@pytest.mark.parametrize(("number", "shape"), [(1, (250, 800)), (4, (1000, 800)), (5, (750, 1600))])
def test_picture_has_room_for_each_tally(tmp_path, number, shape):
    plot.draw([(f"t{index}", tally(3, 2)) for index in range(number)], tmp_path / "a.png")
    assert image.imread(tmp_path / "a.png").shape[:2] == shape


def test_picture_is_an_svg_by_its_ending(tmp_path):
    plot.draw([("one", tally(3, 2)), ("none came", Tally(60, [2]))], tmp_path / "a.svg")
    assert xml.etree.ElementTree.parse(tmp_path / "a.svg").getroot().tag.endswith("}svg")
