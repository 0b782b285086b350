"""Lines of the home page from several parts of the site."""

from services.site.home_page import join_different_pages
from services.site.site_parts import HomeItem


def build_item(text, href):
    return HomeItem(text=text, href=href)


def test_a_page_that_two_parts_name_is_listed_once_and_one_part_may_name_it_twice():
    jobs = [build_item("accept the plan of a", "/plan/a")]
    experiments = [build_item("plan of a", "/plan/a"), build_item("plan of b", "/plan/b")]
    models = [build_item("c does not run", "/models/c"), build_item("c could not load a bundle", "/models/c")]
    joined = join_different_pages([jobs, experiments, models])
    assert joined == (*jobs, experiments[1], *models)
